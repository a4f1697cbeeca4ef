//! Policies that are broken while the gateway runs, and are still broken when it starts again.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::following::api::Api;
use crate::process::{GatewayProcess, ProcessOptions, new_directory, wait_until, write_at_once};

const POLICY: &str = "policies/own.yaml";
const SYNCED: &str = "fairgate_policy_synced";

/// A priority level of this name and with so many shares.
fn level(name: &str, shares: i32) -> String {
    let limited = json!({"nominalConcurrencyShares": shares, "limitResponse": {"type": "Reject"}});
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": limited},
    });
    level.to_string()
}

/// A gateway with the level `own`, which keeps its state in this directory.
fn start(state: &str) -> GatewayProcess {
    let configuration = json!({
        "upstream": {"url": "http://127.0.0.1:9"},
        "flowControl": {"policies": {"directory": "policies"}},
        "state": {"directory": state},
        "dataCores": 1,
    });
    let options = ProcessOptions {
        files: vec![(POLICY, level("own", 30))],
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

fn has_level(gateway: &GatewayProcess, name: &str) -> bool {
    let label = format!("priority_level=\"{name}\"");
    gateway.metrics().contains(&label)
}

fn ready(gateway: &GatewayProcess) -> String {
    let ready = gateway.admin_get("/readyz?verbose");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    ready
}

/// The files of the kept policies, without those that are being written.
fn kept_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("state")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "json");
    paths.filter(is_whole).collect()
}

/// The first of them, once it is there.
fn kept(directory: &Path) -> PathBuf {
    let is_there = || !kept_files(directory).is_empty();
    wait_until("the policies are kept", is_there);
    kept_files(directory).remove(0)
}

fn is_refused(gateway: &GatewayProcess) -> bool {
    gateway.metric("fairgate_policy_loads_total{outcome=\"failed\"}") == Some(1)
}

