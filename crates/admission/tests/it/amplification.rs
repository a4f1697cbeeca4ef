//! Errors and warnings about an object take memory in proportion to it: nothing long that is in it once is shown with each of many items.
//!
//! Objects are made of the types of the hosted kinds, with one text that is long, and one list or map that has many items, in all pairs.

use fairgate_admission::kinds::{VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING};
use fairgate_gotext::names;
use fairgate_objects::{
    kind::Kind,
    kinds::{FLOW_SCHEMA, POD_DISRUPTION_BUDGET, PRIORITY_LEVEL},
    metadata,
    schema::Type,
};
use serde_json::{Map, Value, json};

const MANY: usize = 150;
const LONG: usize = 30_000;
const VERY_MANY: usize = 100_000;
/// What is shown of a text is at most four times as long, in the message and the cause of two validations, and each item has a few errors.
const PER_BYTE: usize = 24;
const FIXED: usize = 2 << 20;

/// Where texts are, and where there can be many items.
#[derive(Default)]
struct Places {
    texts: Vec<String>,
    lists: Vec<String>,
    /// Those of them whose items are texts.
    of_texts: Vec<String>,
}

impl Places {
    fn of(kind: &Kind) -> Self {
        let mut places = Self::default();
        places.add(&Type::Object(kind.stored().shape), "");
        places
    }

    fn add(&mut self, ty: &Type, at: &str) {
        match ty {
            Type::Text | Type::IntOrString | Type::Quantity => self.texts.push(at.to_owned()),
            Type::Object(shape) => {
                for field in shape.fields {
                    self.add(&field.ty, &format!("{at}.{}", field.name));
                }
            }
            Type::List(list) => {
                self.add_list(at, &list.item);
                self.add(&list.item, &format!("{at}[]"));
            }
            Type::Map(map) => {
                self.add_list(at, &map.value);
                self.texts.push(format!("{at} key"));
                self.add(&map.value, &format!("{at}[]"));
            }
            _ => {}
        }
    }

    fn add_list(&mut self, at: &str, item: &Type) {
        self.lists.push(at.to_owned());
        if matches!(item, Type::Text) {
            self.of_texts.push(at.to_owned());
        }
    }
}

/// An object with a long text at one place, and so many items at another.
struct Sample<'a> {
    long: &'a str,
    many: &'a str,
    count: usize,
}

impl Sample<'_> {
    /// The long text is in the first item alone.
    fn value(&self, ty: &Type, at: &str, item: usize) -> Value {
        match ty {
            Type::Text | Type::IntOrString | Type::Quantity => json!(self.text(at, item)),
            Type::Int32 | Type::Int64 => json!(-1),
            Type::Flag => json!(true),
            Type::Object(shape) => {
                let fields = shape.fields.iter().map(|field| {
                    let at = format!("{at}.{}", field.name);
                    (field.name.to_owned(), self.value(&field.ty, &at, item))
                });
                Value::Object(fields.collect())
            }
            Type::List(list) => (0..self.count(at))
                .map(|at_item| self.value(&list.item, &format!("{at}[]"), item.max(at_item)))
                .collect(),
            Type::Map(map) => {
                let entries = (0..self.count(at)).map(|at_item| {
                    let item = item.max(at_item);
                    let key = self.text(&format!("{at} key"), item);
                    (key, self.value(&map.value, &format!("{at}[]"), item))
                });
                Value::Object(entries.collect::<Map<_, _>>())
            }
            _ => Value::Null,
        }
    }

    /// A text that is wrong nearly everywhere.
    fn text(&self, at: &str, item: usize) -> String {
        if at == self.long && item == 0 {
            "\u{7f}".repeat(LONG)
        } else {
            format!("\u{7f} {item}")
        }
    }

    fn count(&self, at: &str) -> usize {
        if at == self.many { self.count } else { 1 }
    }
}

/// The bytes of all that is said of an object.
fn said(kind: &Kind, object: &Value) -> usize {
    let rules = kind.rules;
    let old = json!({"metadata": {"name": "old", "uid": "u", "resourceVersion": "1"}});
    let rule = rules.name.unwrap_or(names::path_segment);
    let errors = [
        metadata::validate(object, kind.namespaced, rule),
        metadata::validate_update(object, &old),
        (rules.validate)(object, None),
        (rules.validate)(object, Some(object)),
        (rules.validate_status)(object),
    ];
    let errors = errors.iter().flatten();
    let errors: usize = errors.map(|error| error.to_string().len()).sum();
    let warnings: usize = (rules.warnings)(object).iter().map(String::len).sum();
    errors + warnings
}

fn hold(kind: &Kind) {
    let places = Places::of(kind);
    assert!(places.texts.len() > 20 && places.lists.len() > 5);
    let mut wrong = Vec::new();
    let mut largest = 0;
    let mut look = |sample: &Sample<'_>| {
        let object = sample.value(&Type::Object(kind.stored().shape), "", 0);
        let (said, sent) = (said(kind, &object), object.to_string().len());
        largest = largest.max(said);
        if said > FIXED + PER_BYTE * sent {
            let (long, many) = (sample.long, sample.many);
            wrong.push(format!(
                "{long} x {} {many}: {said} of {sent}",
                sample.count
            ));
        }
    };
    for many in &places.lists {
        for long in &places.texts {
            let count = MANY;
            look(&Sample { long, many, count });
        }
    }
    for many in &places.of_texts {
        let (long, count) = ("", VERY_MANY);
        look(&Sample { long, many, count });
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", kind.kind);
    assert!(largest > LONG, "nothing is said of the long text");
}

#[test]
fn what_is_said_of_a_flow_schema_is_in_proportion_to_it() {
    hold(&FLOW_SCHEMA);
}

#[test]
fn what_is_said_of_a_level_is_in_proportion_to_it() {
    hold(&PRIORITY_LEVEL);
}

#[test]
fn what_is_said_of_a_budget_is_in_proportion_to_it() {
    hold(&POD_DISRUPTION_BUDGET);
}

#[test]
fn what_is_said_of_a_policy_is_in_proportion_to_it() {
    hold(&VALIDATING_ADMISSION_POLICY);
}

#[test]
fn what_is_said_of_a_binding_is_in_proportion_to_it() {
    hold(&VALIDATING_ADMISSION_POLICY_BINDING);
}
