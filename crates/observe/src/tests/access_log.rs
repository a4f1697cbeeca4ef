//! The access log: a line for each request, which no client can forge.

use tracing::level_filters::LevelFilter;

use super::*;
use crate::log::{self, LogSettings};

/// Collects what is logged.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

/// Held by a test that logs, so that one logs at a time. tracing caches for each callsite whether it is enabled, and
/// would keep what it decided while the subscriber of another test came or went.
static ALONE: Mutex<()> = Mutex::new(());

/// A second subscriber, which lives for ever. With a single one, tracing decides whether a callsite is enabled by the
/// subscriber of the thread that reaches it first, which may belong to a test that does not log.
static SECOND: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(settings: &LogSettings, test: impl Future<Output = ()> + 'static) -> String {
    let collected = Collected::default();
    let to = collected.clone();
    let (subscriber, _) = log::subscriber(settings, move || to.clone());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&SECOND);
    tracing::subscriber::with_default(subscriber, || {
        tracing::callsite::rebuild_interest_cache();
        local(test);
    });
    let bytes = collected.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let settings = LogSettings {
        json: true,
        level: LevelFilter::INFO,
        access: true,
    };
    let text = logged(&settings, async {
        let mut world = World::new();
        let sent = world.crowd().await;
        world.get("/api/v1/namespaces/hold/pods/d", "ann").await;
        for sent in sent {
            world.release().await;
            sent.await.unwrap();
        }
    });
    let lines = lines(&text);
    assert_eq!(lines.len(), 4);
    let refused = &lines[0];
    assert_eq!(refused["reason"], "queue-full");
    assert_eq!(refused["status"], 429);
    let second = &lines[2];
    for (key, value) in [
        ("target", json!("fairgate::access")),
        ("method", json!("GET")),
        ("path", json!("/api/v1/namespaces/hold/pods/b")),
        ("user", json!("ann")),
        ("status", json!(200)),
        ("latency", json!("1.5s")),
        ("bytes_out", json!(5)),
        ("apf_pl", json!("narrow")),
        ("apf_fs", json!("elephants")),
        ("apf_iseats", json!(1)),
        ("apf_fseats", json!(0)),
        ("apf_additionalLatency", json!("0s")),
        ("apf_wait", json!("1.5s")),
        ("apf_execution_time", json!("0s")),
        ("user_agent", json!("kubectl/v1")),
        ("audit_id", json!("00000000-0000-0000-0000-000000001234")),
        ("end", json!("complete")),
    ] {
        assert_eq!(second[key], value, "{key} in {second}");
    }
    assert!(second.get("reason").is_none());
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn decisions_that_are_not_enforced_have_lines_of_their_own() {
    let settings = LogSettings {
        json: true,
        level: LevelFilter::INFO,
        access: true,
    };
    let text = logged(&settings, async {
        let mut world = World::new();
        world.enforce(Enforcement::Observe).await;
        let mut sent = world.crowd().await;
        let target = "/api/v1/namespaces/hold/pods/d";
        sent.push(world.send(Method::GET, target, "ann").await);
        world.release().await;
        assert_eq!(sent.remove(0).await.unwrap().status, 200);
        settle().await;
        let scrape = world.telemetry.metrics_text().await.unwrap();
        let refused =
            "fairgate_unenforced_refusals_total{apiserver=\"kube:6443\",reason=\"queue-full\"} 1";
        assert!(scrape.contains(refused), "{scrape}");
        assert!(!scrape.contains("fairgate_refusals_total{"), "{scrape}");
    });
    let lines = lines(&text);
    // The others still execute when the test ends.
    assert!(lines.len() > 3, "{text}");
    assert!(
        lines[3..].iter().all(|line| line["end"] == "abandoned"),
        "{text}"
    );
    assert_eq!(lines[1]["message"], "request");
    for (line, decision, wait) in [(0, "refuse", "0s"), (2, "execute", "1.5s")] {
        for (key, value) in [
            ("message", "decision not enforced"),
            ("decision", decision),
            ("apf_wait", wait),
            ("user", "ann"),
            ("apf_pl", "narrow"),
            ("apf_fs", "elephants"),
            ("audit_id", "00000000-0000-0000-0000-000000001234"),
        ] {
            assert_eq!(lines[line][key], value, "{key} in {text}");
        }
    }
    assert_eq!(lines[0]["reason"], "queue-full");
    assert!(lines[2].get("reason").is_none());
}

#[test]
fn without_the_access_log_nothing_is_written() {
    let settings = LogSettings {
        json: false,
        level: LevelFilter::INFO,
        access: false,
    };
    let text = logged(&settings, async {
        World::new().get("/api/v1/pods", "ann").await;
    });
    assert_eq!(text, "");
}

#[test]
fn a_client_cannot_forge_a_line() {
    for json in [false, true] {
        let settings = LogSettings {
            json,
            level: LevelFilter::INFO,
            access: true,
        };
        let text = logged(&settings, async {
            let mut world = World::new();
            let mut inbound = world.inbound(Method::GET, "/api/v1/pods", "ann");
            let long = format!("/{}", "x".repeat(5000));
            let context = Rc::get_mut(&mut inbound.context).unwrap();
            context.target = Some(long.parse().unwrap());
            let evil = User::new("eve\n\u{1b}[31mFORGED\u{2028}\u{9b}", ["g"]);
            let _ = context.user.set(Arc::new(evil));
            (world.stack)(inbound).await;
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{2028}']), "{text}");
        assert!(text.contains("FORGED"), "{text}");
        assert!(text.len() < 2000, "{}", text.len());
    }
}
