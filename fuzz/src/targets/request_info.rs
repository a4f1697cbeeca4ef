//! [`RequestInfo`]: a method and a target, separated by the first space.
//!
//! Properties: the parts of the path agree with a plain reading of the rules, written for clarity as Kubernetes'
//! own is; whole target and separate path and query lead to the same result; a non-resource request has no resource attributes.

use fairgate_core::digest::{InfoError, RequestInfo, Verb};

use crate::{Outcome, Target};

/// The target `request_info`.
pub const TARGET: Target = Target {
    name: "request_info",
    run,
    dictionary: &[
        "GET ",
        "DELETE ",
        "POST ",
        "HEAD ",
        "/api/v1/",
        "/apis/apps/v1/",
        "namespaces/",
        "/watch/",
        "/proxy/",
        "status",
        "finalize",
        "%2F",
        "%2e",
        "%ff",
        "?",
        "&",
        ";",
        "watch=1",
        "watch=0",
        "fieldSelector=metadata.name%3D",
        "labelSelector=",
        "limit=",
        "timeout=",
        "continue=",
        "sendInitialEvents=",
        "resourceVersionMatch=",
        "spec.nodeName%3D",
        "pods",
        "//",
        "..",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(data);
    let (method, target) = text.split_once(' ').unwrap_or(("GET", &text));
    let result = RequestInfo::from_target(method, target);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    assert_eq!(result, RequestInfo::parse(method, path, query));
    match &result {
        Ok(info) => {
            agrees(info, method, path);
            let list = info.list.as_deref();
            Outcome::of((
                info.verb.as_str().len(),
                info.is_long_running(),
                shape(info),
                list.map(|list| {
                    (
                        list.decodes,
                        list.numbers_decode,
                        list.has_selector(),
                        list.node_name.is_some(),
                    )
                }),
                info.timeout.as_ref().map(Result::is_ok),
            ))
        }
        Err(error) => {
            fails_as_it_should(*error, method, path, query);
            Outcome::of(format!("{error:?}"))
        }
    }
}

/// Which attributes there are.
fn shape(info: &RequestInfo) -> [bool; 7] {
    [
        info.api_prefix(),
        info.group(),
        info.version(),
        info.namespace(),
        info.resource(),
        info.subresource(),
        info.name(),
    ]
    .map(|part: &[u8]| !part.is_empty())
}

fn agrees(info: &RequestInfo, method: &str, path: &str) {
    let decoded = decode(path.as_bytes()).expect("a bad escape would have been refused");
    assert_eq!(info.path(), decoded);
    let Ok(expected) = Plain::read(method, &decoded) else {
        panic!("Kubernetes cannot classify it: {info:?}")
    };
    assert_eq!(info.is_resource, expected.is_resource, "{info:?}");
    assert_eq!(info.api_prefix(), expected.prefix);
    assert_eq!(info.group(), expected.group);
    assert_eq!(info.version(), expected.version);
    assert_eq!(info.namespace(), expected.namespace);
    assert_eq!(info.resource(), expected.resource());
    assert_eq!(info.subresource(), expected.subresource());
    let parts: Vec<&[u8]> = info.parts().collect();
    assert_eq!(parts, expected.parts);
    let is_collection = expected.name().is_empty();
    if !is_collection {
        assert_eq!(info.name(), expected.name());
    }
    let verbs: &[&str] = match expected.verb.as_str() {
        "get" if expected.is_resource && is_collection => &["list", "watch"],
        "delete" if expected.is_resource && is_collection => &["deletecollection"],
        verb => &[verb],
    };
    assert!(
        verbs.contains(&info.verb.as_str()),
        "{:?} is none of {verbs:?}",
        info.verb
    );
    assert_eq!(info.is_watch(), info.verb == Verb::Watch);
}

fn fails_as_it_should(error: InfoError, method: &str, path: &str, query: Option<&str>) {
    let is_bad = |b: u8| b <= b' ' || b == 0x7f;
    let has_bad_byte = path
        .bytes()
        .chain(query.unwrap_or_default().bytes())
        .any(is_bad);
    let decoded = decode(path.as_bytes());
    match error {
        InfoError::BadByte => assert!(has_bad_byte),
        InfoError::BadEscape => assert!(decoded.is_none()),
        InfoError::TooManyParameters => {
            assert!(query.unwrap_or_default().matches('&').count() >= 10_000);
        }
        InfoError::Unclassifiable => {
            let decoded = decoded.expect("a bad escape comes first");
            assert!(Plain::read(method, &decoded).is_err());
        }
    }
}

/// Percent-decodes a path.
fn decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut pieces = path.split(|&b| b == b'%');
    let mut decoded = pieces.next()?.to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        let mut byte = 0;
        for &digit in digits {
            byte = byte << 4 | u8::try_from(char::from(digit).to_digit(16)?).ok()?;
        }
        decoded.push(byte);
        decoded.extend_from_slice(rest);
    }
    Some(decoded)
}

/// The parts of a path, by a literal reading of the rules of `RequestInfoFactory.NewRequestInfo`.
#[derive(Debug, Default)]
struct Plain<'a> {
    is_resource: bool,
    verb: String,
    prefix: &'a [u8],
    group: &'a [u8],
    version: &'a [u8],
    namespace: &'a [u8],
    parts: Vec<&'a [u8]>,
}

impl<'a> Plain<'a> {
    fn read(method: &str, path: &'a [u8]) -> Result<Self, ()> {
        let mut plain = Self {
            verb: method.to_ascii_lowercase(),
            ..Self::default()
        };
        let mut segments = split(path);
        if segments.len() < 3 || !matches!(segments[0], b"api" | b"apis") {
            return Ok(plain);
        }
        plain.prefix = segments.remove(0);
        if plain.prefix == b"apis" {
            if segments.len() < 3 {
                return Ok(plain);
            }
            plain.group = segments.remove(0);
        }
        plain.is_resource = true;
        plain.version = segments.remove(0);
        if matches!(segments[0], b"watch" | b"proxy") {
            if segments.len() < 2 {
                return Err(());
            }
            plain.verb = String::from_utf8_lossy(segments.remove(0)).into_owned();
        } else {
            let verb = match method {
                "POST" => "create",
                "GET" | "HEAD" => "get",
                "PUT" => "update",
                "PATCH" => "patch",
                "DELETE" => "delete",
                _ => "",
            };
            verb.clone_into(&mut plain.verb);
        }
        if segments[0] == b"namespaces" && segments.len() > 1 {
            plain.namespace = segments[1];
            if segments.len() > 2 && !matches!(segments[2], b"status" | b"finalize") {
                segments.drain(..2);
            }
        }
        plain.parts = segments;
        Ok(plain)
    }

    fn part(&self, index: usize) -> &'a [u8] {
        self.parts.get(index).copied().unwrap_or_default()
    }

    fn resource(&self) -> &'a [u8] {
        self.part(0)
    }

    fn name(&self) -> &'a [u8] {
        self.part(1)
    }

    fn subresource(&self) -> &'a [u8] {
        if self.verb == "proxy" {
            b""
        } else {
            self.part(2)
        }
    }
}

fn split(path: &[u8]) -> Vec<&[u8]> {
    let Some(start) = path.iter().position(|&b| b != b'/') else {
        return Vec::new();
    };
    let end = path
        .iter()
        .rposition(|&b| b != b'/')
        .map_or(start, |last| last + 1);
    path[start..end].split(|&b| b == b'/').collect()
}
