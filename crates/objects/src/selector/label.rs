//! Label selectors: requirements on labels, all of which must hold.
//!
//! The text form is `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`,
//! `key>5` and `key<5`, separated by commas; the JSON form is `metav1.LabelSelector`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    SelectorError,
    rules::{LabelSet, Rules, RulesBuilder},
};
use fairgate_core::digest::{ExpectedToken, LabelOperator, LabelSelectorParser, LabelSyntaxError};
use fairgate_gotext::{Quoted, names};

/// The number of bad values that one message lists at most. Each is followed by the whole rule,
/// which may be a hundred times longer than the value.
const MOST_MISTAKES: usize = 100;

/// A condition on the labels of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector(Selection);

/// What a selector selects. Most of those of policies select everything, and take no memory for that.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    Nothing,
    Everything,
    By(Box<Rules>),
}

/// A condition on one label, as it is read.
struct Requirement {
    key: String,
    operator: LabelOperator,
    values: BTreeSet<String>,
}

impl LabelSelector {
    /// Selects no object.
    pub(crate) fn nothing() -> Self {
        Self(Selection::Nothing)
    }

    fn of(rules: RulesBuilder) -> Self {
        Self(rules.build().map_or(Selection::Everything, Selection::By))
    }

    /// Reads the text form; the empty one selects everything.
    ///
    /// # Errors
    ///
    /// The server's text for the first error.
    pub fn parse(selector: &str) -> Result<Self, SelectorError> {
        let mut rules = RulesBuilder::default();
        if selector.is_empty() {
            return Ok(Self::of(rules));
        }
        let mut parser = LabelSelectorParser::new(selector.as_bytes());
        loop {
            let mut values = BTreeSet::new();
            let requirement = parser.next_requirement(|_, value| {
                values.insert(text(value));
            });
            let Some(requirement) = requirement.map_err(message)? else {
                break;
            };
            let (key, operator) = (
                String::from_utf8_lossy(requirement.key),
                requirement.operator,
            );
            check_values(&key, operator, &values).map_err(in_requirement)?;
            rules.add(&key, operator, values);
        }
        Ok(Self::of(rules))
    }

    /// Reads the JSON form: null selects nothing, an object without requirements everything.
    ///
    /// # Errors
    ///
    /// The server's text for the first requirement that is wrong.
    pub fn from_value(selector: &Value) -> Result<Self, SelectorError> {
        let Value::Object(selector) = selector else {
            return match selector {
                Value::Null => Ok(Self::nothing()),
                _ => Err(SelectorError("a label selector must be an object".into())),
            };
        };
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        let by_label = labels.into_iter().flatten().map(|(key, value)| {
            let values = value.as_str().into_iter().map(str::to_owned).collect();
            Requirement::checked(key, LabelOperator::Equals, values)
        });
        let by_expression = expressions.into_iter().flatten().map(from_expression);
        let mut rules = RulesBuilder::default();
        for requirement in by_label.chain(by_expression) {
            let Requirement {
                key,
                operator,
                values,
            } = requirement?;
            rules.add(&key, operator, values);
        }
        Ok(Self::of(rules))
    }

    /// Whether objects with these labels are selected. It costs as many look-ups as [`look_ups`](Self::look_ups) says.
    pub fn matches(&self, labels: &impl LabelSet) -> bool {
        match &self.0 {
            Selection::Nothing => false,
            Selection::Everything => true,
            Selection::By(rules) => rules.hold(labels),
        }
    }

    /// Whether the object is selected whose labels `label` returns. It costs a look-up for each label that the selector names.
    pub fn matches_by<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        match &self.0 {
            Selection::Nothing => false,
            Selection::Everything => true,
            Selection::By(rules) => rules.hold_by(label),
        }
    }

    /// Whether every object is selected, because nothing is required.
    pub fn is_everything(&self) -> bool {
        matches!(self.0, Selection::Everything)
    }

    /// Whether no object is selected, whatever its labels.
    pub fn is_nothing(&self) -> bool {
        matches!(self.0, Selection::Nothing)
    }

    /// How many requirements there are, and values in them.
    pub fn terms(&self) -> usize {
        self.rules().map_or(0, Rules::terms)
    }

    /// How many labels are looked up for an object with so many labels.
    pub fn look_ups(&self, labels: usize) -> usize {
        self.rules().map_or(0, |rules| rules.look_ups(labels))
    }

    /// A label that every selected object has, and the values that it may have if they are known and at most so many. Of several
    /// labels the one with the fewest.
    pub fn needed_label(&self, most_values: usize) -> Option<(&str, Option<Vec<&str>>)> {
        self.rules()?.needed_label(most_values)
    }

    fn rules(&self) -> Option<&Rules> {
        match &self.0 {
            Selection::Nothing | Selection::Everything => None,
            Selection::By(rules) => Some(rules),
        }
    }
}

