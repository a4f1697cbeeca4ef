//! A server that answers `/readyz` and lets requests hang.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::client::HANG;

/// A server that answers probes, and other requests only while it is well.
fn sometimes_hanging(is_well: &tokio::sync::watch::Sender<bool>) -> TestUpstream {
    let well = is_well.subscribe();
    TestUpstream::start(Speaks::Http1, move |request| {
        let mut well = well.clone();
        async move {
            if request.uri().path() != "/readyz" {
                let _ = well.wait_for(|is_well| *is_well).await;
            }
            text("served")
        }
    })
}

/// Has clients of these users ask for pods, each one after the other, while `test` runs.
fn while_users_ask(gateway: &GatewayProcess, users: &[&str], test: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also if the test fails: nothing else ends the clients.
        let _end = Ending(&is_over);
        for (number, user) in users.iter().enumerate() {
            let is_over = &is_over;
            scope.spawn(move || {
                let target = format!("/api/v1/namespaces/n{number}/pods/p");
                while !is_over.load(Ordering::SeqCst) {
                    let _ = get(gateway, user, &target);
                    thread::sleep(PAUSE);
                }
            });
        }
        test();
    });
}

/// Between two requests of a client, so that what the servers have seen stays small.
const PAUSE: Duration = Duration::from_millis(20);

struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_server_that_lets_requests_hang_is_left_alone_and_tried_with_one_at_a_time() {
    let (is_well, _) = tokio::sync::watch::channel(false);
    let hangs = sometimes_hanging(&is_well);
    let well = TestUpstream::saying(Speaks::Http1, "served");
    let entries =
        json!([{"url": url(hangs.address), "seats": 10}, {"url": url(well.address), "seats": 10}]);
    // Shorter than the server is looked at: others wait when these have ended.
    let more = json!({"upstream": {"spread": "request"}, "timeouts": {"request": "3s"}});
    let gateway = before(&entries, &more);
    let says = "it answers /readyz and no request, while the others answer";
    let users = ["alice", "bob"].repeat(12);
    while_users_ask(&gateway, &users, || {
        gateway.wait_for_log(says, 1);
        let stuck = pods(&hangs);
        // Through a return and the next ejection.
        gateway.wait_for_log("it gets one at a time until it answers one", 1);
        gateway.wait_for_log(says, 2);
        let tried = pods(&hangs) - stuck;
        // One at a time for some six seconds, each of which ends after three.
        assert!((1..=3).contains(&tried), "it was tried with {tried}");
        assert_eq!(
            of_server(
                &gateway,
                "fairgate_upstream_server_ejections_total",
                hangs.address
            ),
            Some(2)
        );
        let reason = format!("reason=\"hanging\",server=\"{}\"}} 1", hangs.address);
        assert!(gateway.metrics().contains(&reason), "{}", gateway.metrics());
        is_well.send(true).unwrap();
        gateway.wait_for_log("takes requests again", 1);
        wait_for_seats(&gateway, 20);
        let before = pods(&hangs);
        wait_until("it gets requests", || pods(&hangs) > before + 20);
    });
}

/// So many reads are to wait at the server that hangs.
const STUCK: usize = 4;