#[test]
fn a_broken_policy_is_shown_until_it_is_mended() {
    let gateway = start("");
    assert_eq!(gateway.metric(SYNCED), Some(1));
    assert!(ready(&gateway).contains("[+]policy ok\n"));

    gateway.write(POLICY, &level("own", -1));
    wait_until("it is refused", || is_refused(&gateway));
    assert_eq!(gateway.metric(SYNCED), Some(0));
    let text = ready(&gateway);
    assert!(text.contains("[!]policy: "), "{text}");
    for words in [
        "refused for",
        "own.yaml",
        "nominalConcurrencyShares",
        "the last good policy stays in force",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(gateway.admin_get("/readyz").ends_with("\r\n\r\nok"));
    assert!(has_level(&gateway, "own"));

    gateway.write(POLICY, &level("other", 20));
    wait_until("it is in force", || has_level(&gateway, "other"));
    wait_until("it is in sync", || gateway.metric(SYNCED) == Some(1));
    assert!(ready(&gateway).contains("[+]policy ok\n"));
    let logged = gateway.wait_for_log("flow control policy changed", 1);
    assert_eq!(logged.len(), 1, "{logged:?}");
    for words in [
        "added=PriorityLevelConfiguration other",
        "gone=PriorityLevelConfiguration own",
    ] {
        assert!(logged[0].contains(words), "{words}: {logged:?}");
    }
}

#[test]
fn a_gateway_starts_with_the_last_good_policy_while_the_files_are_broken() {
    let gateway = start("state");
    let file = kept(&gateway.directory);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let gateway = gateway
        .restart(|directory| write_at_once(&directory.join(POLICY), "this: [is not"))
        .unwrap();

    assert!(has_level(&gateway, "own"));
    assert_eq!(gateway.metric(SYNCED), Some(0));
    let text = ready(&gateway);
    for words in [
        "[!]policy: ",
        "own.yaml",
        "the last good policy",
        "digest sha256:",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let logged = gateway.wait_for_log("the last good policy is in force", 1);
    assert_eq!(logged.len(), 1);
    assert!(
        logged[0].contains("digest=sha256:") && logged[0].contains("age="),
        "{logged:?}"
    );
    // It is not kept again, nor replaced by what is broken.
    let before = fs::read_to_string(&file).unwrap();
    gateway.write(POLICY, "still: [not");
    wait_until("it is refused", || is_refused(&gateway));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let gateway = gateway.restart(|_| ()).unwrap();
    assert!(has_level(&gateway, "own"));

    gateway.write(POLICY, &level("other", 20));
    wait_until("it is in force", || has_level(&gateway, "other"));
    wait_until("it is in sync", || gateway.metric(SYNCED) == Some(1));
    wait_until("it is kept", || {
        fs::read_to_string(&file).unwrap().contains("other")
    });
}

#[test]
fn valid_files_win_over_the_last_good_policy_even_if_they_are_empty() {
    let gateway = start("state");
    kept(&gateway.directory);
    let gateway = gateway
        .restart(|directory| fs::remove_file(directory.join(POLICY)).unwrap())
        .unwrap();
    assert!(!has_level(&gateway, "own"));
    assert_eq!(gateway.metric(SYNCED), Some(1));
    assert!(ready(&gateway).contains("[+]policy ok\n"));
}

#[test]
fn a_directory_of_policies_that_is_gone_is_a_source_with_errors() {
    let gateway = start("state");
    kept(&gateway.directory);
    let gateway = gateway
        .restart(|directory| fs::remove_dir_all(directory.join("policies")).unwrap())
        .unwrap();
    assert!(has_level(&gateway, "own"));
    assert_eq!(gateway.metric(SYNCED), Some(0));
    let text = ready(&gateway);
    assert!(
        text.contains("[!]policy: refused for") && text.contains("/policies: cannot be read"),
        "{text}"
    );
    fs::create_dir(gateway.directory.join("policies")).unwrap();
    gateway.write(POLICY, &level("other", 20));
    wait_until("it is in force", || has_level(&gateway, "other"));
}

#[test]
fn without_a_directory_for_its_state_a_gateway_does_not_start_with_broken_files() {
    let gateway = start("");
    let configuration = gateway.directory.join("fairgate.yaml");
    let check = |configuration: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate"));
        let checked = command
            .args(["check", "--config"])
            .arg(configuration)
            .output()
            .unwrap();
        assert!(checked.status.success(), "{checked:?}");
        String::from_utf8(checked.stderr).unwrap()
    };
    let hint = "hint: state.directory is not set";
    let text = check(&configuration);
    assert!(
        text.contains(hint) && text.contains("usable: 0 errors, "),
        "{text}"
    );
    let mut value: Value = serde_json::from_slice(&fs::read(&configuration).unwrap()).unwrap();
    value["state"]["directory"] = json!("state");
    let keeping = configuration.with_file_name("keeping.yaml");
    fs::write(&keeping, value.to_string()).unwrap();
    assert!(!check(&keeping).contains("hint"));

    let broken =
        gateway.restart(|directory| write_at_once(&directory.join(POLICY), &level("own", -1)));
    let log = broken.err().unwrap().join("\n");
    assert!(log.contains("the policies are invalid"), "{log}");
}

#[test]
fn a_start_tells_the_mistakes_of_the_configuration_and_of_all_policies_at_once() {
    let gateway = start("");
    let path = gateway.directory.join("fairgate.yaml");
    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    value["limits"] = json!({"connections": "many"});
    value["admission"] = json!({"mode": "audit", "policies": {"files": ["admission.yaml"]}});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]},
            "validations": [{"expression": "1 +"}],
        },
    });
    let of_configuration = "limits.connections: \"many\" is not a whole number";
    let of_flow_control = "\"own\": spec.limited.nominalConcurrencyShares: ";
    let of_admission = "\"p\": spec.validations[0].expression: ";
    let broken = value.to_string();
    let gateway = gateway.restart(|directory| {
        write_at_once(&directory.join("fairgate.yaml"), &broken);
        write_at_once(&directory.join("admission.yaml"), &policy.to_string());
        write_at_once(&directory.join(POLICY), &level("own", -1));
    });
    let log = gateway.err().unwrap().join("\n");
    for told in [of_configuration, of_flow_control, of_admission] {
        assert_eq!(log.matches(told).count(), 1, "{told}: {log}");
    }

    // Without the mistake of the configuration, the others are told together, too.
    let directory = new_directory();
    value["limits"] = json!({});
    for (name, content) in [
        ("fairgate.yaml", value.to_string()),
        ("admission.yaml", policy.to_string()),
        (POLICY, level("own", -1)),
    ] {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let mut command = Command::new("timeout");
    command.args(["180", env!("CARGO_BIN_EXE_fairgate"), "serve", "--config"]);
    let ended = command
        .arg(directory.join("fairgate.yaml"))
        .output()
        .unwrap();
    fs::remove_dir_all(directory).unwrap();
    let log = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{log}");
    for told in [of_flow_control, of_admission] {
        assert_eq!(log.matches(told).count(), 1, "{told}: {log}");
    }
}