impl LabelSet for Map<String, Value> {
    fn count(&self) -> usize {
        self.len()
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }
}

/// A part of the selector, which is UTF-8.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The server's text for a selector that cannot be read.
fn message(error: LabelSyntaxError<'_>) -> SelectorError {
    let (found, expected) = match error {
        LabelSyntaxError::InvalidKey(key) => {
            return in_requirement(invalid_key("<nil>", &text(key)));
        }
        LabelSyntaxError::UnexpectedToken { found, expected } => (text(found), expected),
    };
    // The server's text has no comma in one case.
    let what = match expected {
        ExpectedToken::RequirementOrEnd => ", expected: !, identifier, or 'end of string'",
        ExpectedToken::Requirement => ", expected: identifier after ','",
        ExpectedToken::CommaOrEnd => ", expected: ',' or 'end of string'",
        ExpectedToken::Key | ExpectedToken::Value => ", expected: identifier",
        ExpectedToken::Operator => ", expected: in, notin, =, ==, !=, gt, lt",
        ExpectedToken::OpeningParenthesis => " expected: '('",
        ExpectedToken::FirstValue => ", expected: ',', ')' or identifier",
        ExpectedToken::NextValue => ", expected: ',', or identifier",
        ExpectedToken::CommaOrClosingParenthesis => ", expected: ',' or ')'",
    };
    let why = format!("found '{found}'{what}");
    match expected {
        ExpectedToken::RequirementOrEnd
        | ExpectedToken::Requirement
        | ExpectedToken::CommaOrEnd => why.into(),
        _ => in_requirement(why),
    }
}

/// The server's text for an error within a requirement.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it is an argument of map_err"
)]
fn in_requirement(why: String) -> SelectorError {
    format!("unable to parse requirement: {why}").into()
}

fn from_expression(expression: &Value) -> Result<Requirement, String> {
    let text = |name: &str| {
        let value = expression.get(name).and_then(Value::as_str);
        value.unwrap_or_default()
    };
    let operator = match text("operator") {
        "In" => LabelOperator::In,
        "NotIn" => LabelOperator::NotIn,
        "Exists" => LabelOperator::Exists,
        "DoesNotExist" => LabelOperator::DoesNotExist,
        other => {
            return Err(format!(
                "{} is not a valid label selector operator",
                Quoted(other)
            ));
        }
    };
    let values = expression.get("values").and_then(Value::as_array);
    let values = values.into_iter().flatten().filter_map(Value::as_str);
    Requirement::checked(text("key"), operator, values.map(str::to_owned).collect())
}

impl Requirement {
    fn checked(
        key: &str,
        operator: LabelOperator,
        values: BTreeSet<String>,
    ) -> Result<Self, String> {
        if !names::is_label_key(key.as_bytes()) {
            return Err(invalid_key("key", key));
        }
        check_values(key, operator, &values)?;
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }
}

/// Whether a requirement may have these values.
fn check_values(
    key: &str,
    operator: LabelOperator,
    values: &BTreeSet<String>,
) -> Result<(), String> {
    let mut mistakes = Vec::new();
    let is_existence = matches!(
        operator,
        LabelOperator::Exists | LabelOperator::DoesNotExist
    );
    if !is_existence && values.is_empty() {
        let rule = "for 'in', 'notin' operators, values set can't be empty";
        mistakes.push(format!("values: Invalid value: null: {rule}"));
    }
    if is_existence && !values.is_empty() {
        let given: Vec<_> = values
            .iter()
            .map(|value| Quoted(value).to_string())
            .collect();
        let rule = "values set must be empty for exists and does not exist";
        let given = given.join(",");
        mistakes.push(format!("values: Invalid value: [{given}]: {rule}"));
    }
    for (index, value) in values.iter().enumerate() {
        if mistakes.len() >= MOST_MISTAKES {
            break;
        }
        check_value(key, operator, index, value, &mut mistakes);
    }
    match mistakes.as_slice() {
        [] => Ok(()),
        [mistake] => Err(mistake.clone()),
        mistakes => Err(format!("[{}]", mistakes.join(", "))),
    }
}