#[test]
fn reads_that_wait_at_a_server_that_hangs_are_answered_by_another_and_writes_are_not_repeated() {
    let (is_well, _) = tokio::sync::watch::channel(false);
    let hangs = sometimes_hanging(&is_well);
    // It takes so long that requests overlap, and are spread over both.
    let well = TestUpstream::start(Speaks::Http1, |request| async move {
        if request.uri().path() != "/readyz" {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        text("served")
    });
    let entries =
        json!([{"url": url(hangs.address), "seats": 40}, {"url": url(well.address), "seats": 40}]);
    let gateway = before(&entries, &json!({"upstream": {"spread": "request"}}));
    let seen = |server: &TestUpstream, method: &str, text: &str| {
        let seen = server.seen();
        let seen = seen.iter().filter(|seen| seen.method == method);
        seen.filter(|seen| seen.target.contains(text)).count()
    };
    // What the other server answers them shows that it is well.
    while_users_ask(&gateway, &["alice", "bob"], || {
        thread::scope(|scope| {
            let read = |target: &'static str| {
                let gateway = &gateway;
                move |number: usize| get(gateway, ["alice", "bob"][number % 2], target)
            };
            let (mut reads, mut short) = (Vec::new(), Vec::new());
            let mut number = 0;
            while seen(&hangs, "GET", "/a/pods/p") < STUCK || seen(&hangs, "GET", "timeout=1s") == 0
            {
                number += 1;
                assert!(number < 1_000, "too few reads get to the server that hangs");
                let (long_read, short_read) = (
                    read("/api/v1/namespaces/a/pods/p"),
                    read("/api/v1/namespaces/b/pods/p?timeout=1s"),
                );
                reads.push(scope.spawn(move || long_read(number)));
                short.push(scope.spawn(move || short_read(number)));
                thread::sleep(PAUSE);
            }
            let writes: Vec<_> = (0..4).map(|_| scope.spawn(|| post(&gateway))).collect();
            // All of those above may wait at the server that hangs, and then nothing shows that the other one is well.
            let ask = read("/api/v1/namespaces/b/pods/p?timeout=1s");
            wait_until("it is ejected", || {
                let _ = ask(0);
                let why = gateway.logged("it answers /readyz and no request");
                !why.is_empty()
            });
            for read in reads {
                let response = read.join().unwrap();
                assert_eq!(status(&response), 200, "{response}");
            }
            // None of them ended because the server that hangs answered.
            assert!(!*is_well.borrow());
            for read in short {
                assert!([200, 504].contains(&status(&read.join().unwrap())));
            }
            is_well.send(true).unwrap();
            for write in writes {
                assert_eq!(status(&write.join().unwrap()), 200);
            }
            let posts = seen(&hangs, "POST", "pods") + seen(&well, "POST", "pods");
            assert_eq!(posts, 4, "none was sent twice");
        });
    });
    // Also of those that waited there after their clients had got 504.
    assert_eq!(gateway.metric("fairgate_panics_total").unwrap_or(0), 0);
}

#[test]
fn requests_of_one_user_that_hang_say_nothing_about_a_server() {
    let (is_well, _) = tokio::sync::watch::channel(false);
    let hangs = sometimes_hanging(&is_well);
    let well = TestUpstream::saying(Speaks::Http1, "served");
    let entries =
        json!([{"url": url(hangs.address), "seats": 10}, {"url": url(well.address), "seats": 10}]);
    let gateway = before(&entries, &json!({"upstream": {"spread": "request"}}));
    while_users_ask(&gateway, &["alice"].repeat(24), || {
        wait_until("requests hang", || pods(&hangs) >= 3);
        // Through more periods than are needed to eject it.
        let until = probes(&hangs) + 8;
        wait_until("it was looked at", || probes(&hangs) >= until);
        is_well.send(true).unwrap();
    });
    let ejections = "fairgate_upstream_server_ejections_total";
    assert_eq!(of_server(&gateway, ejections, hangs.address), Some(0));
}

#[test]
fn watches_of_a_server_that_no_longer_answers_end_so_that_their_clients_open_them_elsewhere() {
    let (is_well, well) = tokio::sync::watch::channel(true);
    let freezes = TestUpstream::start(Speaks::Http1, move |request| {
        let mut well = well.clone();
        async move {
            let _ = well.wait_for(|is_well| *is_well).await;
            ready_or_endless(&request)
        }
    });
    let address = ports::unused();
    let entries =
        json!([{"url": url(freezes.address), "seats": 10}, {"url": url(address), "seats": 10}]);
    let gateway = before(&entries, &json!({}));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    gateway.wait_for_log("it cannot be reached", 1);
    let watches = runtime.block_on(watch(&gateway, 30));
    is_well.send(false).unwrap();
    gateway.wait_for_log("it does not answer", 1);
    // Nobody else could serve them, so they stayed; now somebody can.
    let _other = TestUpstream::start_at(address, Speaks::Http1, |request| async move {
        ready_or_endless(&request)
    });
    assert_eq!(runtime.block_on(ended(watches, HANG)), 30);
    let metric = |name| of_server(&gateway, name, freezes.address);
    assert_eq!(
        metric("fairgate_upstream_server_moved_watches_total"),
        Some(30)
    );
    assert_eq!(
        metric("fairgate_upstream_server_long_running_requests"),
        Some(0)
    );
}