/// The gateway does not start with broken files and a kept policy that `forge` has changed, and says why it is not used.
#[track_caller]
fn is_not_used(forge: impl FnOnce(&Path), why: &str) {
    let gateway = start("state");
    let file = kept(&gateway.directory);
    let broken = gateway.restart(|directory| {
        write_at_once(&directory.join(POLICY), "this: [is not");
        forge(&file);
    });
    let log = broken.err().unwrap().join("\n");
    assert!(log.contains(why), "{why}: {log}");
    assert!(log.contains("the policies are invalid"), "{log}");
}

#[test]
fn a_kept_policy_that_was_changed_is_not_used() {
    is_not_used(
        |file| {
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, text.replace("\"own\"", "\"mine\"")).unwrap();
        },
        "its digest is not that of its documents",
    );
}

#[test]
fn a_kept_policy_that_is_half_written_is_not_used() {
    is_not_used(
        |file| {
            let text = fs::read(file).unwrap();
            fs::write(file, &text[..text.len() / 2]).unwrap();
        },
        "it is not complete",
    );
}

#[test]
fn a_kept_policy_of_another_version_is_not_used() {
    is_not_used(
        |file| {
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, text.replace("/v1alpha1", "/v7")).unwrap();
        },
        "fairgate.dev/v7",
    );
}

#[test]
fn a_kept_policy_that_others_can_write_is_not_used() {
    for mode in [0o620, 0o602] {
        is_not_used(
            |file| fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap(),
            "others can write to it",
        );
    }
    is_not_used(
        |file| {
            let directory = file.parent().unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o770)).unwrap();
        },
        "others can write to it",
    );
}

#[test]
fn a_kept_policy_behind_a_symbolic_link_is_not_used() {
    is_not_used(
        |file| {
            let elsewhere = file.with_extension("elsewhere");
            fs::rename(file, &elsewhere).unwrap();
            symlink(elsewhere, file).unwrap();
        },
        "symbolic link",
    );
}

#[test]
fn a_gateway_that_cannot_keep_its_policy_runs_and_says_so() {
    // The configuration itself is where the directory should be.
    let gateway = start("fairgate.yaml");
    wait_until("it says so", || ready(&gateway).contains("[!]state: "));
    let text = ready(&gateway);
    assert!(
        text.contains("fairgate.yaml") && text.contains("[+]policy ok\n"),
        "{text}"
    );
    assert!(has_level(&gateway, "own"));
    assert_eq!(
        gateway
            .wait_for_log("the policies in force cannot be kept", 1)
            .len(),
        1
    );
}