fn invalid_key(field: &str, key: &str) -> String {
    invalid(field, key, &names::qualified(key).join("; "))
}

fn check_value(
    key: &str,
    operator: LabelOperator,
    index: usize,
    value: &str,
    mistakes: &mut Vec<String>,
) {
    let is_comparison = matches!(
        operator,
        LabelOperator::GreaterThan | LabelOperator::LessThan
    );
    if is_comparison && value.parse::<i64>().is_err() {
        let rule = "for 'Gt', 'Lt' operators, the value must be an integer";
        mistakes.push(invalid(&format!("values[{index}]"), value, rule));
    }
    if !names::is_label_value(value.as_bytes()) {
        let field = format!("values[{index}][{key}]");
        let wrong = names::label_value(value);
        mistakes.push(invalid(&field, value, &wrong.join("; ")));
    }
}

fn invalid(field: &str, value: &str, rule: &str) -> String {
    format!("{field}: Invalid value: {}: {rule}", Quoted(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GOLDENS: &str = include_str!("goldens.json");

    fn selects(selector: &LabelSelector, labels: &Value) -> bool {
        selector.matches(labels.as_object().unwrap())
    }

    #[test]
    fn selectors_are_taken_and_refused_as_the_server_does() {
        let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
        for golden in goldens["labels"].as_array().unwrap() {
            let parsed = LabelSelector::parse(golden["selector"].as_str().unwrap());
            let message = parsed.err().map(|error| error.to_string());
            assert_eq!(message.as_deref(), golden["message"].as_str(), "{golden}");
        }
    }

    #[test]
    fn every_requirement_must_hold() {
        let labels = json!({"a": "1", "b": "x", "c": "", "n": "7"});
        let cases = [
            ("", true),
            ("a", true),
            ("!a", false),
            ("!z", true),
            ("a=1", true),
            ("a==2", false),
            ("a!=2", true),
            ("z!=2", true),
            ("a in (1,2)", true),
            ("a in ()", false),
            ("c in ()", true),
            ("c in (x,)", true),
            ("b notin (x)", false),
            ("z notin (x)", true),
            ("z in (x)", false),
            ("n>6", true),
            ("n>7", false),
            ("n<10", true),
            ("b>1", false),
            ("z<1", false),
            ("a=1,b=x,n", true),
            ("a=1,b=y", false),
            ("c=", true),
            ("c=,a=1", true),
        ];
        for (text, expected) in cases {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selects(&selector, &labels), expected, "{text}");
            assert_eq!(selector.is_everything(), text.is_empty());
        }
    }

    #[test]
    fn a_null_selector_selects_nothing_and_an_empty_one_everything() {
        let none = LabelSelector::from_value(&Value::Null).unwrap();
        assert!(!selects(&none, &json!({})));
        assert!(!none.is_everything());
        let all = LabelSelector::from_value(&json!({})).unwrap();
        assert!(selects(&all, &json!({"a": "b"})));
        assert!(all.is_everything());
    }

    #[test]
    fn the_json_form_means_what_the_text_form_means() {
        let json = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "env", "operator": "NotIn", "values": ["dev"]},
                {"key": "team", "operator": "Exists"},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        });
        let text = "app=web,tier in (a,b),env notin (dev),team,!old";
        assert_eq!(LabelSelector::from_value(&json), LabelSelector::parse(text));
    }

    #[test]
    fn a_wrong_json_form_is_refused() {
        let cases = [
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
                "\"Gt\" is not a valid label selector operator",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
                "values: Invalid value: [\"b\"]: values set must be empty for exists and does not \
                 exist",
            ),
            (json!([]), "a label selector must be an object"),
        ];
        for (selector, message) in cases {
            let error = LabelSelector::from_value(&selector).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let key = LabelSelector::from_value(&json!({"matchLabels": {"/a": "b"}})).unwrap_err();
        assert_eq!(
            key.to_string(),
            "key: Invalid value: \"/a\": prefix part must be non-empty"
        );
    }

    #[test]
    fn a_message_about_many_values_stays_within_bounds() {
        let values: Vec<String> = (0..20_000).map(|n| format!("-{n}")).collect();
        let error = LabelSelector::parse(&format!("a in ({})", values.join(","))).unwrap_err();
        assert!(error.to_string().len() < 50_000);
    }
}
