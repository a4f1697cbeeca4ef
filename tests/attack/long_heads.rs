//! Requests whose heads are as long as they may be, and hard to read: thousands of parameters of a media type, clauses of `Accept`,
//! requirements of a selector. Whatever reads them must not take longer than a turn: a head counts against no limit of bodies or seats.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::{
    Attack,
    gateway::Setup,
    hard_bodies::{JSON, MAPS, MERGE, resource},
    hostile::{HostileClients, HostileRequest, Responses},
    others::Mix,
    policies::{cheap, count, wait_until_in_force},
    report::Outcome,
    scene::{Played, Scene},
    time::ms,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "long-content-types",
        point: "27.2",
        about: "writes with a Content-Type of 900 kB: thousands of parameters, quotes, spaces",
        play: || play(content_types),
    },
    Attack {
        name: "long-content-types-reviews",
        point: "27.2",
        about: "the same with a review that the gateway answers itself, which every user may request",
        play: || end(judged(played("standalone", review_types))),
    },
    Attack {
        name: "long-accepts",
        point: "27.2",
        about: "the same with Accept, for objects, lists, discovery and OpenAPI",
        play: || play(accepts),
    },
    Attack {
        name: "long-headers",
        point: "27.2",
        about: "500 kB of each other header that anything between a client and an API server reads",
        play: || play(headers),
    },
    Attack {
        name: "headers-longer-as-sent",
        point: "27.2",
        about: "heads that HTTP/2 makes longer than API servers take: 700 kB of backslashes, a light line and then a heavy one",
        play: play_longer_as_sent,
    },
    Attack {
        name: "long-targets",
        point: "27.2",
        about: "the same with targets of 64 kB: selectors, parameters, escapes, segments of paths",
        play: || play(targets),
    },
];

/// How long each header is. A head may have 1 MiB.
const LONG: usize = 900_000;
/// How long each of the other headers is, which are forwarded. Decoding, checking and encoding one of 900 kB takes up to 25 ms of a turn: in
/// proportion, but more than is judged here.
const FORWARDED: usize = 500_000;
/// How many backslashes there are in a head that is longer than a server takes only because of HTTP/2's code: 19 bits each.
const BACKSLASHES: usize = 700_000;
/// A light line, and a heavy one. What a server counts of both is within its limit, and so is their code. But the light one leaves 38 kB of the limit,
/// and the code of the heavy one, which is all that is in the last of four frames of 256 KiB, has more than twice as much.
const LIGHT: usize = 1_010_000;
const HEAVY: usize = 37_000;
/// How long each target is. What is longer than 64 KiB is no target.
const TARGET: usize = 64_000;
/// How long a label selector is. One of 64 kB has 3 200 requirements, which take up to 14 ms of a turn: in proportion, but more than is judged here.
const SELECTOR: usize = 32_000;
/// An object that the gateway hosts, and its collection.
const HOSTED: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt";
const HOSTED_ALL: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const MAP: &str = "/api/v1/namespaces/a/configmaps/m";
/// What is longer in the code of HTTP/2 than it looks. A client that sends such a head over HTTP/2 sends more frames than the gateway takes. One
/// that sends it over HTTP/1 must not have the gateway send it over a connection that others share: the upstream would close that.
const QUOTES: &str = "quotes";
/// All that an API server may respond to a head that it does not like.
const ANY: &[u16] = &[
    200, 201, 400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 417, 422, 431, 501,
];
/// What long heads may take, for each user half of it (`limits.longHeaderBytes`).
const MEMORY: u64 = 256 << 20;

fn play(requests: fn() -> Vec<HostileRequest>) -> Outcome {
    end(judged(played("overlay", requests)))
}

fn judged(mut played: Played<Responses>) -> Played<Responses> {
    played.check_other_clients();
    played
}

/// Turns are not judged: decoding so much takes some time, in proportion.
fn play_longer_as_sent() -> Outcome {
    let mut played = played("overlay", longer_as_sent);
    played.others_are_served();
    let closed = played.scene.upstream.ended_connections();
    played.outcome.check(
        "the upstream ends no connection",
        closed == 0,
        format!("it ended {closed} connections"),
    );
    end(played)
}

