//! Policies that are long to validate: patterns that are long to compile, and expressions that are long to check. They are sent as
//! dry runs, which anyone who may write policies can send without end.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::{
    Attack,
    hostile::{HostileClients, HostileRequest},
    own_work::{attack, checked, create, scene},
    report::Outcome,
};

pub(crate) const ATTACKS: &[Attack] = &[
    row(
        "policy-patterns",
        "dry runs of policies whose patterns are long to compile, 16 at a time, by one user",
        || play(ONE, patterns),
    ),
    row("policy-patterns-users", BY_USERS, || play(TWENTY, patterns)),
    row(
        "policy-expressions",
        "dry runs of policies whose expressions are long to read, to check and to estimate, by one user",
        || play(ONE, expressions),
    ),
    row("policy-expressions-users", BY_USERS, || {
        play(TWENTY, expressions)
    }),
    row(
        "policy-writes",
        "such policies are created and deleted, so that they are checked again and the set is compiled again, by one user",
        || play(ONE, writes),
    ),
    row("policy-writes-users", BY_USERS, || play(TWENTY, writes)),
];

const BY_USERS: &str = "the same by 20 users, 60 at a time";

const fn row(name: &'static str, about: &'static str, play: fn() -> Outcome) -> Attack {
    Attack {
        name,
        point: "27.2.1",
        about,
        play,
    }
}

/// Policies that are kept for a while.
const KEPT: usize = 20;
const ONE: HostileClients = HostileClients {
    clients: 16,
    users: 1,
    requests: 60,
};
const TWENTY: HostileClients = HostileClients {
    clients: 60,
    users: 20,
    requests: 120,
};
const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All";

fn play(clients: HostileClients, make: fn(usize) -> HostileRequest) -> Outcome {
    let config = json!({"admission": {"mode": "enforce", "policies": {"source": "hosted"}}});
    let played = scene(&config, clients.users).play(async |scene| {
        // What the victim writes has to be compiled as well.
        let turn = |number| {
            let expressions = [format!("'a'.matches('victim-{number}[a-z]+')")];
            HostileRequest {
                codes: &[201],
                ..policy("a policy of the victim", &expressions)
            }
        };
        attack(scene, clients, make, turn).await
    });
    let [refused, allowed] = [422, 201].map(|code| played.found.responses.with_code(code));
    let mut outcome = checked(played, clients);
    outcome.check(
        "what is within the limits is accepted, what exceeds them is refused",
        refused > 0 && allowed > 0,
        format!("{allowed} are accepted, {refused} are refused"),
    );
    outcome
}

fn policy(name: &'static str, expressions: &[String]) -> HostileRequest {
    let validations: Vec<_> = (expressions.iter())
        .map(|expression| json!({"expression": expression}))
        .collect();
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]);
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "written"},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations},
    });
    create(name, PATH, &object, &[201, 413, 422])
}

/// Policies with patterns, none of which is equal to an earlier one, because equal ones are compiled once.
fn patterns(number: usize) -> HostileRequest {
    let matches = |pattern: String| format!("'a'.matches(r'{pattern}')");
    let classes = r"(\pL|\pN|\pP|\pS){200}";
    match number % 7 {
        0 => policy(
            "a pattern of classes",
            &[matches(format!("{number}{classes}0"))],
        ),
        1 => {
            let all = (0..40).map(|at| matches(format!("{number}{classes}{at}")));
            policy(
                "40 patterns of classes",
                &[all.collect::<Vec<_>>().join(" || ")],
            )
        }
        2 => {
            let long = "[a-z]{1000}".repeat(25);
            let all: Vec<_> = (0..50)
                .map(|at| matches(format!("{number}-{at}{long}")))
                .collect();
            policy("50 patterns of 25 000 instructions", &all)
        }
        3 => {
            let all = [
                r"^[\p{L}\p{N}_.-]{1,253}$",
                r"^\p{L}{1,256}$",
                r"^\P{C}{1,1000}$",
            ];
            let all = all.map(|pattern| matches(format!("{number}{pattern}")));
            policy("patterns that Go accepts", &all)
        }
        4 => {
            let all: Vec<_> = (0..100)
                .map(|at| matches(format!(r"{number}-{at}(?i)(\pL[^\pN]){{450}}")))
                .collect();
            policy("100 patterns without case", &all)
        }
        5 => {
            let long = "[a-z]{1000}".repeat(50);
            let all: Vec<_> = (0..200)
                .map(|at| matches(format!("{number}-{at}{long}")))
                .collect();
            policy("more than a policy may have", &all)
        }
        _ => {
            let words = (0..4000).map(|at| format!("w{at}-{number}"));
            let words = words.collect::<Vec<_>>().join("|");
            policy("a pattern of 4000 words", &[matches(words)])
        }
    }
}

