//! Lists as servers write them, split and compressed in every way.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use proptest::prelude::*;

use super::*;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn headers(content_type: &'static str, coding: Option<&'static str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    headers
}

fn observer_of(target: &str, headers: &HeaderMap) -> Option<ListObserver> {
    let info = RequestInfo::from_target("GET", target).unwrap();
    ListObserver::new(&info, StatusCode::OK, headers)
}

/// What is observed of `body`, which comes in pieces of `piece` bytes.
fn observe(
    target: &str,
    headers: &HeaderMap,
    body: &[u8],
    piece: usize,
) -> Option<ListObservation> {
    let mut observer = observer_of(target, headers)?;
    for data in body.chunks(piece) {
        observer.data(data);
    }
    observer.finish(true)
}

fn of_json(target: &str, body: &str) -> Option<ListObservation> {
    observe(target, &headers(JSON, None), body.as_bytes(), 16 << 10)
}

fn of_protobuf(target: &str, body: &[u8]) -> Option<ListObservation> {
    observe(target, &headers(PROTOBUF, None), body, 16 << 10)
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn pod(number: usize, padding: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"pod-{number}","namespace":"default","annotations":{{"note":"a \"]}},\" \\","pad":"{pad}"}}}},"spec":{{"containers":[{{"name":"c","args":["[","{{"]}}]}},"status":{{}}}}"#,
        pad = "x".repeat(padding)
    )
}

fn pods(count: usize, padding: usize) -> String {
    let pods: Vec<String> = (0..count).map(|number| pod(number, padding)).collect();
    pods.join(",")
}

/// A list of a built-in resource.
fn pod_list(metadata: &str, pods: &str) -> String {
    format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"17"{metadata}}},"items":[{pods}]}}
"#
    )
}

/// A list of a custom resource: keys are sorted.
fn widget_list(metadata: &str, widgets: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","items":[{widgets}],"kind":"WidgetList","metadata":{{{metadata}"resourceVersion":"17"}}}}
"#
    )
}

/// A length-delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    bytes.extend(varint(content.len() as u64));
    bytes.extend_from_slice(content);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

fn typed(api_version: &str, kind: &str, list: &[u8]) -> Vec<u8> {
    let mut of_type = field(1, api_version.as_bytes());
    of_type.extend(field(2, kind.as_bytes()));
    let mut bytes = b"k8s\0".to_vec();
    bytes.extend(field(1, &of_type));
    bytes.extend(field(2, list));
    bytes.extend(field(3, b""));
    bytes.extend(field(4, b""));
    bytes
}

fn list_metadata(token: &str, remaining: Option<u64>) -> Vec<u8> {
    let mut metadata = field(1, b"");
    metadata.extend(field(2, b"17"));
    metadata.extend(field(3, token.as_bytes()));
    if let Some(remaining) = remaining {
        metadata.push(4 << 3);
        metadata.extend(varint(remaining));
    }
    field(1, &metadata)
}

/// A list of pods in protobuf, of slightly different sizes around `size`.
fn protobuf_list(metadata: Vec<u8>, count: usize, size: usize) -> Vec<u8> {
    let mut list = metadata;
    for number in 0..count {
        list.extend(field(2, &vec![0x12; size + number % 7]));
    }
    typed("v1", "PodList", &list)
}

fn whole(items: u64, bytes: usize) -> ListObservation {
    ListObservation {
        items_in_page: Some(items),
        decoded_bytes: bytes as u64,
        ..ListObservation::default()
    }
}