#[test]
fn a_reload_with_broken_policies_is_shown_until_one_is_applied() {
    let gateway = start("state");
    kept(&gateway.directory);
    let configuration = gateway.directory.join("fairgate.yaml");
    let mut value: Value = serde_json::from_slice(&fs::read(&configuration).unwrap()).unwrap();
    value["flowControl"]["policies"]["directory"] = json!("elsewhere");
    fs::create_dir(gateway.directory.join("elsewhere")).unwrap();
    gateway.write("elsewhere/own.yaml", &level("own", -1));
    gateway.write("fairgate.yaml", &value.to_string());
    let reloads = |outcome| {
        let series = format!("fairgate_config_reloads_total{{outcome=\"{outcome}\"}}");
        gateway.metric(&series)
    };
    gateway.hang_up();
    wait_until("it is refused", || reloads("failed") == Some(1));
    assert_eq!(gateway.metric(SYNCED), Some(0));
    let text = ready(&gateway);
    assert!(
        text.contains("[!]policy: refused at a reload") && text.contains("elsewhere/own.yaml"),
        "{text}"
    );
    assert!(has_level(&gateway, "own"));

    gateway.write("elsewhere/own.yaml", &level("other", 20));
    gateway.hang_up();
    wait_until("it is applied", || reloads("ok") == Some(1));
    assert_eq!(gateway.metric(SYNCED), Some(1));
    assert!(has_level(&gateway, "other") && ready(&gateway).contains("[+]policy ok\n"));
    // The other directory has a last good policy of its own.
    let file = |text: &str| {
        let paths = kept_files(&gateway.directory).into_iter();
        let texts = paths.map(|path| fs::read_to_string(path).unwrap());
        texts.filter(|kept| kept.contains(text)).count()
    };
    wait_until("it is kept, too", || {
        file("\"other\"") == 1 && file("\"own\"") == 1
    });
    let gateway = gateway
        .restart(|directory| write_at_once(&directory.join("elsewhere/own.yaml"), "[not"))
        .unwrap();
    assert!(has_level(&gateway, "other"));

    // Other settings do not hide that the files are broken.
    value["flowControl"]["totalSeats"] = json!(77);
    gateway.write("fairgate.yaml", &value.to_string());
    gateway.hang_up();
    wait_until("the setting is applied", || {
        gateway.metric("fairgate_total_seats") == Some(77)
    });
    assert_eq!(gateway.metric(SYNCED), Some(0));
    assert!(ready(&gateway).contains("[!]policy: refused for"));
    let logged = gateway.wait_for_log("this key changed, and is in force", 1);
    assert_eq!(logged.len(), 1, "{logged:?}");
    for words in ["flowControl.totalSeats", "from=600", "to=77"] {
        assert!(logged[0].contains(words), "{words}: {logged:?}");
    }
}

#[test]
fn a_policy_of_the_upstream_is_kept_for_a_start_without_it() {
    let (api, upstream) = Api::start();
    api.put_level("own", 30);
    let configuration = json!({
        "mode": "sidecar",
        "upstream": {"url": format!("http://{}", upstream.address), "tokenFile": "tokens"},
        "state": {"directory": "state"},
        "dataCores": 1,
    });
    let options = ProcessOptions {
        tokens: "gateway",
        ..ProcessOptions::default()
    };
    let gateway = GatewayProcess::with(configuration, &options);
    wait_until("the level is in force", || has_level(&gateway, "own"));
    assert_eq!(gateway.metric(SYNCED), Some(1));
    kept(&gateway.directory);
    drop(upstream);
    let gateway = gateway.restart(|_| ()).unwrap();
    assert!(has_level(&gateway, "own"));
    assert_eq!(gateway.metric(SYNCED), Some(0));
    let text = ready(&gateway);
    assert!(
        text.contains("[!]policy: not read from its source for"),
        "{text}"
    );
    assert!(text.contains("; the last good policy, kept "), "{text}");
    assert!(text.contains("[!]source: not reached for"), "{text}");
    assert!(
        text.contains("; the last good policy is in force\n"),
        "{text}"
    );
}

#[test]
fn two_gateways_on_one_state_directory_keep_one_whole_policy_and_start_with_it() {
    let one = start("state");
    let (state, policies) = (one.directory.join("state"), one.directory.join("policies"));
    let configuration = json!({
        "upstream": {"url": "http://127.0.0.1:9"},
        "flowControl": {"policies": {"directory": policies}},
        "state": {"directory": state},
        "dataCores": 1,
    });
    // By the same name, as the name of the source is its absolute path.
    let other = GatewayProcess::start(configuration);
    let file = kept(&one.directory);
    let is_kept = |name: &str| {
        let text = fs::read(&file).unwrap();
        let content: Value = serde_json::from_slice(&text).expect("what is kept is whole");
        content["documents"].to_string().contains(name)
    };
    for round in 0..10 {
        let name = format!("level-{round}");
        one.write(POLICY, &level(&name, 30));
        for gateway in [&one, &other] {
            wait_until("it is in force", || has_level(gateway, &name));
        }
        wait_until("it is kept", || is_kept(&name));
    }
    assert_eq!(kept_files(&one.directory).len(), 1);

    let other = other
        .restart(|_| one.write(POLICY, "this: [is not"))
        .unwrap();
    let one = one.restart(|_| ()).unwrap();
    for gateway in [&one, &other] {
        assert!(has_level(gateway, "level-9"));
        assert_eq!(gateway.metric(SYNCED), Some(0));
    }
}
