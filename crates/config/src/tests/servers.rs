//! Several servers behind the gateway: their seats, and what contradicts.

use super::{validation::assert_single_findings, *};

#[test]
fn several_servers_have_seats_of_their_own_or_equal_parts() {
    let urls = [
        "https://10.0.0.1:6443",
        "https://10.0.0.2:6443",
        "https://10.0.0.3:6443",
    ];
    let seats = |reading: &ConfigReading| -> Vec<u32> {
        reading
            .config
            .seats_of_servers()
            .map(|(_, seats)| seats)
            .collect()
    };
    let equal = read(
        json!({"upstream": {"servers": urls.map(|url| json!({"url": url}))}, "flowControl": {"totalSeats": 100}}),
    );
    assert_eq!(seats(&equal), [34, 33, 33]);
    let own = urls
        .iter()
        .zip([100, 200, 300])
        .map(|(url, seats)| json!({"url": url, "seats": seats}));
    let own = read(json!({"upstream": {"servers": own.collect::<Vec<_>>()}}));
    assert_eq!(seats(&own), [100, 200, 300]);
    assert_eq!(own.config.flow_control.total_seats, 600);
    assert_eq!(own.config.upstream.url.host, "10.0.0.1");
    let shown = "[10.0.0.1:6443 (100 seats), 10.0.0.2:6443 (200 seats), 10.0.0.3:6443 (300 seats)]";
    assert_eq!(
        own.config
            .change(&equal.config, "upstream.servers")
            .unwrap()
            .0,
        shown
    );
}

#[test]
fn servers_that_contradict_each_other_or_other_keys_are_reported() {
    let two = |more: Value| {
        let mut second = json!({"url": "http://127.0.0.2:1"});
        second
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([{"url": "http://127.0.0.1:1"}, second])
    };
    let seats = json!([{"url": "http://127.0.0.1:1", "seats": 70}, {"url": "http://127.0.0.2:1", "seats": 30}]);
    assert_single_findings(
        "servers",
        &[
            (
                json!({"upstream": {"servers": two(json!({})), "url": "http://127.0.0.3:1"}}),
                Severity::Error,
                "upstream.url",
            ),
            (
                json!({"upstream": {"servers": seats}, "flowControl": {"totalSeats": 100}}),
                Severity::Error,
                "flowControl.totalSeats",
            ),
            (
                json!({"upstream": {"servers": two(json!({"seats": 5}))}}),
                Severity::Error,
                "upstream.servers[0].seats",
            ),
            (
                json!({"upstream": {"servers": two(json!({"url": "http://127.0.0.1:1"}))}}),
                Severity::Error,
                "upstream.servers[1].url",
            ),
            (
                json!({"upstream": {"servers": two(json!({"url": "https://127.0.0.2:1"}))}}),
                Severity::Error,
                "upstream.servers[1].url",
            ),
            (
                json!({"upstream": {"servers": two(json!({"tlsServerName": "a"}))}}),
                Severity::Error,
                "upstream.servers[1].url",
            ),
            (
                json!({"upstream": {"spread": "request"}}),
                Severity::Warning,
                "upstream.spread",
            ),
        ],
    );
    let sum = read(json!({"upstream": {"servers": seats}, "flowControl": {"totalSeats": 100}}));
    let message = &sum.findings[0].message;
    assert_eq!(message, "set, and upstream.servers have 100 seats together");
}

#[test]
fn an_entry_of_servers_that_cannot_be_read_is_named_with_what_is_wrong() {
    for (entry, says) in [
        (json!("https://h"), "[1]: \"https://h\" is not a mapping"),
        (json!({"seats": 3}), "[1]: it has no url"),
        (
            json!({"url": "h:1"}),
            "[1]: \"h:1\" does not begin with https:// or http://",
        ),
        (
            json!({"url": "http://127.0.0.2:1", "seats": 0}),
            "[1]: seats: 0 is not a whole number from 1 to 10000000",
        ),
        (
            json!({"url": "http://127.0.0.2:1", "seat": 1}),
            "[1]: \"seat\" is not a key of a server",
        ),
        (
            json!({"url": "http://127.0.0.2:1", "resolve": "yes"}),
            "[1]: \"yes\" is neither true nor false",
        ),
    ] {
        let reading =
            read(json!({"upstream": {"servers": [{"url": "http://127.0.0.1:1"}, entry]}}));
        let found = reading
            .findings
            .iter()
            .find(|finding| finding.field == "upstream.servers");
        assert_eq!(found.map(|finding| &*finding.message), Some(says));
    }
    let reading = read(json!({"upstream": {"servers": {"url": "http://127.0.0.1:1"}}}));
    assert!(reading.findings[0].message.ends_with("is not a list"));
}
