//! What partial evaluation says of an expression where something is absent is what its evaluation gives, whatever the rest is.

use fairgate_cel::{CelAbsence, CelEnvironment, CelJson, CelType, CelValue};
use fairgate_core::random::Random;
use serde_json::{Value, json};

use crate::environments::{NEWEST, base};

fn environment() -> CelEnvironment {
    base(NEWEST)
        .homogeneous_literals(false)
        .variable("x", CelType::Dyn)
        .variable("old", CelType::Dyn)
        .variable("request", CelType::Dyn)
        .build()
}

/// Labels are absent.
const LABELS: CelAbsence<'_> = CelAbsence {
    path: &["x", "m", "labels"],
    lacks_keys: false,
    texts: &[],
};

/// There are labels, without any that is read.
const OTHER_LABELS: CelAbsence<'_> = CelAbsence {
    lacks_keys: true,
    ..LABELS
};

/// There is no old object.
const OLD: CelAbsence<'_> = CelAbsence {
    path: &["old"],
    lacks_keys: false,
    texts: &[(&["request", "operation"], "CREATE")],
};

/// What is known of the value: `fails`, `false`, or neither.
fn partial_value(expression: &str, absence: &CelAbsence<'_>) -> &'static str {
    let environment = environment();
    let program = environment.compile(expression);
    let program = program.unwrap_or_else(|error| panic!("{expression}: {error}"));
    let value = program.evaluate_partially(absence, "", &|_| None);
    match (value.may_fail(), value.is_false()) {
        (true, _) => "fails",
        (_, true) => "false",
        _ => "",
    }
}

#[test]
fn keys_of_labels_are_read_with_or_without_a_test() {
    for (expression, expected) in [
        ("x.m.labels['a'] == 'b'", "fails"),
        ("has(x.m.labels) && x.m.labels['a'] == 'b'", "fails"),
        ("x.m.?labels.orValue({})['a'] == 'b'", "fails"),
        ("'labels' in x.m && x.m.labels.a == 'b'", "fails"),
        ("'a' in x.m.labels && x.m.labels['a'] == 'b'", "false"),
        ("has(x.m.labels.a) && x.m.labels['a'] == 'b'", "false"),
        ("x.m.labels[?'a'].orValue('') == 'b'", "false"),
        ("x.m.labels.exists(k, k == 'a') && x.m.labels.a == 'b'", ""),
        ("x.m.labels.all(k, x.m.labels[k] == 'b')", ""),
        ("!('a' in x.m.labels) || x.m.labels['a'] == 'b'", ""),
        ("x.m.labels.size() > 1 && x.m.labels.a == 'b'", ""),
    ] {
        assert_eq!(
            partial_value(expression, &OTHER_LABELS),
            expected,
            "{expression}"
        );
    }
}

#[test]
fn labels_are_read_with_or_without_a_test() {
    for (expression, expected) in [
        ("x.m.labels['a'] == 'b'", "fails"),
        ("x.m.labels.a == 'b'", "fails"),
        ("'a' in x.m.labels", "fails"),
        ("has(x.m.labels.a)", "fails"),
        ("x.m.labels.exists(k, k == 'a')", "fails"),
        ("x.kind == 'Pod' && x.m.labels.a == 'b'", "fails"),
        ("x.kind == 'Pod' ? x.m.labels.a == 'b' : true", "fails"),
        ("x.list.all(c, x.m.labels.a == c)", "fails"),
        ("x.m.?labels.value().a == 'b'", "fails"),
        ("x.m.?labels.orValue({})['a'] == 'b'", "fails"),
        ("has(x.m) && x.m.labels.a == 'b'", "fails"),
        ("has(x.m.labels) && x.m.labels.a == 'b'", "false"),
        ("!(!has(x.m.labels) || x.m.labels.a == 'b')", "false"),
        ("!has(x.m.labels) || x.m.labels.a == 'b'", ""),
        ("has(x.m.labels) ? x.m.labels.a == 'b' : x.b", ""),
        ("'labels' in x.m && x.m.labels.a == 'b'", "false"),
        ("x.m.?labels[?'a'].orValue('') == 'b'", "false"),
        ("x.m.?labels.?a.hasValue() && x.m.labels.a == 'b'", "false"),
        ("x.m.?labels.optMap(l, l.a == 'b').orValue(false)", "false"),
        ("x.m.?labels.orValue({}).all(k, x.m.labels[k] == 'b')", ""),
        (
            "size(x.m.?labels.orValue({})) > 0 && x.m.labels.a == 'b'",
            "false",
        ),
        (
            "x.m.?labels.orValue({}).exists(k, k == 'a') && x.m.labels.a == 'b'",
            "false",
        ),
        // It is not known what the test says.
        (
            "x.m.?labels.orValue({'a': 'b'}).size() > 3 && x.m.labels.a == 'b'",
            "",
        ),
        ("x.other.labels.a == 'b' && x.labels.a == 'b'", ""),
        ("x.m.name == 'labels'", ""),
    ] {
        assert_eq!(partial_value(expression, &LABELS), expected, "{expression}");
    }
}

#[test]
fn an_old_object_is_read_with_or_without_a_test() {
    for (expression, expected) in [
        ("old.spec.a == x.spec.a", "fails"),
        ("has(old.spec)", "fails"),
        ("request.operation == 'UPDATE' && old.a == x.a", "false"),
        ("request.operation != 'UPDATE' || old.a == x.a", ""),
        (
            "request.operation in ['CREATE', 'DELETE'] || old.a == x.a",
            "",
        ),
        ("request.operation in ['UPDATE'] && old.a == x.a", "false"),
        ("request.operation == 'CREATE' && old.a == x.a", "fails"),
        ("old != null && old.a == x.a", "false"),
        ("old == null || old.a == x.a", ""),
        ("request.name == 'UPDATE' && old.a == x.a", "fails"),
        ("type(old) == null_type ? x.b : old.b", ""),
        ("dyn(old) == null ? x.b : old.b", ""),
    ] {
        assert_eq!(partial_value(expression, &OLD), expected, "{expression}");
    }
}

#[test]
fn variables_have_the_values_that_are_given() {
    let environment = base(NEWEST)
        .variable("x", CelType::Dyn)
        .variable("variables", CelType::Dyn)
        .build();
    let partial_value = |text: &str, values: &dyn Fn(&str) -> Option<_>| {
        environment
            .compile(text)
            .unwrap()
            .evaluate_partially(&LABELS, "variables", values)
    };
    let labels = partial_value("x.m.?labels.orValue({})", &|_| None);
    let read = partial_value("x.m.labels", &|_| None);
    assert!(read.may_fail() && !labels.may_fail());
    let values = |name: &str| match name {
        "labels" => Some(labels.clone()),
        "read" => Some(read.clone()),
        _ => None,
    };
    assert!(partial_value("'a' in variables.labels", &values).is_false());
    assert!(partial_value("'a' in variables.read", &values).may_fail());
    assert!(!partial_value("'a' in variables.other", &values).may_fail());
}

/// Draws expressions that are true or false. No two parts that are unknown are the same, so that each may have any value.
struct Drawing {
    random: Random,
    left: u32,
    /// How many flags and lists of the object are read.
    flags: usize,
    lists: usize,
}

const MOST_FLAGS: usize = 5;
const MOST_LISTS: usize = 2;

impl Drawing {
    fn one_of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[usize::try_from(self.random.within(0..all.len() as u64)).unwrap()]
    }

    fn flag(&mut self) -> String {
        if self.flags == MOST_FLAGS {
            return "true".to_owned();
        }
        self.flags += 1;
        format!("x.flags.f{}", self.flags - 1)
    }

    fn leaf(&mut self) -> String {
        const LEAVES: [&str; 16] = [
            "true",
            "false",
            "has(x.m.labels)",
            "has(x.m)",
            "has(x.m.labels.a)",
            "x.m.labels.a == 'b'",
            "x.m.labels['a'] != 'b'",
            "'a' in x.m.labels",
            "'labels' in x.m",
            "x.m.?labels.hasValue()",
            "x.m.?labels.?a.orValue('b') == 'b'",
            "x.m.?labels[?'a'].hasValue()",
            "x.m.?labels.orValue({}).size() == 0",
            "x.m.?labels.orValue({}).all(k, x.m.labels[k] == 'b')",
            "x.m.labels == null",
            "x.?m.?labels.orValue(null) == null",
        ];
        match self.random.within(0..4) {
            0 => self.flag(),
            1 if self.random.within(0..4) == 0 => {
                let flags = [self.flag(), self.flag()];
                format!("x.m.?labels.optMap(l, {}).orValue({})", flags[0], flags[1])
            }
            _ => self.one_of(&LEAVES).to_owned(),
        }
    }

    fn condition(&mut self) -> String {
        let Some(left) = self.left.checked_sub(1) else {
            return self.leaf();
        };
        self.left = left;
        match self.random.within(0..7) {
            0 | 1 => format!("({} && {})", self.condition(), self.condition()),
            2 | 3 => format!("({} || {})", self.condition(), self.condition()),
            4 => format!("!({})", self.condition()),
            5 => {
                let parts = [self.condition(), self.condition(), self.condition()];
                format!("({} ? {} : {})", parts[0], parts[1], parts[2])
            }
            _ if self.lists == MOST_LISTS => self.leaf(),
            _ => {
                self.lists += 1;
                let list = self.lists - 1;
                let fold = self.one_of(&["all", "exists"]);
                format!("x.lists.l{list}.{fold}(e, {})", self.condition())
            }
        }
    }
}

