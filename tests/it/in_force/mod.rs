//! `fairgate check` and `fairgate explain` about the policy in force: of running gateways of each mode, of a store, of a cluster by
//! a kubeconfig. Which policy it is, is always said, and no secret ever is.

mod kubeconfig;

use std::{fs, net::SocketAddr, path::Path, process::Command};

use http::Response;
use serde_json::{Value, json};

use crate::{
    client::raw,
    following::api::Api,
    ports,
    process::{GatewayProcess, ProcessOptions, new_directory, wait_until},
    upstream::{Speaks, TestUpstream, full},
};

const TOKENS: &str = "root-s3cret,root,1,system:masters\nbob-s3cret,bob,2,devs\n";

/// What a command printed.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    /// Runs `fairgate` with these arguments. Nothing secret may be printed.
    fn fairgate(arguments: &[&str]) -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_fairgate"))
            .args(arguments)
            .env_remove("HTTPS_PROXY")
            .env_remove("https_proxy")
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let ran = Self {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        for text in [&ran.out, &ran.err] {
            assert!(!text.contains("s3cret"), "{ran:?}");
        }
        ran
    }

    /// Explains a request of `batch` by the policy that `from` names.
    fn explain(from: &[&str]) -> Self {
        let request = ["--as", "batch", "GET", "/api/v1/pods"];
        Self::fairgate(&[&["explain"], from, &request].concat())
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Asserts that it failed, that nothing was answered, and that all of `parts` are in the error.
    #[track_caller]
    fn refuses(&self, parts: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (1, ""), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "{part} in {self:?}");
        }
    }
}

/// The explanation by the policy that `from` names, in JSON.
#[track_caller]
fn explained(from: &[&str]) -> Value {
    Ran::explain(&[from, &["--output", "json"]].concat()).json()
}

fn schema(name: &str, precedence: i32) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": precedence,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "batch"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
            }],
        },
    })
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().unwrap().to_owned()
}

