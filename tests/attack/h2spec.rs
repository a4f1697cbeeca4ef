//! h2spec: conformance to HTTP/2, over TLS.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    Attack,
    gateway::Setup,
    others::Mix,
    report::Outcome,
    scene::Scene,
    time::{ms, now},
};

pub(crate) const ATTACKS: &[Attack] = &[Attack {
    name: "h2spec",
    point: "h2spec",
    about: "all tests of h2spec, over TLS; H2SPEC_BIN names the program",
    play: h2spec,
}];

/// How many tests there are.
const TESTS: usize = 145;
/// How many seconds h2spec waits for an answer: it gets each, so a machine that stops must not end one.
const WAIT: &str = "30";
const LIMIT: Duration = ms(600_000);

fn h2spec() -> Outcome {
    let program = std::env::var_os("H2SPEC_BIN")
        .expect("H2SPEC_BIN names h2spec; tests/attack/run builds it");
    let setup = Setup {
        tls: true,
        anonymous: true,
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::NOBODY).play(async |scene| {
        let port = scene.gateway.address.port().to_string();
        let arguments = ["-t", "-k", "-h", "127.0.0.1", "-p", &port, "-o", WAIT];
        let mut run = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("h2spec can be started");
        let stdout = run.stdout.take().unwrap();
        let reading = std::thread::spawn(move || std::io::read_to_string(stdout));
        let begun = now();
        while run.try_wait().unwrap().is_none() && begun.elapsed() < LIMIT {
            tokio::time::sleep(ms(20)).await;
        }
        let _ = run.kill();
        let _ = run.wait();
        reading.join().unwrap().unwrap_or_default()
    });
    let reported = std::mem::take(&mut played.found);
    let summary = reported.lines().find(|line| line.contains(" tests, "));
    let summary = summary.unwrap_or("no summary");
    let wanted = format!("{TESTS} tests, {TESTS} passed");
    let is_so = summary.starts_with(&wanted);
    played.outcome.check(wanted, is_so, summary);
    for line in reported.lines().filter(|line| line.contains('×')) {
        played.outcome.note(line.trim());
    }
    played.outcome
}
