//! Whole requests: method, path and query in, [`RequestInfo`] out.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// One request per line with its expected RequestInfo; the head of the file explains the columns.
const REQUESTS: &str = include_str!("requests.txt");

fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    REQUESTS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
}

fn info(method: &str, target: &str) -> RequestInfo {
    RequestInfo::from_target(method, target).expect("the request can be understood")
}

fn options(target: &str) -> ListOptions {
    *info("GET", target)
        .list
        .expect("the request has list options")
}

/// A request's columns as in the table, from the verb on.
fn columns(info: &RequestInfo) -> Vec<String> {
    let parts: Vec<_> = info.parts().map(readable).collect();
    let mut columns: Vec<String> = [
        info.verb.as_str().into(),
        readable(info.api_prefix()),
        readable(info.group()),
        readable(info.version()),
        readable(info.namespace()),
        readable(info.resource()),
        readable(info.subresource()),
        readable(info.name()),
        parts.join("/").into(),
        if info.is_long_running() { "yes" } else { "no" }.into(),
    ]
    .map(Cow::<str>::into_owned)
    .into();
    for column in &mut columns {
        if column.is_empty() {
            column.push('-');
        }
    }
    columns
}

#[test]
fn every_request_of_the_table_is_parsed_as_kube_apiserver_parses_it() {
    let mut count = 0;
    for row in rows() {
        count += 1;
        let [method, target, expected @ ..] = &row[..] else {
            panic!("a row has a method and a target: {row:?}")
        };
        let result = RequestInfo::from_target(method, target);
        if expected.is_empty() {
            assert_eq!(result, Err(InfoError::Unclassifiable), "{method} {target}");
            continue;
        }
        let info = result.expect("only rows without columns are refused");
        assert_eq!(columns(&info), expected, "{method} {target}");
        assert_eq!(info.is_resource, expected[8] != "-", "{method} {target}");
        assert_eq!(info.is_watch(), expected[0] == "watch", "{method} {target}");
    }
    assert_eq!(count, 109);
}

#[test]
fn the_path_is_kept_as_received_but_for_its_escapes() {
    for (target, path) in [
        ("/", &b"/"[..]),
        ("//api//v1/pods/?a=b", b"//api//v1/pods/"),
        ("/api/v1/../%2e%2E/x%2Fy", b"/api/v1/../../x/y"),
        ("/a%ff+b", b"/a\xff+b"),
        ("/a#b?c#d", b"/a#b"),
        ("*", b"*"),
        ("", b""),
    ] {
        assert_eq!(info("GET", target).path(), path, "{target}");
    }
}

#[test]
fn parts_keep_their_empty_segments() {
    let request = info("GET", "/api/v1//pods//x//");
    let parts: Vec<_> = request.parts().collect();
    assert_eq!(parts, [&b""[..], b"pods", b"", b"x"]);
    assert_eq!(info("GET", "/healthz").parts().count(), 0);
}

#[test]
fn an_object_without_a_name_is_its_collection_whatever_the_subresource() {
    let request = info("GET", "/api/v1/pods//log");
    assert_eq!(
        (&request.verb, request.subresource()),
        (&Verb::List, &b"log"[..])
    );
    assert!(request.is_long_running());
    let request = info("DELETE", "/apis/apps/v1/namespaces/a/deployments//scale");
    assert_eq!(request.verb, Verb::DeleteCollection);
}

#[test]
fn a_non_resource_verb_is_the_method_in_lower_case_even_if_it_is_an_api_verb() {
    for (method, verb) in [
        ("GET", "get"),
        ("HEAD", "head"),
        ("POST", "post"),
        ("PATCH", "patch"),
        ("PropFind", "propfind"),
        ("List", "list"),
    ] {
        assert_eq!(info(method, "/version").verb, Verb::from(verb), "{method}");
    }
    assert!(info("WATCH", "/version").is_long_running());
}