#[test]
fn a_small_list_is_counted_wherever_it_is_cut() {
    let protobuf = protobuf_list(list_metadata("next", Some(9)), 3, 200);
    let pods = pods(3, 10);
    let page = r#","continue":"next","remainingItemCount":9"#;
    let bodies = [
        (JSON, pod_list(page, &pods).into_bytes()),
        (
            JSON,
            widget_list(r#""continue":"next","remainingItemCount":9,"#, &pods).into_bytes(),
        ),
        (PROTOBUF, protobuf),
    ];
    for (content_type, body) in bodies {
        let expected = ListObservation {
            remaining_item_count: Some(9),
            limit: Some(3),
            ..whole(3, body.len())
        };
        let packed = gzip(&body);
        for (coding, bytes) in [(None, &body), (Some("gzip"), &packed)] {
            let headers = headers(content_type, coding);
            let target = "/api/v1/pods?limit=3";
            for piece in 1..=bytes.len() {
                let seen = observe(target, &headers, bytes, piece);
                assert_eq!(seen, Some(expected), "{content_type} in pieces of {piece}");
            }
            for cut in 0..bytes.len() {
                let mut observer = observer_of(target, &headers).unwrap();
                observer.data(&bytes[..cut]);
                observer.data(&bytes[cut..]);
                assert_eq!(observer.finish(true), Some(expected));
            }
        }
    }
}

#[test]
fn a_protobuf_list_of_any_length_is_counted() {
    let body = protobuf_list(list_metadata("", None), 5000, 900);
    let seen = of_protobuf("/api/v1/pods", &body);
    assert_eq!(seen, Some(whole(5000, body.len())));
    let empty = protobuf_list(list_metadata("", None), 0, 0);
    let seen = of_protobuf("/api/v1/pods", &empty);
    assert_eq!(seen, Some(whole(0, empty.len())));
}

#[test]
fn a_long_json_list_is_estimated_from_its_first_objects() {
    for body in [
        pod_list("", &pods(3000, 500)),
        widget_list("", &pods(3000, 500)),
    ] {
        for piece in [100, 16 << 10, body.len()] {
            let seen =
                observe("/api/v1/pods", &headers(JSON, None), body.as_bytes(), piece).unwrap();
            let items = seen.items_in_page.unwrap();
            assert!(items.abs_diff(3000) <= 30, "{items} in pieces of {piece}");
            assert_eq!(seen.decoded_bytes, body.len() as u64);
            assert!(!seen.from_continue);
        }
    }
}

#[test]
fn a_long_gzipped_list_is_estimated_from_its_head_and_trailer() {
    let protobuf = protobuf_list(list_metadata("", None), 3000, 900);
    let json = pod_list("", &pods(3000, 500)).into_bytes();
    for (content_type, body) in [(JSON, json), (PROTOBUF, protobuf)] {
        let packed = gzip(&body);
        for piece in [1, 1000, packed.len()] {
            let headers = headers(content_type, Some("gzip"));
            let seen = observe("/api/v1/pods", &headers, &packed, piece).unwrap();
            let items = seen.items_in_page.unwrap();
            assert!(items.abs_diff(3000) <= 30, "{items}");
            assert_eq!(seen.decoded_bytes, body.len() as u64);
        }
    }
}

#[test]
fn objects_larger_than_the_sample_are_read_to_the_first_ones_end() {
    let body = pod_list("", &pods(10, 100_000));
    let seen = of_json("/api/v1/pods", &body).unwrap();
    assert_eq!(seen.items_in_page, Some(10));
    // Too large even for that: only the number of bytes is known.
    let body = pod_list("", &pods(10, 200_000));
    let seen = of_json("/api/v1/pods", &body).unwrap();
    assert_eq!(seen.items_in_page, None);
    assert_eq!(seen.decoded_bytes, body.len() as u64);
}

#[test]
fn a_page_that_is_not_the_last_is_full() {
    let metadata = r#","continue":"next","remainingItemCount":9500"#;
    let body = pod_list(metadata, &pods(500, 500));
    let expected = ListObservation {
        remaining_item_count: Some(9500),
        limit: Some(500),
        ..whole(500, body.len())
    };
    assert_eq!(of_json("/api/v1/pods?limit=500", &body), Some(expected));
    let later = ListObservation {
        from_continue: true,
        ..expected
    };
    let target = "/api/v1/pods?limit=500&continue=abc";
    assert_eq!(of_json(target, &body), Some(later));
    // The metadata of custom resources comes last.
    let metadata = r#""continue":"next","remainingItemCount":9500,"#;
    let body = widget_list(metadata, &pods(500, 500));
    let expected = ListObservation {
        decoded_bytes: body.len() as u64,
        ..expected
    };
    let target = "/apis/example.com/v1/widgets?limit=500";
    for piece in [7, 1000, 1_000_000] {
        let seen = observe(target, &headers(JSON, None), body.as_bytes(), piece);
        assert_eq!(seen, Some(expected), "in pieces of {piece}");
    }
}

#[test]
fn a_page_that_may_not_be_the_last_is_a_lower_bound() {
    // The server says that there are more, and not how many.
    let body = pod_list(r#","continue":"next""#, &pods(2, 0));
    let seen = of_json("/api/v1/pods?limit=2", &body).unwrap();
    assert_eq!(seen.items_in_page, Some(2));
    assert!(seen.from_continue);
    // Its metadata was not read, and a limit was given.
    let packed = gzip(widget_list("", &pods(500, 500)).as_bytes());
    let headers = headers(JSON, Some("gzip"));
    let seen = observe("/api/v1/pods?limit=500", &headers, &packed, 1000).unwrap();
    assert!(seen.items_in_page.unwrap().abs_diff(500) <= 10);
    assert!(seen.from_continue);
    let seen = observe("/api/v1/pods", &headers, &packed, 1000).unwrap();
    assert!(!seen.from_continue);
}

#[test]
fn a_limit_that_the_server_ignores_makes_no_page() {
    let body = pod_list("", &pods(5, 0));
    let seen = of_json("/api/v1/pods?limit=2&resourceVersion=0", &body).unwrap();
    assert_eq!(seen.items_in_page, Some(5));
    assert!(!seen.from_continue);
}

#[test]
fn selections_are_distinguished() {
    let body = pod_list("", &pods(5, 0));
    for query in ["labelSelector=a%3Db", "fieldSelector=metadata.name%3Dp"] {
        let seen = of_json(&format!("/api/v1/pods?{query}"), &body).unwrap();
        assert!(seen.had_selector);
        assert_eq!(seen.items_in_page, Some(5));
    }
}

#[test]
fn an_empty_list_has_no_objects() {
    for items in ["[]", "null", "[ ]"] {
        let body =
            format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":{items}}}"#);
        let seen = of_json("/api/v1/pods", &body);
        assert_eq!(seen, Some(whole(0, body.len())), "{items}");
    }
}

#[test]
fn white_space_and_unknown_fields_do_not_matter() {
    let body = r#"
        { "metadata" : { "shard" : { "continue" : "no", "x" : [ 1 ] } , "remainingItemCount" : 4 ,
          "continue" : "yes" , "selfLink" : "" } ,
          "more" : { "items" : [ {}, {} ], "kind" : "Table" } ,
          "items" : [ { } , { "items" : [ { } ] } ] , "apiVersion" : "v1" , "kind" : "PodList" }"#;
    let seen = of_json("/api/v1/pods?limit=2", body).unwrap();
    assert_eq!(seen.items_in_page, Some(2));
    assert_eq!(seen.remaining_item_count, Some(4));
}

#[test]
fn what_is_not_a_list_of_objects_is_not_observed() {
    for (api_version, kind) in [
        ("meta.k8s.io/v1", "Table"),
        ("meta.k8s.io/v1", "PartialObjectMetadataList"),
        ("v1", "Status"),
    ] {
        let body = format!(
            r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{}},"items":[{{}}]}}"#
        );
        assert_eq!(of_json("/api/v1/pods", &body), None, "{kind}");
        let mut list = list_metadata("", None);
        list.extend(field(2, b"xx"));
        let body = typed(api_version, kind, &list);
        assert_eq!(of_protobuf("/api/v1/pods", &body), None, "{kind}");
    }
    for body in [
        "",
        "{}",
        "[]",
        "404 page not found",
        r#"{"kind":"PodList"}"#,
    ] {
        assert_eq!(of_json("/api/v1/pods", body), None, "{body}");
        assert_eq!(of_protobuf("/api/v1/pods", body.as_bytes()), None, "{body}");
    }
}

