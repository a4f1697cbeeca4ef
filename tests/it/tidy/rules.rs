//! Which modules of a crate must not use which others, and why.
//!
//! The compiler keeps crates apart, and `circles` modules that would use each other. These rules are about modules that could use
//! each other without a circle, and must not. They are few: a rule earns its place by a reason.

use super::{code, files, is_test, modules_named, nothing_is};

/// Modules that do not use others.
struct Rule {
    /// The sources of a crate.
    within: &'static str,
    /// Modules at the top of it.
    these: &'static [&'static str],
    /// What none of them may use: modules at the top of the same crate. A module may use itself.
    not: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        within: "crates/proxy/src",
        these: &["serve", "auth", "fairness", "forward"],
        not: &["serve", "auth", "fairness", "forward", "stack"],
        why: "layers never use each other; what one needs of another is in the Call, or in its settings",
    },
    Rule {
        within: "crates/core/src",
        these: &["digest", "cells", "mailbox", "fairness", "random"],
        not: &["apf"],
        why: "a request is described and counted without knowing how seats are shared",
    },
    Rule {
        within: "crates/core/src",
        these: &["apf"],
        not: &["cells", "mailbox", "fairness"],
        why: "the dispatcher counts in plain cells of its own, and tells its caller what to deliver",
    },
    Rule {
        within: "crates/cel/src",
        these: &["syntax", "checker", "value"],
        not: &["program"],
        why: "what can be said of an expression does not depend on how it is evaluated",
    },
    Rule {
        within: "crates/disruption/src",
        these: &["controller", "procedure", "waiting"],
        not: &["controller", "procedure", "waiting"],
        why: "the controller counts, the procedure charges, and both meet only in the status of a budget",
    },
    Rule {
        within: "crates/fleet/src",
        these: &["gateway", "coordinator", "division", "remote"],
        not: &["gateway", "coordinator", "division", "remote"],
        why: "gateways and the coordinator run in different processes, and meet only in records",
    },
    Rule {
        within: "crates/admission/src",
        these: &["matching", "evaluation", "evaluate"],
        not: &["audit", "record", "validate"],
        why: "a verdict does not depend on what is written about it, nor on what could be hosted",
    },
    Rule {
        within: "crates/store/src",
        these: &["etcd", "local", "mirror", "watch", "fan_out"],
        not: &["etcd", "local"],
        why: "the stores can be replaced by each other, so neither they nor what is common to them knows one",
    },
    Rule {
        within: "crates/apiserver/src",
        these: &["calls", "discovery", "openapi", "reconcile", "admission"],
        not: &["layer", "merging", "documents"],
        why: "the hosted API is the same with and without an upstream whose documents it is merged into",
    },
    Rule {
        within: "crates/observe/src",
        these: &["metrics", "counting"],
        not: &["ports", "dumps"],
        why: "what counts does not know who reads it",
    },
    Rule {
        within: "src",
        these: &["app"],
        not: &["cli"],
        why: "a gateway does not depend on the command that started it",
    },
];

#[test]
fn modules_keep_the_rules() {
    let mut wrong = Vec::new();
    for rule in RULES {
        let Rule { within, why, .. } = rule;
        let mut found = Vec::new();
        for path in files(within, "rs").iter().filter(|path| !is_test(path)) {
            let inside = path.strip_prefix(within).unwrap();
            let top = inside.iter().next().unwrap().to_str().unwrap();
            let top = top.strip_suffix(".rs").unwrap_or(top);
            found.push(top.to_owned());
            if !rule.these.contains(&top) {
                continue;
            }
            for module in modules_named(&code(path)) {
                if module != top && rule.not.contains(&module.as_str()) {
                    let path = path.display();
                    wrong.push(format!("{path}: `{top}` must not use `{module}`: {why}"));
                }
            }
        }
        for name in rule.these.iter().chain(rule.not) {
            if !found.iter().any(|module| module == name) {
                wrong.push(format!(
                    "{within}: there is no module `{name}` any more; correct tests/it/tidy/rules.rs"
                ));
            }
        }
    }
    nothing_is(&wrong);
}