fn start(configuration: Value, files: Vec<(&'static str, String)>) -> GatewayProcess {
    let options = ProcessOptions {
        tokens: TOKENS,
        files,
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

#[test]
fn a_gateway_with_files_says_which_of_them_are_in_force() {
    let mine = schema("mine", 10).to_string();
    let configuration = json!({
        "dataCores": 1, "mode": "files",
        "flowControl": {"totalSeats": 77, "policies": {"directory": "policies"}},
    });
    let gateway = start(configuration, vec![("policies/a.json", mine)]);
    let server = url(gateway.admin);
    let first = explained(&["--server", &server]);
    assert_eq!(first["flowSchema"], "mine");
    let policy = &first["policy"];
    assert_eq!(policy["kind"], "gateway");
    let source = policy["source"].as_str().unwrap();
    assert!(
        source.contains(&server) && source.contains("the files of "),
        "{source}"
    );
    assert!(
        policy["revision"].is_string() && policy["ageSeconds"].is_u64(),
        "{policy}"
    );
    assert!(
        policy["flowSchemas"].as_u64() > Some(10),
        "built-in ones are in force, too"
    );
    assert_eq!(policy.get("problem"), None);

    let report = Ran::fairgate(&["check", "--server", &server, "--output", "json"]).json();
    assert_eq!(
        (&report["totalSeats"], &report["policy"]["kind"]),
        (&json!(77), &json!("gateway"))
    );
    let text = Ran::fairgate(&["check", "--server", &server]);
    assert!(
        text.out
            .starts_with(&format!("Policy: the gateway {server}, from the files of ")),
        "{text:?}"
    );

    // What is on disk, and what is in force.
    gateway.write("policies/a.json", &schema("other", 10).to_string());
    wait_until("the other schema is in force", || {
        explained(&["--server", &server])["flowSchema"] == "other"
    });
    let second = explained(&["--server", &server]);
    assert_ne!(second["policy"]["revision"], policy["revision"]);
    gateway.write("policies/a.json", "{");
    wait_until("the error is known", || {
        explained(&["--server", &server])["policy"]["problem"].is_string()
    });
    let third = explained(&["--server", &server]);
    assert_eq!(third["flowSchema"], "other");
    let text = Ran::explain(&["--server", &server]).out;
    assert!(
        text.contains("it is not what its source has: refused for"),
        "{text}"
    );
    let config = path(&gateway.directory, "fairgate.yaml");
    assert_eq!(Ran::explain(&["--config", &config]).code, 1);
}

#[test]
fn a_sidecar_says_what_the_upstream_has_and_a_configuration_alone_answers_nothing() {
    let (api, upstream) = Api::start();
    api.put_level("mine", 1);
    let gateway = start(
        json!({"dataCores": 1, "mode": "sidecar", "upstream": {"url": url(upstream.address)}}),
        Vec::new(),
    );
    let server = url(gateway.admin);
    wait_until("the upstream's level is in force", || {
        gateway
            .admin_get("/metrics")
            .contains("priority_level=\"mine\"")
    });
    let explained = explained(&["--server", &server]);
    let source = explained["policy"]["source"].as_str().unwrap();
    let authority = upstream.address.to_string();
    assert!(
        source.ends_with(&format!("from the API of the upstream {authority}")),
        "{source}"
    );
    // The upstream has no other level, and no schema: the built-in ones are not in force.
    assert_eq!(explained["policy"]["flowSchemas"], 2);
    assert_eq!(explained["flowSchema"], "catch-all");

    let config = path(&gateway.directory, "fairgate.yaml");
    let asked = upstream.seen().len();
    let refused = Ran::explain(&["--config", &config]);
    refused.refuses(&[
        "mode: sidecar",
        &authority,
        "--kubeconfig",
        "--server",
        "was not asked",
    ]);
    let checked = Ran::fairgate(&["check", "--config", &config]);
    assert_eq!(
        (checked.code, checked.out.as_str()),
        (0, ""),
        "no limits of another policy"
    );
    assert!(
        checked
            .err
            .contains("hint: mode: sidecar: the policy in force is in the API server"),
        "{checked:?}"
    );
    let report = Ran::fairgate(&["check", "--config", &config, "--output", "json"]).json();
    assert_eq!(
        (&report["policy"], &report["levels"]),
        (&Value::Null, &json!([]))
    );
    drop(gateway);
    // Only the gateway itself, which follows the upstream, has sent anything.
    let of_command = |target: &str| target.contains("limit=") && !target.contains("watch");
    assert!(
        upstream.seen()[asked..]
            .iter()
            .all(|seen| !of_command(&seen.target))
    );
}

/// Creates a FlowSchema by the hosted API.
fn create(address: SocketAddr, object: &Value) {
    let body = object.to_string();
    let request = format!(
        "POST /apis/flowcontrol.apiserver.k8s.io/v1/flowschemas HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer root-s3cret\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len(),
    );
    let answer = raw(address, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// Asks the main port, with tokens, which has to answer as the admin port does.
fn asked_at_the_main_port(gateway: &GatewayProcess) {
    let (server, main) = (url(gateway.admin), url(gateway.address));
    // The main port asks for a token of system:masters.
    let token = |name: &str, text: &str| {
        gateway.write(name, text);
        path(&gateway.directory, name)
    };
    let (root, bob, wrong) = (
        token("root", "root-s3cret\n"),
        token("bob", "bob-s3cret"),
        token("wrong", "s3cret-too"),
    );
    let by_main = explained(&["--server", &main, "--token-file", &root]);
    assert_eq!(by_main["flowSchema"], "mine");
    assert_eq!(
        by_main["policy"]["revision"],
        explained(&["--server", &server])["policy"]["revision"]
    );
    let asked = format!("GET {main}/debug/api_priority_and_fairness/dump_policy");
    let rights = "a member of system:masters";
    for (file, code) in [(&bob, ": 403"), (&wrong, ": 401")] {
        Ran::explain(&["--server", &main, "--token-file", file]).refuses(&[&asked, code, rights]);
    }
}

#[test]
fn a_store_is_read_when_the_gateway_is_stopped_and_the_gateway_is_asked_while_it_runs() {
    let (_api, upstream) = Api::start();
    for mode in ["standalone", "overlay"] {
        let mut configuration = json!({
            "dataCores": 1, "mode": mode,
            "store": {"type": "local", "local": {"path": "objects.redb"}},
            "authentication": {"tokenFile": "tokens", "tokenReview": {"enabled": false}},
        });
        if mode == "overlay" {
            configuration["upstream"] = json!({"url": url(upstream.address)});
        }
        let gateway = start(configuration, Vec::new());
        create(gateway.address, &schema("mine", 10));
        let server = url(gateway.admin);
        wait_until("the schema is in force", || {
            explained(&["--server", &server])["flowSchema"] == "mine"
        });
        let config = path(&gateway.directory, "fairgate.yaml");
        let locked = [
            "a running gateway has the store open",
            "objects.redb",
            "--server",
        ];
        Ran::explain(&["--config", &config]).refuses(&locked);
        let checked = Ran::fairgate(&["check", "--config", &config]);
        assert_eq!((checked.code, checked.out.as_str()), (0, ""), "{checked:?}");
        assert!(
            checked.err.contains("hint: ") && checked.err.contains(locked[0]),
            "{checked:?}"
        );

        asked_at_the_main_port(&gateway);
        let stopped = gateway.restart(|directory| {
            let config = path(directory, "fairgate.yaml");
            let stopped = explained(&["--config", &config]);
            assert_eq!(
                (&stopped["flowSchema"], &stopped["policy"]["kind"]),
                (&json!("mine"), &json!("store"))
            );
            assert!(stopped["policy"]["revision"].is_string());
            let checked = Ran::fairgate(&["check", "--config", &config]);
            assert!(
                checked.out.starts_with("Policy: the store ") && checked.code == 0,
                "{checked:?}"
            );
        });
        drop(stopped.unwrap());
    }
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let directory = new_directory();
    let config = path(&directory, "fairgate.yaml");
    fs::write(
        &config,
        "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\nmode: standalone\nstore:\n  local:\n    path: data/objects.redb\n",
    )
    .unwrap();
    let explained = explained(&["--config", &config]);
    assert_eq!(explained["policy"]["kind"], "builtIn");
    let source = explained["policy"]["source"].as_str().unwrap();
    assert!(
        source.contains("since there is no store ") && source.contains("objects.redb"),
        "{source}"
    );
    assert!(!directory.join("data").exists());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_server_that_is_no_gateway_is_named_with_what_to_do() {
    let page = TestUpstream::saying(Speaks::Http1, "<html>s3cret</html>");
    Ran::explain(&["--server", &url(page.address)])
        .refuses(&["is not the flow control policy of a gateway"]);
    let api = TestUpstream::start(Speaks::Http1, |_| async {
        let body = r#"{"kind": "Status", "message": "not found\n\u001b[31m"}"#;
        let mut answer = Response::new(full(body));
        *answer.status_mut() = http::StatusCode::NOT_FOUND;
        answer
    });
    let refused = Ran::fairgate(&["check", "--server", &url(api.address)]);
    refused.refuses(&["404: not found  [31m", "--kubeconfig"]);
    Ran::explain(&["--server", &url(ports::unused())]).refuses(&["refused", "admin.address"]);
    Ran::explain(&["--server", "http://root:s3cret@127.0.0.1:1"])
        .refuses(&["--server", "password"]);
    Ran::explain(&["--server", "https://127.0.0.1:1"]).refuses(&["--certificate-authority"]);
    let token = [
        "--token-file",
        "/dev/null",
        "--server",
        "http://192.0.2.1:1",
    ];
    Ran::explain(&token).refuses(&["without encryption"]);
    let both = Ran::explain(&["--server", "http://127.0.0.1:1", "--policies", "-"]);
    assert_eq!(both.code, 2, "{both:?}");
}

#[test]
fn the_built_in_policy_is_named_where_it_answers() {
    let text = Ran::explain(&[]).out;
    let policy = "Policy      the built-in objects, since no configuration or policy is named: ";
    assert!(text.starts_with(policy), "{text}");
    assert_eq!(explained(&[])["policy"]["kind"], "builtIn");
    let text = Ran::fairgate(&["check"]).out;
    assert!(
        text.starts_with("Policy: the built-in objects, since "),
        "{text}"
    );
}