/// Policies without long patterns.
fn expressions(number: usize) -> HostileRequest {
    match number % 9 {
        0 => {
            let terms = (0..20_000).map(|at| format!("object.a{at} == {number}"));
            policy("20 000 terms", &[terms.collect::<Vec<_>>().join(" || ")])
        }
        1 => policy(
            "comprehensions within comprehensions",
            &[nested(12, |inner| format!("[1, 2].all(a, {inner})"))],
        ),
        2 => policy(
            "parentheses",
            &[format!("{}true{}", "(".repeat(40_000), ")".repeat(40_000))],
        ),
        3 => {
            let list = (0..100_000).map(|at| at.to_string());
            let list = list.collect::<Vec<_>>().join(",");
            policy(
                "a list of 100 000 numbers",
                &[format!("{number} in [{list}]")],
            )
        }
        4 => policy(
            "ternaries within ternaries",
            &[nested(40, |inner| {
                format!("object.a ? {inner} : {inner2}", inner2 = "false")
            })],
        ),
        5 => policy(
            "bindings that double what is bound",
            &[nested(14, |inner| {
                format!("cel.bind(x, [{inner}, {inner}], x == x)")
            })],
        ),
        6 => variables(number),
        7 => {
            let types = nested(30, |inner| format!("[{{'a': {inner}}}]"));
            policy("types of types", &[format!("{types} == {types}")])
        }
        _ => policy("a short one", &[format!("object.a == {number}")]),
    }
}

/// An expression within itself, so often.
fn nested(depth: usize, around: impl Fn(&str) -> String) -> String {
    let mut expression = "true".to_owned();
    for _ in 0..depth {
        expression = around(&expression);
    }
    expression
}

/// A policy with as many variables as there may be, each of which uses the one before twice.
fn variables(number: usize) -> HostileRequest {
    let variables = (0..500).map(|at| {
        let expression = match at {
            0 => "[object]".to_owned(),
            _ => format!(
                "[variables.v{before}, variables.v{before}]",
                before = at - 1
            ),
        };
        json!({"name": format!("v{at}"), "expression": expression})
    });
    let variables: Vec<Value> = variables.collect();
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": format!("variables-{number}")},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]},
            "variables": variables,
            "validations": [{"expression": "size(variables.v499) > 0"}],
        },
    });
    create("variables of variables", PATH, &object, &[201, 413, 422])
}

/// A policy that is created, or deleted again.
fn writes(number: usize) -> HostileRequest {
    let path = PATH.trim_end_matches("?dryRun=All");
    let name = format!("kept-{}", number / 2 % KEPT);
    let made = match number / 2 % 2 {
        0 => patterns(number / 4),
        _ => expressions(number / 4),
    };
    if number % 2 == 1 {
        return HostileRequest {
            name: "the deletion of a policy",
            method: Method::DELETE,
            path: format!("{path}/{name}").into(),
            body: Bytes::new(),
            codes: &[200, 404, 409],
            ..made
        };
    }
    let mut object: Value = serde_json::from_slice(&made.body).unwrap();
    object["metadata"]["name"] = json!(name);
    HostileRequest {
        path: path.into(),
        body: object.to_string().into(),
        codes: &[201, 409, 413, 422],
        ..made
    }
}