#[test]
fn only_complete_responses_to_list_requests_are_observed() {
    let plain = headers(JSON, None);
    let body = pod_list("", &pods(2, 0));
    let mut observer = observer_of("/api/v1/pods", &plain).unwrap();
    observer.data(body.as_bytes());
    assert_eq!(observer.finish(false), None);

    for target in [
        "/api/v1/pods?watch=true",
        "/api/v1/namespaces/a/pods/b",
        "/apis/apps/v1",
        "/healthz",
    ] {
        assert!(observer_of(target, &plain).is_none(), "{target}");
    }
    let info = RequestInfo::from_target("GET", "/api/v1/pods").unwrap();
    assert!(ListObserver::new(&info, StatusCode::GONE, &plain).is_none());
    let info = RequestInfo::from_target("POST", "/api/v1/pods").unwrap();
    assert!(ListObserver::new(&info, StatusCode::OK, &plain).is_none());
}

#[test]
fn only_known_encodings_are_observed() {
    for (content_type, coding, is_known) in [
        ("application/json; charset=utf-8", None, true),
        ("Application/JSON", Some("identity"), true),
        (PROTOBUF, Some("GZIP"), true),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", None, false),
        ("application/yaml", None, false),
        ("application/cbor", None, false),
        (JSON, Some("br"), false),
        (JSON, Some("gzip, gzip"), false),
    ] {
        let observer = observer_of("/api/v1/pods", &headers(content_type, coding));
        assert_eq!(observer.is_some(), is_known, "{content_type} {coding:?}");
    }
    let mut twice = headers(JSON, Some("gzip"));
    twice.append(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert!(observer_of("/api/v1/pods", &twice).is_none());
    assert!(observer_of("/api/v1/pods", &HeaderMap::new()).is_none());
}

#[test]
fn an_impossible_gzip_trailer_is_ignored() {
    let body = pod_list("", &pods(3000, 500));
    let packed = gzip(body.as_bytes());
    let gzipped = headers(JSON, Some("gzip"));
    for lie in [0, 1000, u32::MAX] {
        let mut packed = packed.clone();
        let length = packed.len();
        packed[length - 4..].copy_from_slice(&lie.to_le_bytes());
        assert_eq!(
            observe("/api/v1/pods", &gzipped, &packed, 1000),
            None,
            "{lie}"
        );
    }
    // Several members: the trailer has the size of the last one only.
    let mut members = gzip(pod_list("", &pods(2, 0)).as_bytes());
    members.extend(gzip(b"more"));
    assert_eq!(observe("/api/v1/pods", &gzipped, &members, 1000), None);
    // A header with a file name is not read.
    let mut named = packed;
    named[3] = 8;
    assert_eq!(observe("/api/v1/pods", &gzipped, &named, 1000), None);
}

#[test]
fn wrong_lengths_do_no_harm() {
    let good = protobuf_list(list_metadata("", None), 3, 50);
    let huge = varint(u64::MAX);
    for start in 4..good.len().min(60) {
        let mut bad = good[..start].to_vec();
        bad.extend_from_slice(&huge);
        bad.extend_from_slice(&good[start..]);
        let _ = of_protobuf("/api/v1/pods", &bad);
    }
    let mut list = list_metadata("", None);
    list.extend([2 << 3 | 2]);
    list.extend(varint(1 << 40));
    let bad = typed("v1", "PodList", &list);
    assert_eq!(of_protobuf("/api/v1/pods", &bad), None);
    // The content ends within a field.
    for odd in [
        &[0x80][..],
        &[2 << 3 | 2],
        &[2 << 3 | 2, 0x80],
        &[3 << 3, 0x80],
    ] {
        let mut list = list_metadata("", None);
        list.extend(field(2, b"xx"));
        list.extend_from_slice(odd);
        let bad = typed("v1", "PodList", &list);
        assert_eq!(of_protobuf("/api/v1/pods", &bad), None, "{odd:?}");
    }
    // Unreasonably long list metadata is not kept.
    let long = protobuf_list(list_metadata(&"x".repeat(5000), None), 3, 50);
    assert_eq!(of_protobuf("/api/v1/pods", &long), None);
}

#[test]
fn a_deep_document_and_stray_brackets_do_no_harm() {
    let mut body = String::from(r#"{"items":["#);
    body.push_str(&"[".repeat(200_000));
    assert_eq!(of_json("/api/v1/pods?limit=1", &body), None);
    assert_eq!(of_json("/api/v1/pods", "]}]}"), None);
    assert_eq!(
        of_json("/api/v1/pods", r#"{"items":[]}]}"#)
            .unwrap()
            .items_in_page,
        Some(0)
    );
}

proptest! {
    #[test]
    fn any_bytes_do_no_harm(
        body in proptest::collection::vec(any::<u8>(), 0..2000),
        piece in 1_usize..500,
        target in prop::sample::select(vec!["/api/v1/pods", "/api/v1/pods?limit=3"]),
    ) {
        let packed = gzip(&body);
        for content_type in [JSON, PROTOBUF] {
            let _ = observe(target, &headers(content_type, None), &body, piece);
            let _ = observe(target, &headers(content_type, Some("gzip")), &body, piece);
            let _ = observe(target, &headers(content_type, Some("gzip")), &packed, piece);
        }
    }

    #[test]
    fn a_damaged_list_does_no_harm(
        damage in proptest::collection::vec((0.0..1.0_f64, any::<u8>()), 1..8),
        piece in 1_usize..500,
        is_packed in any::<bool>(),
    ) {
        let metadata = r#","continue":"next","remainingItemCount":9"#;
        for (content_type, body) in [
            (JSON, pod_list(metadata, &pods(4, 20)).into_bytes()),
            (JSON, widget_list("", &pods(4, 20)).into_bytes()),
            (PROTOBUF, protobuf_list(list_metadata("next", Some(9)), 4, 20)),
        ] {
            let mut bytes = if is_packed { gzip(&body) } else { body };
            for &(place, byte) in &damage {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss,
                    clippy::cast_precision_loss, reason = "positions in a short body")]
                let index = (place * bytes.len() as f64) as usize;
                bytes[index] = byte;
            }
            let headers = headers(content_type, is_packed.then_some("gzip"));
            let _ = observe("/api/v1/pods?limit=4", &headers, &bytes, piece);
        }
    }

    #[test]
    fn pieces_make_no_difference(
        body in "[\\[\\]{}\",: a\\\\]{0,200}",
        sizes in proptest::collection::vec(1_usize..20, 1..20),
    ) {
        let body = format!(r#"{{"kind":"PodList","items":[{body}"#);
        let plain = headers(JSON, None);
        let at_once = observe("/api/v1/pods", &plain, body.as_bytes(), body.len());
        let mut observer = observer_of("/api/v1/pods", &plain).unwrap();
        let mut rest = body.as_bytes();
        for &size in sizes.iter().cycle() {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            observer.data(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(observer.finish(true), at_once);
    }
}