#[test]
fn selectors_are_kept_for_lists_watches_and_collections_but_not_for_the_old_path_form() {
    let fields = |method: &str, target: &str| {
        info(method, target)
            .list
            .map(|list| list.field_selector.map(String::from))
    };
    let kept = |text: &str| Some(Some(text.to_owned()));
    let pods = "/api/v1/namespaces/team-a/pods";
    let by_name = format!("{pods}?fieldSelector=metadata.name%3Dweb-0");
    assert_eq!(fields("GET", &by_name), kept("metadata.name=web-0"));
    assert_eq!(fields("DELETE", &by_name), kept("metadata.name=web-0"));
    assert_eq!(
        fields("GET", &format!("{by_name}&watch")),
        kept("metadata.name=web-0")
    );
    assert_eq!(
        fields("POST", &format!("{pods}?watch=true&fieldSelector=a=b")),
        None
    );
    assert_eq!(
        fields("GET", &format!("{pods}/web-0?fieldSelector=a=b")),
        None
    );
    assert_eq!(fields("GET", "/version?fieldSelector=a=b"), None);
    assert_eq!(
        fields(
            "GET",
            "/api/v1/watch/pods?fieldSelector=a=b&labelSelector=c"
        ),
        Some(None)
    );
    assert_eq!(fields("GET", "/api/v1/pods?fieldSelector"), kept(""));
    assert_eq!(fields("GET", "/api/v1/pods?x=y"), Some(None));
}

#[test]
fn malformed_selectors_are_kept_as_they_are() {
    assert_eq!(
        options("/api/v1/pods?limit=abc&watch=true"),
        ListOptions {
            decodes: false,
            numbers_decode: false,
            ..ListOptions::default()
        }
    );
    let list = options("/api/v1/pods?fieldSelector=metadata.name=x,oops&watch=true");
    assert_eq!(list.field_selector.as_deref(), Some("metadata.name=x,oops"));
    assert!(!list.decodes);
    let list = options("/api/v1/pods?limit=&fieldSelector=metadata.name=x");
    assert_eq!(list.field_selector.as_deref(), Some("metadata.name=x"));
    assert!(!list.decodes);
}

#[test]
fn the_old_watch_form_has_options_but_takes_no_name_from_them() {
    let request = info(
        "GET",
        "/api/v1/watch/pods?resourceVersion=0&fieldSelector=metadata.name=a,spec.nodeName=n",
    );
    let list = request.list.as_deref().expect("a watch has list options");
    assert_eq!(
        (&*list.resource_version, list.node_name.as_deref()),
        ("0", Some("n"))
    );
    assert_eq!(request.name(), b"");
}

#[test]
fn without_a_query_there_are_no_options() {
    assert_eq!(info("GET", "/api/v1/pods").list, None);
    assert_eq!(info("GET", "/api/v1/pods?").list, None);
    assert_eq!(options("/api/v1/pods?pretty=true"), ListOptions::default());
}

#[test]
fn a_deadline_is_read_unless_the_request_is_long_running() {
    let timeout = |target: &str| info("GET", target).timeout;
    let seconds = |s| Some(Ok(Duration::from_secs(s)));
    assert_eq!(timeout("/api/v1/pods?timeout=34s"), seconds(34));
    assert_eq!(
        timeout("/api/v1/pods/p?timeout=1m%2B"),
        timeout("/version?timeout=1m%2B")
    );
    assert_eq!(timeout("/version?timeout=32s&timeout=1s"), seconds(32));
    assert_eq!(timeout("/version?timeout=-1s"), seconds(0));
    assert_eq!(timeout("/version?timeout=&timeout=1s"), None);
    assert_eq!(timeout("/version"), None);
    let message = r#"time: missing unit in duration "30""#;
    assert_eq!(timeout("/version?timeout=30"), Some(Err(message.into())));
    assert_eq!(timeout("/api/v1/pods?watch&timeout=30"), None);
    assert_eq!(timeout("/api/v1/namespaces/a/pods/p/log?timeout=30"), None);
}

#[test]
fn targets_that_the_server_refuses_are_refused() {
    use InfoError::{BadByte, BadEscape, TooManyParameters, Unclassifiable};
    let many = format!("/api/v1/pods/p?{}", "a&".repeat(10_000));
    for (target, error) in [
        ("/a%", BadEscape),
        ("/a%2", BadEscape),
        ("/a%zz", BadEscape),
        ("/a b", BadByte),
        ("/a\tb", BadByte),
        ("/a\u{7f}", BadByte),
        ("/a?b c", BadByte),
        ("/a?\0", BadByte),
        (many.as_str(), TooManyParameters),
        ("/api/v1/watch", Unclassifiable),
        ("/api/v1/watch//", Unclassifiable),
        ("/api/v1%2fproxy", Unclassifiable),
    ] {
        assert_eq!(
            RequestInfo::from_target("GET", target),
            Err(error),
            "{target:.40}"
        );
    }
    assert!(RequestInfo::from_target("GET", "/a?b=%zz").is_ok());
}

