//! The verdict of `check` where it cannot judge everything.

use super::*;

#[test]
fn what_was_not_judged_is_said_with_the_verdict() {
    let directory = std::env::temp_dir().join(format!("fairgate-unjudged-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let config = directory.join("fairgate.yaml");
    let text = "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\nmode: sidecar\nupstream: {url: http://127.0.0.1:9}\n";
    let check = |more: &str| {
        std::fs::write(&config, format!("{text}{more}")).unwrap();
        let output = fairgate(&["check", "--config", &config.display().to_string()]);
        assert_eq!(output.outcome, CommandOutcome::Success, "{}", output.err);
        output.err
    };
    let err = check("");
    let verdict =
        "\nusable, except the flow control policy, which was not judged: 0 errors, 0 warnings\n";
    assert!(err.ends_with(verdict), "{err}");
    assert!(err.contains("--kubeconfig FILE"), "{err}");
    let err = check("admission: {mode: audit, policies: {source: upstream}}\n");
    let verdict = "\nusable, except the flow control policy and the admission policies, which were not judged: ";
    assert!(err.contains(verdict), "{err}");
    assert!(err.contains("| fairgate check --admission -\n"), "{err}");
    std::fs::remove_dir_all(directory).unwrap();
}
