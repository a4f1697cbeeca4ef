//! Recorded sessions, translated from v1 to v1beta3.
//!
//! That version has the same fields as v1, so the two names are swapped in requests and responses,
//! and the warning about a deprecated version is added.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Value, json};

use super::{
    compare::Known,
    corpus::{Request, Session},
};

/// A version that follows its group.
static GROUP_VERSION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(flowcontrol\.apiserver\.k8s\.io/)(v1(?:beta3)?)\b").unwrap());
/// A version in the name of a Go type, in a message.
static TYPE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"\b()(v1)\.(?:FlowSchema|PriorityLevel|Limit|Exempt|Queuing|PolicyRules|FlowDist|Subject)",
    )
    .unwrap()
});
/// The version in the message about a body that cannot be decoded.
static UNREADABLE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(in version ")(v1(?:beta3)?)" cannot be handled"#).unwrap());

/// The beginning of a body whose `apiVersion` belongs to another group.
static FOREIGN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"^\{"apiVersion":"(?:meta\.k8s\.io/)?v1""#).unwrap());

/// Errors that a server returns before it looks at the version, besides unknown methods: unknown paths,
/// unsupported media types, invalid timeouts.
const BEFORE_ALL: [&str; 4] = [
    "the server could not find the requested resource",
    "406: Not Acceptable",
    "415: Unsupported Media Type",
    "invalid timeout specified in the request URL",
];

/// The annotation by which v1beta3 distinguishes zero shares from absent ones; v1 forbids it.
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// Whether a session is not about versioned objects, or sends binary bodies.
fn is_left_out(session: &Session) -> bool {
    let bytes = |(request, _): &(Request, Value)| !request.body_base64.is_empty();
    session.name == "discovery" || session.exchanges.iter().any(bytes)
}

/// The session in v1beta3; `None` if it has no equivalent there.
pub fn session(mut session: Session) -> Option<Session> {
    if is_left_out(&session) {
        return None;
    }
    let about_v1 = |request: &Request| request.body.contains(PRESERVE_ZERO);
    session.exchanges.retain(|(request, _)| !about_v1(request));
    for (request, answer) in &mut session.exchanges {
        let own = !FOREIGN.is_match(&request.body);
        request.path = in_version(&request.path);
        request.body = in_version(&request.body);
        swap_all(answer, own);
        warn(request, answer);
    }
    Some(session)
}

/// Swaps the two versions.
fn swapped(pattern: &Regex, text: &str) -> String {
    let swap = |found: &Captures<'_>| {
        let other = if &found[2] == "v1" { "v1beta3" } else { "v1" };
        let whole = &found[0];
        let (head, tail) = (&found[1], &whole[found[1].len() + found[2].len()..]);
        format!("{head}{other}{tail}")
    };
    pattern.replace_all(text, swap).into_owned()
}

fn in_version(text: &str) -> String {
    swapped(&GROUP_VERSION, text)
}

/// Swaps the versions in all text of a response; `own` says whether the request's body was in one of them.
fn swap_all(node: &mut Value, own: bool) {
    match node {
        Value::Object(fields) => fields.values_mut().for_each(|field| swap_all(field, own)),
        Value::Array(items) => items.iter_mut().for_each(|item| swap_all(item, own)),
        Value::String(text) => {
            *text = swapped(&TYPE, &in_version(text));
            if own {
                *text = swapped(&UNREADABLE, text);
            }
        }
        _ => {}
    }
}

/// Adds the warning of the version, before all others.
fn warn(request: &Request, answer: &mut Value) {
    let kind = if request.path.contains("/flowschemas") {
        "FlowSchema"
    } else if request.path.contains("/prioritylevelconfigurations") {
        "PriorityLevelConfiguration"
    } else {
        return;
    };
    // A 404 to HEAD has no body that tells its reason.
    let message = answer["body"]["message"].as_str().unwrap_or_default();
    let unrouted = answer["code"] == 405 || request.method == "HEAD";
    if unrouted || BEFORE_ALL.iter().any(|text| message.starts_with(text)) {
        return;
    }
    let group = "flowcontrol.apiserver.k8s.io";
    let warning = format!(
        "299 - \"{group}/v1beta3 {kind} is deprecated in v1.29+, unavailable in v1.32+; use {group}/v1 \
         {kind}\""
    );
    let warnings = &mut answer["headers"]["Warning"];
    let others = warnings.take();
    let mut all = vec![json!(warning)];
    all.extend(others.as_array().cloned().unwrap_or_default());
    *warnings = json!(all);
}

/// The other known differences from v1.
pub fn known() -> Vec<Known> {
    vec![Known::new(
        "tables|defaults|levels",
        ".*/prioritylevelconfigurations.*",
        ".*/nominalConcurrencyShares|.*/cells/2",
        "v1beta3 takes zero shares for absent ones, and the default is 30",
    )]
}