/// `path` with the bytes that `escaped` picks (cyclically) percent-encoded; `%`, spaces and control characters
/// always are.
fn escape(path: &[u8], escaped: &[bool]) -> Vec<u8> {
    let mut picks = escaped.iter().cycle();
    let mut out = Vec::new();
    for &byte in path {
        let pick = picks.next().is_some_and(|&p| p);
        if pick || byte == b'%' || byte <= b' ' || byte == 0x7f {
            out.extend(format!("%{byte:02X}").bytes());
        } else {
            out.push(byte);
        }
    }
    out
}

/// Paths that are likely to have a meaning in the API.
fn path() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => prop::sample::select(vec![
            "api", "apis", "v1", "apps", "watch", "proxy", "namespaces", "status", "finalize", "pods", "log", "a", "",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(word, 0..12).prop_map(|words| {
        let mut path = vec![b'/'];
        path.extend(words.join(&b'/'));
        path
    })
}

fn query() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "watch",
        "limit",
        "fieldSelector",
        "labelSelector",
        "timeout",
        "timeoutSeconds",
        "continue",
        "=",
        "==",
        "!=",
        "&",
        ";",
        ",",
        "%",
        "%2C",
        "%5C",
        "%ff",
        "+",
        "in(",
        ")",
        "metadata.name",
        "spec.nodeName",
        "a",
        "5",
        "s",
        ".",
    ]);
    prop::collection::vec(word, 0..20).prop_map(|words| words.concat())
}

fn method() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get",
    ])
}

#[test]
fn a_path_is_normalized_as_proxies_do_it() {
    for (path, clean) in [
        ("/apis", "/apis"),
        ("//apis///x", "/apis/x"),
        ("/x/../apis/./x/", "/apis/x"),
        ("/../../apis", "/apis"),
        ("/", "/"),
    ] {
        assert_eq!(normalized_path(path), clean, "{path}");
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_every_part_lies_in_the_path(
        method in ".{0,8}",
        path in prop_oneof![path(), prop::collection::vec(any::<u8>(), 0..64)],
        query in prop_oneof![query(), ".{0,64}"],
    ) {
        if let Ok(info) = RequestInfo::parse(&method, &path, Some(&query)) {
            let of_path = [
                info.api_prefix(), info.group(), info.version(), info.namespace(), info.resource(), info.subresource(),
            ];
            for part in of_path.into_iter().chain(info.parts()) {
                prop_assert!(!part.contains(&b'/'));
                prop_assert!(part.is_empty() || info.path().windows(part.len()).any(|window| window == part));
            }
            prop_assert!(!info.name().contains(&b'/'));
            prop_assert_eq!(info.parts().next().unwrap_or_default(), info.resource());
            prop_assert_eq!(info.parts().count() > 0, info.is_resource);
        }
    }

    #[test]
    fn only_the_decoded_path_counts(
        method in method(),
        path in path(),
        query in query(),
        escaped in prop::collection::vec(any::<bool>(), 1..32),
    ) {
        let plain = RequestInfo::parse(method, escape(&path, &[false]), Some(&query));
        let other = RequestInfo::parse(method, escape(&path, &escaped), Some(&query));
        prop_assert_eq!(&plain, &other);
        if let Ok(info) = plain {
            prop_assert_eq!(info.path(), path);
        }
    }

    #[test]
    fn an_escaped_slash_is_a_slash(method in method(), path in path()) {
        let path = escape(&path, &[false]);
        let escaped = String::from_utf8_lossy(&path).replace('/', "%2F");
        prop_assume!(path.is_ascii());
        prop_assert_eq!(RequestInfo::parse(method, path, None), RequestInfo::parse(method, escaped, None));
    }

    #[test]
    fn outer_slashes_change_nothing_but_the_path(method in method(), path in path(), query in query()) {
        let raw = escape(&path, &[false]);
        let wide = [b"//", &raw[..], b"//"].concat();
        let plain = RequestInfo::parse(method, raw, Some(&query));
        let wide = RequestInfo::parse(method, wide, Some(&query));
        match (plain, wide) {
            (Ok(plain), Ok(wide)) if plain.is_resource => {
                prop_assert_eq!(columns(&plain), columns(&wide));
                prop_assert_eq!((plain.list, plain.timeout), (wide.list, wide.timeout));
            }
            (Ok(plain), Ok(wide)) => prop_assert_eq!((plain.is_resource, plain.verb), (wide.is_resource, wide.verb)),
            (plain, wide) => prop_assert_eq!(plain.err(), wide.err()),
        }
    }
}
