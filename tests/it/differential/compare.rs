//! Differences between two responses, and the list of intended ones.

use std::{collections::BTreeSet, fmt, fs};

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::corpus::Session;

/// A field in which the hosted API's response differs from the real server's.
pub struct Difference {
    session: String,
    /// The index of the request in its session, from 0.
    number: usize,
    request: String,
    /// A JSON pointer into the response.
    field: String,
    want: Value,
    got: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            session,
            number,
            request,
            field,
            ..
        } = self;
        let (want, got) = (short(&self.want), short(&self.got));
        write!(
            f,
            "{session} #{number} {request}\n    {field}\n      want {want}\n      got  {got}"
        )
    }
}

fn short(value: &Value) -> String {
    const LONGEST: usize = 600;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// All differences in a session.
pub fn compare(session: &Session, got: &[Value]) -> Vec<Difference> {
    assert_eq!(session.exchanges.len(), got.len(), "{}", session.name);
    let mut found = Vec::new();
    for (number, ((request, want), got)) in session.exchanges.iter().zip(got).enumerate() {
        let mut report = |field: &str, want: &Value, got: &Value| {
            found.push(Difference {
                session: session.name.clone(),
                number,
                request: request.line(),
                field: field.to_owned(),
                want: want.clone(),
                got: got.clone(),
            });
        };
        trees("", want, got, &mut report);
    }
    found
}

/// Walks two trees; what is absent is null.
fn trees(field: &str, want: &Value, got: &Value, report: &mut dyn FnMut(&str, &Value, &Value)) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let keys: BTreeSet<&String> = want.keys().chain(got.keys()).collect();
            for key in keys {
                let field = format!("{field}/{}", key.replace('~', "~0").replace('/', "~1"));
                let of = |tree: &serde_json::Map<String, Value>| tree.get(key).cloned();
                let (want, got) = (of(want).unwrap_or_default(), of(got).unwrap_or_default());
                trees(&field, &want, &got, report);
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                trees(&format!("{field}/{index}"), want, got, report);
            }
        }
        _ if want == got => {}
        _ => report(field, want, got),
    }
}

/// A pattern that matches any text.
const ANYTHING: &str = "(?s).*";

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).unwrap()
}

/// An intended difference, and its reason. A pattern that is not given matches everything.
pub struct Known {
    session: Regex,
    request: Regex,
    field: Regex,
    /// The value from the real server, as JSON.
    want: Regex,
    got: Regex,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    request: Option<String>,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    want: Option<String>,
    #[serde(default)]
    got: Option<String>,
    /// Applies only while a controller writes conditions, as none does here.
    #[serde(default)]
    conditions: bool,
    reason: String,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Known {
    /// The differences that a file lists.
    pub fn read(path: &str) -> Vec<Self> {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        let written: Vec<Written> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let known = written
            .into_iter()
            .filter(|one| !one.conditions)
            .map(|one| {
                let of =
                    |part: &Option<String>| part.clone().unwrap_or_else(|| ANYTHING.to_owned());
                Self {
                    want: whole(&of(&one.want)),
                    got: whole(&of(&one.got)),
                    ..Self::new(
                        &of(&one.session),
                        &of(&one.request),
                        &of(&one.field),
                        &one.reason,
                    )
                }
            });
        known.collect()
    }

    /// An intended difference, from patterns that must match the whole text.
    pub fn new(session: &str, request: &str, field: &str, reason: &str) -> Self {
        Self {
            session: whole(session),
            request: whole(request),
            field: whole(field),
            want: whole(ANYTHING),
            got: whole(ANYTHING),
            text: format!("{session} | {request} | {field}: {reason}"),
        }
    }

    fn is(&self, difference: &Difference) -> bool {
        self.session.is_match(&difference.session)
            && self.request.is_match(&difference.request)
            && self.field.is_match(&difference.field)
            && self.want.is_match(&difference.want.to_string())
            && self.got.is_match(&difference.got.to_string())
    }

    /// Returns the unknown differences, and the known ones that did not occur.
    pub fn sort_out(found: Vec<Difference>, known: &[Self]) -> (Vec<Difference>, Vec<&Self>) {
        let mut used = vec![false; known.len()];
        let mut unknown = Vec::new();
        for difference in found {
            let mut expected = false;
            for (one, used) in known.iter().zip(&mut used) {
                if one.is(&difference) {
                    (expected, *used) = (true, true);
                }
            }
            if !expected {
                unknown.push(difference);
            }
        }
        let unused = known.iter().zip(used).filter(|(_, used)| !used);
        (unknown, unused.map(|(one, _)| one).collect())
    }
}
