//! Servers that answer with errors, or reset requests.

use super::*;
use crate::{pki::Authority, upstream::reset};

#[test]
fn a_server_that_fails_all_it_is_asked_is_left_alone_though_it_says_that_it_is_ready() {
    let fails = TestUpstream::start(Speaks::Http1, |request| async move {
        let mut answer = text("ok");
        if request.uri().path() != "/readyz" {
            *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        }
        answer
    });
    let well = TestUpstream::saying(Speaks::Http1, "served");
    let entries =
        json!([{"url": url(fails.address), "seats": 10}, {"url": url(well.address), "seats": 10}]);
    let gateway = before(&entries, &json!({"upstream": {"spread": "request"}}));
    wait_until("it is ejected", || {
        for user in ["root", "alice"].repeat(5) {
            let _ = get(&gateway, user, "/api/v1/namespaces/a/pods/p");
        }
        !gateway
            .logged("it answers every request with an error, which the others do not")
            .is_empty()
    });
    wait_for_seats(&gateway, 10);
}

#[test]
fn errors_to_one_user_say_nothing_about_a_server() {
    let fails = TestUpstream::start(Speaks::Http1, |request| async move {
        let mut answer = text("ok");
        if request.uri().path().contains("broken") {
            *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        }
        answer
    });
    let well = TestUpstream::saying(Speaks::Http1, "served");
    let entries =
        json!([{"url": url(fails.address), "seats": 10}, {"url": url(well.address), "seats": 10}]);
    let gateway = before(&entries, &json!({"upstream": {"spread": "request"}}));
    // Through more periods than errors are looked at.
    let until = probes(&fails) + 6;
    while probes(&fails) < until {
        let _ = get(&gateway, "alice", "/api/v1/namespaces/a/pods/broken");
    }
    assert_eq!(
        of_server(
            &gateway,
            "fairgate_upstream_server_ejections_total",
            fails.address
        ),
        Some(0)
    );
}

#[test]
fn connections_that_servers_close_for_one_user_say_nothing_about_them() {
    let closes = || {
        TestUpstream::start(Speaks::Http1, |request| async move {
            match request.uri().path() {
                "/broken" => reset(),
                _ => text("ok"),
            }
        })
    };
    let servers = [closes(), closes()];
    let entries = servers
        .each_ref()
        .map(|server| json!({"url": url(server.address), "seats": 10}));
    let gateway = before(&json!(entries), &json!({"upstream": {"spread": "request"}}));
    for _ in 0..20 {
        let response = get(&gateway, "alice", "/broken");
        assert_eq!(status(&response), 503, "{response}");
    }
    let ejections = || {
        let metric = "fairgate_upstream_server_ejections_total";
        let of = |server: &TestUpstream| of_server(&gateway, metric, server.address);
        servers.iter().filter_map(of).sum::<u64>()
    };
    assert_eq!(ejections(), 0, "{:?}", gateway.logged("server"));
    // When it happens to others, too, it is the server.
    wait_until("a server is ejected", || {
        for user in ["alice", "bob"] {
            let _ = get(&gateway, user, "/broken");
        }
        ejections() > 0
    });
}

#[test]
fn requests_of_one_user_that_servers_reset_say_nothing_about_them() {
    let authority = Authority::new("test root");
    let resets = || {
        let speaks = Speaks::Tls(authority.server(&[b"h2", b"http/1.1"]));
        TestUpstream::start(speaks, |request| async move {
            match request.uri().path() {
                "/broken" => reset(),
                _ => text("ok"),
            }
        })
    };
    let servers = [resets(), resets()];
    let entries = servers
        .each_ref()
        .map(|server| json!({"url": format!("https://{}", server.address), "seats": 10}));
    let more = json!({"upstream": {
        "spread": "request", "caFile": "ca.crt", "tlsServerName": "localhost", "tokenFile": "own",
    }});
    let files = vec![("ca.crt", authority.pem()), ("own", "secret".to_owned())];
    let gateway = before_with(&json!(entries), &more, files);
    let until = probes(&servers[0]) + 6;
    while probes(&servers[0]) < until {
        let response = get(&gateway, "alice", "/broken");
        assert_eq!(status(&response), 503, "{response}");
    }
    for server in &servers {
        let ejections = "fairgate_upstream_server_ejections_total";
        assert_eq!(
            of_server(&gateway, ejections, server.address),
            Some(0),
            "{:?}",
            gateway.logged("server")
        );
    }
    assert_eq!(status(&get(&gateway, "bob", "/")), 200);
}