fn played(mode: &str, requests: fn() -> Vec<HostileRequest>) -> Played<Responses> {
    let mut config = json!({
        "mode": mode,
        "admission": {"mode": "enforce", "policies": {"files": ["admission"]}},
    });
    if mode == "standalone" {
        // What others read there.
        config["hostedApi"] = json!({"readerGroups": ["system:authenticated"]});
    }
    let setup = Setup {
        config,
        more_attackers: 4,
        files: vec![("admission/policies.yaml".to_owned(), cheap())],
        ..Setup::default()
    };
    let mix = Mix {
        read: HOSTED,
        ..Mix::default()
    };
    let scene = Scene::new(&setup, mix);
    wait_until_in_force(&scene.gateway, count(&cheap()), ms(20));
    let requests = requests();
    let clients = HostileClients {
        clients: 4,
        users: 4,
        // Each over HTTP/1 and HTTP/2: which client sends it is chance.
        requests: 4 * requests.len(),
    };
    scene.play(async |scene| {
        let goal = scene.goal(ms(4000));
        clients.send(scene.gateway.address, requests, goal).await
    })
}

fn end(mut played: Played<Responses>) -> Outcome {
    played.report_memory(MEMORY);
    played.found.may_lose_over_http2(QUOTES);
    played.found.check(&mut played.outcome);
    played.outcome
}

/// A text of this length: the beginning, and as many pieces as there is room for.
fn filled(begin: &str, piece: &str, length: usize) -> String {
    let pieces = (length - begin.len()) / piece.len();
    format!("{begin}{}", piece.repeat(pieces))
}

/// The same with pieces that differ: in each, `#` is a number.
fn numbered(begin: &str, piece: &str, length: usize) -> String {
    let pieces = (length - begin.len()) / (piece.len() + 5);
    let pieces = (0..pieces).map(|number| piece.replace('#', &format!("{number:06}")));
    format!("{begin}{}", pieces.collect::<String>())
}

/// A request for a review of what its user may do.
fn review() -> (Method, &'static str, &'static str, Value) {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}},
    });
    (Method::POST, REVIEWS, JSON, review)
}

/// Writes of a forwarded object and of a hosted one, and a review.
fn writes() -> [(Method, &'static str, &'static str, Value); 5] {
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {}});
    let schema = resource("FlowSchema", json!({}));
    [
        (Method::POST, MAPS, JSON, map),
        (Method::PATCH, MAP, MERGE, json!({})),
        (Method::POST, HOSTED_ALL, JSON, schema),
        (Method::PATCH, HOSTED, MERGE, json!({})),
        review(),
    ]
}

fn content_types() -> Vec<HostileRequest> {
    with_long_types(&writes())
}

fn review_types() -> Vec<HostileRequest> {
    with_long_types(&[review()])
}

fn with_long_types(writes: &[(Method, &'static str, &'static str, Value)]) -> Vec<HostileRequest> {
    let mut all = Vec::new();
    for (method, path, kind, body) in writes {
        let values = [
            ("parameters", numbered(kind, ";#=1", LONG)),
            ("one parameter", filled(kind, ";a=1", LONG)),
            (QUOTES, filled(&format!("{kind};a=\""), "\\\"", LONG) + "\""),
            ("spaces", filled(&format!("{kind};a=1"), " ", LONG)),
            ("semicolons", filled(kind, "; ", LONG)),
            ("commas", filled(kind, ",", LONG)),
            ("a long name", filled("a/", "A", LONG)),
        ];
        all.extend(values.into_iter().map(|(name, value)| HostileRequest {
            name,
            method: method.clone(),
            path: (*path).into(),
            content_type: value.into(),
            more: None,
            body: Bytes::from(body.to_string()),
            codes: ANY,
        }));
    }
    all
}

fn get(
    name: &'static str,
    path: impl Into<Cow<'static, str>>,
    more: Option<(&'static str, Cow<'static, str>)>,
) -> HostileRequest {
    HostileRequest {
        name,
        method: Method::GET,
        path: path.into(),
        content_type: "".into(),
        more,
        body: Bytes::new(),
        codes: ANY,
    }
}

fn accepts() -> Vec<HostileRequest> {
    let values = [
        ("clauses", filled("a/b", ",a/b", LONG)),
        ("empty clauses", filled("", ",", LONG)),
        ("qualities", numbered("a/b", ",a/b;q=0.#", LONG)),
        ("parameters", numbered("application/json", ";#=1", LONG)),
        (
            "tables",
            filled("a/b", ",application/json;as=Table;v=v1;g=x", LONG),
        ),
        ("any", filled("*/*", ";q=0,*/*", LONG)),
        ("spaces", filled("a/b,", " ", LONG)),
    ];
    let paths = [
        MAPS,
        HOSTED,
        HOSTED_ALL,
        "/apis",
        "/apis/flowcontrol.apiserver.k8s.io/v1",
        "/openapi/v2",
        "/openapi/v3",
    ];
    let of_all = paths.into_iter().flat_map(|path| {
        values
            .clone()
            .map(|(name, value)| get(name, path, Some(("accept", value.into()))))
    });
    of_all.collect()
}