/// Objects with this metadata, with all values of what conditions read besides.
fn objects(metadata: &Value) -> Vec<Value> {
    let each = |bits: usize| {
        let flags = (0..MOST_FLAGS).map(|at| (format!("f{at}"), json!(bits >> at & 1 == 1)));
        let lists = (0..MOST_LISTS).map(|at| {
            let is_empty = bits >> (MOST_FLAGS + at) & 1 == 1;
            let list = if is_empty { json!([]) } else { json!(["e"]) };
            (format!("l{at}"), list)
        });
        let [flags, lists] = [flags.collect(), lists.collect()].map(Value::Object);
        json!({"m": metadata, "flags": flags, "lists": lists})
    };
    (0..1 << (MOST_FLAGS + MOST_LISTS)).map(each).collect()
}

#[test]
fn what_is_known_of_a_value_holds() {
    holds(&LABELS, &json!({"name": "n"}), [400, 200]);
    let other = json!({"name": "n", "labels": {"z": "b"}});
    holds(&OTHER_LABELS, &other, [300, 200]);
}

/// What is said of drawn expressions is what evaluating them with objects of this metadata gives.
fn holds(absence: &CelAbsence<'_>, metadata: &Value, at_least: [usize; 2]) {
    let environment = environment();
    let objects = objects(metadata);
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    let parsed = texts.iter().map(|text| serde_json::from_str(text).unwrap());
    let objects: Vec<CelJson<'_>> = parsed.collect();
    let (mut fails, mut decided) = (0, 0);
    for seed in 0..3_000 {
        let mut drawing = Drawing {
            random: Random::seeded(seed),
            left: 7,
            flags: 0,
            lists: 0,
        };
        let expression = drawing.condition();
        let program = environment.compile(&expression).unwrap();
        let value = program.evaluate_partially(absence, "", &|_| None);
        let results = objects.iter().map(|object| {
            let bindings = environment.bindings().with("x", CelValue::json(object));
            program.evaluate(&bindings).result
        });
        let results: Vec<_> = results.collect();
        if value.may_fail() {
            fails += 1;
            assert!(results.iter().any(Result::is_err), "{expression}");
        }
        if value.is_false() {
            decided += 1;
            let is_false = |result: &&_| **result == Ok(CelValue::Bool(false));
            let other = results.iter().find(|result| !is_false(result));
            assert_eq!(other, None, "{expression}");
        }
    }
    let [some_fail, some_decided] = at_least;
    assert!(
        fails > some_fail && decided > some_decided,
        "{fails} {decided}"
    );
}
