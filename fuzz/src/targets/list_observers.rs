//! The lengths of lists, as the gateway learns them from responses in JSON and protobuf, plain and compressed.
//!
//! The first byte says which format and how the rest is cut. Properties: the result does not depend on the cuts; the
//! length of a short JSON list is exact; compressed and plain bodies give the same result.

use std::io::{Read as _, Write as _};

use fairgate_core::apf::counts::ListObservation;
use fairgate_proxy::fairness::fuzzing::observe_list;
use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};
use serde_json::Value;

use crate::{Outcome, Target};

/// The target `list_observers`.
pub const TARGET: Target = Target {
    name: "list_observers",
    run,
    dictionary: &[
        "{\"kind\":\"PodList\",",
        "\"apiVersion\":\"v1\",",
        "\"metadata\":{",
        "\"continue\":\"x\"",
        "\"remainingItemCount\":7",
        "\"items\":[",
        "{}",
        "{\"metadata\":{}},",
        "]}",
        "\"items\":null",
        "\\\"",
        "\\\\",
        "\\u0022",
        "k8s\0",
        "\n",
        "\x12",
        "\x1a",
        "\u{7f}",
        "}",
        "null,",
        "\"kind\":\"Table\"",
        "meta.k8s.io/v1",
        "\x0a\x0d\x0a\x02v1\x12\x07PodList",
    ],
};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TARGETS: [&str; 4] = [
    "/api/v1/pods",
    "/api/v1/pods?limit=2",
    "/api/v1/pods?limit=500&continue=x",
    "/apis/apps/v1/namespaces/a/deployments?labelSelector=a%3Db",
];

fn run(data: &[u8]) -> Outcome {
    let (&control, body) = data.split_first().unwrap_or((&0, &[]));
    let target = TARGETS[usize::from(control & 3)];
    let media = if control & 4 == 0 { JSON } else { PROTOBUF };
    let is_gzip = control & 8 != 0;
    let size = usize::from(control >> 4) + 1;

    let encoding = is_gzip.then_some("gzip");
    let whole = observe(target, media, encoding, body, usize::MAX);
    let in_pieces = observe(target, media, encoding, body, size);
    if is_gzip {
        // Whether damage after the sample is noticed depends on the pieces.
        let is_damaged = !is_one_member(body);
        assert!(
            in_pieces == whole || is_damaged,
            "in pieces of {size}: {in_pieces:?}, {whole:?}"
        );
        return Outcome::of((whole.is_some(), is_damaged));
    }
    assert_eq!(in_pieces, whole, "in pieces of {size}");

    assert_eq!(
        observe(target, media, Some("gzip"), &gzip(body), size),
        whole,
        "compressed"
    );
    if let Some(seen) = &whole {
        assert_eq!(seen.decoded_bytes, body.len() as u64);
        if media == JSON
            && let Ok(list) = serde_json::from_slice::<Value>(body)
        {
            agrees(seen, &list);
        }
    }
    Outcome::of(whole.map(|seen| {
        let items = seen.items_in_page.map(|items| items.min(4));
        (
            items,
            seen.remaining_item_count.is_some(),
            seen.from_continue,
            seen.had_selector,
        )
    }))
}

fn observe(
    target: &str,
    media: &str,
    encoding: Option<&str>,
    body: &[u8],
    size: usize,
) -> Option<ListObservation> {
    observe_list(target, media, encoding, body.chunks(size))
}

/// A list that fits into the sample is counted, not estimated.
fn agrees(seen: &ListObservation, list: &Value) {
    let items = match &list["items"] {
        Value::Array(items) => items.len(),
        _ => 0,
    };
    assert_eq!(seen.items_in_page, Some(items as u64), "{list}");
}

fn is_one_member(body: &[u8]) -> bool {
    let mut decoder = GzDecoder::new(body);
    decoder.read_to_end(&mut Vec::new()).is_ok() && decoder.into_inner().is_empty()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder
        .write_all(body)
        .expect("writing to a vector cannot fail");
    encoder.finish().expect("writing to a vector cannot fail")
}