/// Headers that a proxy or a server may read, each with what is hard to read in it.
fn headers() -> Vec<HostileRequest> {
    const NAMES: &[&str] = &[
        "accept-encoding",
        "user-agent",
        "cookie",
        "range",
        "if-none-match",
        "if-match",
        "connection",
        "upgrade",
        "expect",
        "te",
        "trailer",
        "via",
        "forwarded",
        "x-forwarded-for",
        "traceparent",
        "tracestate",
        "baggage",
        "prefer",
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-scopes",
        "x-remote-user",
        "x-remote-group",
        "x-remote-extra-scopes",
        "sec-websocket-protocol",
        "content-encoding",
        "content-disposition",
    ];
    let mut all = Vec::new();
    for header in NAMES.iter().copied() {
        let values = [
            filled("a", ",a", FORWARDED),
            numbered("a", ";a#=1", FORWARDED),
            filled("a", "=a", FORWARDED),
            filled("/", "%2f", FORWARDED),
        ];
        // Each kind of value is sent to what is forwarded and to what is hosted.
        for (value, path) in values.into_iter().zip([MAPS, HOSTED].into_iter().cycle()) {
            all.push(get(header, path, Some((header, value.into()))));
        }
        let value = filled("\"", "\\\"", FORWARDED);
        all.push(get(QUOTES, MAPS, Some((header, value.into()))));
        let value = filled("a", ", a", FORWARDED);
        all.push(get(header, HOSTED, Some((header, value.into()))));
    }
    all
}

/// Heads that would have a server close the connection on which the gateway forwards the requests of others, too: their requests fail, and those
/// of their watches that share it end.
fn longer_as_sent() -> Vec<HostileRequest> {
    let backslashes = "\\".repeat(BACKSLASHES);
    // 6 2/9 bits a character: the code of this line ends just within the third frame.
    let light = "bbbbbbbBB".repeat(LIGHT / 9);
    let heavy = "\\".repeat(HEAVY);
    let paths = [MAPS, "/api/v1/namespaces/a/configmaps?watch=true"];
    let of_each = paths.into_iter().flat_map(|path| {
        let quotes = get(QUOTES, path, Some(("x-heavy", backslashes.clone().into())));
        let last = get("heavy last", path, Some(("x-heavy", heavy.clone().into())));
        let light = light.clone().into();
        // It is sent before the other one, and a server reads it only if there is a body.
        let last = HostileRequest {
            content_type: light,
            ..last
        };
        [quotes, last]
    });
    of_each.collect()
}

fn targets() -> Vec<HostileRequest> {
    let queries = [
        ("label names", filled("labelSelector=a", ",a", SELECTOR)),
        (
            "labels",
            numbered("labelSelector=a", ",a#+notin+(b)", SELECTOR),
        ),
        (
            "values of a label",
            numbered("labelSelector=a+in+(a", ",a#", SELECTOR) + ")",
        ),
        ("parentheses", filled("labelSelector=a+in+(", "(", SELECTOR)),
        (
            "fields",
            filled("fieldSelector=metadata.name=a", ",metadata.name=a", TARGET),
        ),
        (
            "escapes of a field",
            filled("fieldSelector=metadata.name=", "%5C%5C", TARGET),
        ),
        ("parameters", numbered("a=1", "&a#=1", TARGET)),
        ("empty parameters", filled("a", "&", TARGET)),
        ("one parameter", filled("limit=1", "&limit=1", TARGET)),
        ("escapes", filled("a=", "%61", TARGET)),
        ("a continue token", filled("continue=", "YWFh", TARGET)),
        ("a time-out", filled("timeout=", "1h", TARGET)),
        ("a version", filled("resourceVersion=", "1", TARGET)),
        (
            "a match of versions",
            filled("resourceVersion=1&resourceVersionMatch=", "Exact", TARGET),
        ),
        (
            "a field manager",
            filled("fieldManager=", "%E2%82%AC", TARGET),
        ),
    ];
    let mut all = Vec::new();
    for path in [MAPS, HOSTED_ALL] {
        for (name, query) in queries.clone() {
            all.push(get(name, format!("{path}?{query}"), None));
        }
        for (name, piece) in [
            ("segments", "/a"),
            ("empty segments", "/"),
            ("escaped segments", "%2f"),
            ("dots", "/.."),
        ] {
            all.push(get(name, filled(path, piece, TARGET), None));
        }
    }
    all
}
