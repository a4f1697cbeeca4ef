//! The commands as programs: exit codes and messages, and one scenario over real sockets.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// The outcome of a command in the root of the repository.
fn loadtest(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    Command::new(env!("CARGO_BIN_EXE_fairgate-loadtest"))
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory of this test's own, removed at its end.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "fairgate-loadtest-test-{name}-{}",
            std::process::id()
        ));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ELEPHANT: &str = "config/scenarios/elephant-and-mice.yaml";

#[test]
fn a_target_that_is_down_has_a_message_and_an_exit_code() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = loadtest(&["run", ELEPHANT, "--target", &url]);
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    assert!(
        message.contains(&format!("{url} does not answer")),
        "{message}"
    );
}

#[test]
fn a_comparison_needs_two_targets_whether_or_not_one_is_running() {
    let output = loadtest(&["compare", ELEPHANT, "--target", "a=http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("at least two targets"), "{message}");
}

#[test]
fn a_file_of_authorities_that_cannot_be_used_is_reported() {
    let directory = TestDirectory::new("authorities");
    let empty = directory.0.join("empty.crt");
    std::fs::write(&empty, "\n").unwrap();
    for (file, problem) in [
        ("none.crt", "cannot be read: No such file"),
        ("empty.crt", "it has no certificate; --ca wants"),
    ] {
        let file = directory.0.join(file).display().to_string();
        let target = ["--target", "https://127.0.0.1:1", "--ca", &file];
        let output = loadtest(&[&["run", ELEPHANT], &target[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.contains(&format!("{file}: {problem}")), "{message}");
    }
}

#[test]
fn options_that_virtual_time_cannot_heed_are_refused() {
    for option in [
        "--metrics",
        "--process",
        "--upstream-control",
        "--ca",
        "--rounds",
    ] {
        let output = loadtest(&["run", ELEPHANT, "--simulate", option, "3"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        let message = text(&output.stderr);
        let expected = format!("'{option} <");
        assert!(
            message.contains(&expected) && message.contains("--simulate"),
            "{message}"
        );
    }
}

#[test]
fn what_cannot_be_started_or_written_is_named() {
    let directory = TestDirectory::new("nowhere");
    let failure = |arguments: &[&str], code: i32| {
        let output = loadtest(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        text(&output.stderr)
    };
    let program = [
        "--gateway",
        "/nowhere/gateway",
        "--report",
        directory.path(),
    ];
    let gateway = failure(&[&["local", ELEPHANT], &program[..]].concat(), 3);
    assert!(
        gateway.contains("cannot start the gateway /nowhere/gateway"),
        "{gateway}"
    );
    // The name of a file where a directory is expected.
    let report = failure(
        &[
            "run",
            ELEPHANT,
            "--simulate",
            "--report",
            "Cargo.toml/report",
        ],
        2,
    );
    assert!(
        report.contains("Cargo.toml/report: cannot be created"),
        "{report}"
    );
}

#[test]
fn load_on_another_machine_or_beyond_the_bounds_is_refused() {
    let remote = loadtest(&["run", ELEPHANT, "--target", "http://192.0.2.1:6443"]);
    assert_eq!(remote.status.code(), Some(2));
    assert!(text(&remote.stderr).contains("--allow-remote"));
    let many = loadtest(&["local", ELEPHANT, "--max-threads", "100"]);
    assert_eq!(many.status.code(), Some(2));
    assert!(
        text(&many.stderr).contains("--max-threads 200"),
        "{}",
        text(&many.stderr)
    );
}

#[test]
fn all_mistakes_in_a_scenario_are_reported_at_once() {
    let directory = TestDirectory::new("mistakes");
    let path = directory.0.join("wrong.yaml");
    std::fs::write(
        &path,
        "apiVersion: fairgate.dev/v1alpha1\nkind: Scenario\nclient: []\nseed: x\n",
    )
    .unwrap();
    let output = loadtest(&["check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    for expected in [
        "title is missing",
        "line 3: client: unknown key; did you mean \"clients\"?",
        "line 4: seed",
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

/// Writes the scenario of the elephant with another expectation than its own, which the speed of the machine decides.
fn elephant_that_expects(expectation: &str, directory: &TestDirectory) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let scenario = std::fs::read_to_string(root.join(ELEPHANT)).unwrap();
    let (scenario, _) = scenario.split_once("\nexpect:\n").unwrap();
    let path = directory.0.join("elephant.yaml");
    std::fs::write(&path, format!("{scenario}\nexpect: [{expectation}]\n")).unwrap();
    path.display().to_string()
}

#[test]
fn a_scenario_runs_on_this_machine_and_its_verdict_can_fail() {
    let directory = TestDirectory::new("local");
    let local = |judge: &str, expectation: &str| {
        let scenario = elephant_that_expects(expectation, &directory);
        loadtest(&[
            "local",
            &scenario,
            "--duration",
            "3s",
            "--judge",
            judge,
            "--report",
            directory.path(),
        ])
    };
    // The second one always holds: it has the client be measured alone, too.
    let expectation = "all.errors == 0, mouse.p99 <= 1000000 x alone";
    let output = local("fairness", expectation);
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert!(
        text(&output.stdout).starts_with("PASSED: Elephant and mice"),
        "{}",
        text(&output.stdout)
    );
    let page = std::fs::read_to_string(directory.0.join("report.html")).unwrap();
    assert!(page.matches("<svg").count() >= 8, "plots of both variants");
    assert!(
        !page.contains("src=") && !page.contains("<link"),
        "the page needs nothing else"
    );
    let report = std::fs::read(directory.0.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let with_fairness = &report["variants"][0];
    assert_eq!(with_fairness["clients"][0]["errors"], 0);
    assert!(
        with_fairness["upstreamPeak"].as_u64().unwrap() <= 10,
        "the gateway keeps to its seats"
    );
    assert!(
        !with_fairness["levels"].as_array().unwrap().is_empty(),
        "levels were read from the gateway"
    );

    let without = local("without", "mouse.rate >= 1000000");
    assert_eq!(without.status.code(), Some(1), "{}", text(&without.stdout));
    assert!(
        text(&without.stdout).starts_with("FAILED"),
        "{}",
        text(&without.stdout)
    );
}

#[test]
fn all_scenarios_of_the_repository_are_without_mistakes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let directories = [
        "config/scenarios",
        "loadtest/peers/scenarios",
        "loadtest/peers/scenarios/rows",
    ];
    let files = directories
        .iter()
        .flat_map(|directory| std::fs::read_dir(root.join(directory)).unwrap());
    let files: Vec<String> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.display().to_string())
        .collect();
    assert!(files.len() > 15, "{files:?}");
    let arguments: Vec<&str> = ["check"]
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .collect();
    let output = loadtest(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A scenario over HTTP/2 with TLS that expects only that nothing fails, and that what is due at certain times is sent.
const SECURE: &str = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Secure
warmUp: 100ms
duration: 1s
gateway: {tls: true, bootstrap: suggested}
clients:
- name: two
  load: {closed: {threads: 20}}
  connection: {protocol: http2}
  requests:
  - {path: /api/v1/namespaces/a/pods/b, weight: 3}
  - {verb: create, path: /api/v1/namespaces/a/pods, body: 4Ki}
- name: one
  load: {open: {rate: 50, arrivals: constant}}
  requests: [{path: /api/v1/namespaces/a/pods/c}]
upstream: {service: {mean: 5ms}}
expect: [all.errors == 0, all.refused == 0, one.rate >= 20]
";

#[test]
fn both_versions_of_http_work_with_tls() {
    let directory = TestDirectory::new("tls");
    run_secure(&directory, &[]);
}

/// Runs `SECURE` for longer and longer, until both of its clients were served: how many requests fit into a second, the machine decides.
/// Returns how often it ran.
fn run_secure(directory: &TestDirectory, options: &[&str]) -> usize {
    let path = directory.0.join("secure.yaml");
    std::fs::write(&path, SECURE).unwrap();
    for (before, duration) in ["1s", "4s", "16s", "60s"].into_iter().enumerate() {
        let mut arguments = vec!["local", path.to_str().unwrap(), "--duration", duration];
        arguments.extend(["--report", directory.path()]);
        arguments.extend(options);
        let output = loadtest(&arguments);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
        let report = std::fs::read(directory.0.join("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        let clients = report["variants"][0]["clients"].as_array().unwrap();
        assert_eq!(clients.len(), 2);
        if clients.iter().all(|client| client["ok"] != 0) {
            return before + 1;
        }
    }
    panic!("a client was not served within a minute");
}

/// A stand-in server, killed at the end.
struct StandIn(Child);

impl StandIn {
    /// Starts one, and returns its address for requests.
    fn start(scenario: &str, options: &[&str]) -> (Self, String) {
        let mut server = Command::new(env!("CARGO_BIN_EXE_fairgate-loadtest"))
            .args(["upstream", scenario])
            .args(options)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(server.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let addresses: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = addresses["address"].as_str().unwrap().to_owned();
        (Self(server), address)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_stand_in_server_speaks_tls() {
    let directory = TestDirectory::new("server-tls");
    let path = directory.0.join("secure.yaml");
    std::fs::write(&path, SECURE).unwrap();
    let scenario = path.to_str().unwrap();
    let (_server, address) = StandIn::start(scenario, &["--tls", directory.path()]);
    let url = format!("https://{address}");
    let certificate = directory.0.join("certificate.pem");
    let run =
        |certificate: &str| loadtest(&["run", scenario, "--target", &url, "--ca", certificate]);
    let output = run(certificate.to_str().unwrap());
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    let other = TestDirectory::new("other-tls");
    let (_other, _) = StandIn::start(scenario, &["--tls", other.path()]);
    let output = run(other.0.join("certificate.pem").to_str().unwrap());
    assert!(
        !output.status.success(),
        "a certificate of another server does not do: {}",
        text(&output.stdout)
    );
}

#[cfg(unix)]
#[test]
fn another_gateway_program_can_be_measured() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = TestDirectory::new("gateway");
    let (program, started) = (directory.0.join("gateway"), directory.0.join("started"));
    let script = format!(
        "#!/bin/sh\necho \"$1 $2\" >> {}\nshift\nexec {} gateway \"$@\"\n",
        started.display(),
        env!("CARGO_BIN_EXE_fairgate-loadtest"),
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let runs = run_secure(&directory, &["--gateway", program.to_str().unwrap()]);
    assert_eq!(
        std::fs::read_to_string(started).unwrap(),
        "serve --config\n".repeat(2 * runs),
        "once with fairness, once without"
    );
}

/// Each slice has successes, unless nothing runs for its whole second: one without has no ratio. The expectation cannot hold.
const BRIEF: &str = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Brief
warmUp: 100ms
duration: 1s
clients:
- name: all-the-time
  load: {closed: {threads: 8}}
  requests: [{path: /api/v1/namespaces/a/pods/b}]
upstream: {service: {mean: 2ms, distribution: constant}}
expect: [all.rate >= 1000000]
";

#[test]
fn servers_are_compared_in_turns_with_the_cost_of_their_processes() {
    let directory = TestDirectory::new("compare");
    let path = directory.0.join("brief.yaml");
    std::fs::write(&path, BRIEF).unwrap();
    let scenario = path.to_str().unwrap();
    let (server, address) = StandIn::start(scenario, &[]);
    let url = format!("http://{address}");
    let targets = [
        format!("first={url}@{}", server.0.id()),
        format!("second={url}"),
    ];
    let output = loadtest(&[
        "compare",
        scenario,
        "--target",
        &targets[0],
        "--target",
        &targets[1],
        "--duration",
        "1s",
        "--rounds",
        "2",
        "--output",
        "json",
    ]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "the expectation fails: {}",
        text(&output.stderr)
    );
    let turns = text(&output.stderr);
    let turns: Vec<&str> = turns
        .lines()
        .filter(|line| line.contains(':') && !line.contains("alone"))
        .collect();
    let order = [
        "first, round 1",
        "second, round 1",
        "second, round 2",
        "first, round 2",
    ];
    assert!(
        turns
            .iter()
            .zip(order)
            .all(|(line, turn)| line.contains(turn)),
        "{turns:?}"
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["variants"][1]["name"], "second");
    assert!(
        report["variants"][0]["cpuMicrosPerResponse"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert!(report["variants"][1]["cpuMicrosPerResponse"].is_null());
    let ratios = &report["ratios"][0];
    assert_eq!(
        (&ratios["of"], &ratios["to"]),
        (&"first".into(), &"second".into())
    );
    assert_eq!(ratios["clients"][0]["rate"]["pairs"], 2);
    assert!(ratios["cpu"].is_null(), "only one process was measured");
}

/// Serves `/metrics` of a gateway on which so many requests wait, as long as this process lives; returns its URL.
fn serve_metrics(waiting: u32) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(stream.try_clone().unwrap()).lines();
            let last = request.map_while(Result::ok).find(String::is_empty);
            let metrics = format!(
                "apiserver_flowcontrol_current_inqueue_requests{{priority_level=\"work\"}} {waiting}\n\
                 apiserver_flowcontrol_current_executing_seats{{priority_level=\"work\"}} 10\n"
            );
            let length = metrics.len();
            // A connection that was opened only to see whether somebody listens is closed by now.
            let _ = last.map(|_| {
                write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{metrics}")
            });
        }
    });
    url
}

#[test]
fn queues_and_seats_of_each_compared_target_come_from_its_own_metrics() {
    let directory = TestDirectory::new("compare-metrics");
    let (_server, address) = StandIn::start(ELEPHANT, &[]);
    let targets = ["one", "two", "three"].map(|name| format!("{name}=http://{address}"));
    let metrics = [("two", 3), ("one", 70)]
        .map(|(name, waiting)| format!("{name}={}", serve_metrics(waiting)));
    let mut arguments = vec!["compare", ELEPHANT, "--duration", "1s", "--output", "json"];
    arguments.extend(targets.iter().flat_map(|target| ["--target", target]));
    arguments.extend(metrics.iter().flat_map(|metrics| ["--metrics", metrics]));
    let nothing = format!("three={}", serve_nothing());
    arguments.extend(["--metrics", &nothing, "--pairs"]);
    arguments.extend(["--report", directory.path()]);
    let output = loadtest(&arguments);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let waiting =
        |index: usize| &report["variants"][index]["levels"][0]["levels"]["work"]["queued"];
    assert_eq!((waiting(0), waiting(1)), (&70.0.into(), &3.0.into()));
    assert_eq!(report["variants"][2]["levels"], serde_json::json!([]));
    assert_eq!(
        report["variants"][0]["slices"], 2,
        "in pairs the first is measured beside each other one"
    );
    let remarks = report["remarks"].to_string();
    assert!(
        remarks.contains("three: no priority level could be read"),
        "{remarks}"
    );
    let page = std::fs::read_to_string(directory.0.join("report.html")).unwrap();
    for name in ["one", "two"] {
        for title in ["Waiting requests by level", "Seats in use by level"] {
            assert!(
                page.contains(&format!("{title}, {name}")),
                "{title}, {name}"
            );
        }
    }
    assert!(directory.0.join("2-queues.svg").exists() && directory.0.join("2-seats.svg").exists());
    assert!(
        !directory.0.join("3-queues.svg").exists(),
        "the last one has no levels"
    );
}

/// Serves what is no metrics, as long as this process lives; returns its URL.
fn serve_nothing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    url
}

#[test]
fn metrics_of_what_is_no_target_are_refused() {
    let (_server, address) = StandIn::start(ELEPHANT, &[]);
    let url = format!("http://{address}");
    let refused = |metrics: &[&str]| {
        let targets = ["a", "b"].map(|name| format!("{name}={url}"));
        let metrics = metrics.iter().map(|name| format!("{name}={url}"));
        let metrics: Vec<String> = metrics.collect();
        let mut arguments = vec!["compare", ELEPHANT];
        arguments.extend(targets.iter().flat_map(|target| ["--target", target]));
        arguments.extend(metrics.iter().flat_map(|metrics| ["--metrics", metrics]));
        let output = loadtest(&arguments);
        assert_eq!(output.status.code(), Some(2), "{metrics:?}");
        text(&output.stderr)
    };
    let unknown = refused(&["c"]);
    assert!(
        unknown.contains("\"c\", which is no target; the targets are a, b"),
        "{unknown}"
    );
    let twice = refused(&["a", "a"]);
    assert!(twice.contains("\"a\" twice"), "{twice}");
    let nameless = refused(&[""]);
    assert!(nameless.contains("is not NAME=URL"), "{nameless}");
}
