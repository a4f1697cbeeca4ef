//! What does evaluating an object by CEL expressions cost?
//!
//! A Pod of 4 KiB is decoded and evaluated by one simple validation and by ten usual policies. The baseline is decoding the
//! Pod into `serde_json`'s `Value`, which every other engine for Rust begins with.

mod support;

use std::hint::black_box;

use fairgate_cel::{CelEnvironment, CelJson, CelProgram, CelType, CelValue, library};
use serde_json::Value;
use support::{Case, measure, pod::pod};

/// Expressions as policies have them: one for each of ten policies.
const POLICIES: [&str; 10] = [
    "object.spec.containers.all(c, has(c.resources.limits) && 'memory' in c.resources.limits)",
    "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
    "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
    "!has(object.spec.hostNetwork) || object.spec.hostNetwork == false",
    "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || c.securityContext.privileged == false)",
    "has(object.metadata.labels) && 'app.kubernetes.io/name' in object.metadata.labels",
    "object.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "object.spec.serviceAccountName in ['web', 'api', 'worker']",
    "object.spec.containers.exists_one(c, c.name == 'main')",
    "object.metadata.?annotations['owner'].orValue('none') != 'none'",
];

fn environment() -> CelEnvironment {
    CelEnvironment::builder()
        .library(&library::OptionalTypes)
        .variable("object", CelType::Dyn)
        .homogeneous_literals(true)
        .literal_validators(true)
        .build()
}

fn compiled(environment: &CelEnvironment, expression: &str) -> CelProgram {
    let program = environment.compile(expression);
    program.expect("the expression compiles")
}

/// Evaluating the decoded Pod by `expressions`.
fn evaluating<'a>(name: &str, text: &'a str, expressions: &'a [&str]) -> Case<'a> {
    Case::new(name, move || {
        let environment = environment();
        let programs: Vec<_> = expressions
            .iter()
            .map(|expression| compiled(&environment, expression))
            .collect();
        let node: CelJson<'a> = serde_json::from_str(text).expect("the Pod is JSON");
        move || {
            let bindings = environment.bindings().with("object", CelValue::json(&node));
            for program in &programs {
                let evaluation = program.evaluate(&bindings);
                assert_eq!(evaluation.result, Ok(CelValue::Bool(true)));
            }
        }
    })
}

/// One simple validation, with the variables bound before.
fn simple(text: &str) -> Case<'_> {
    Case::new("one simple validation", move || {
        // What the round uses lives as long as the bench.
        let environment: &CelEnvironment = Box::leak(Box::new(environment()));
        let program = Box::leak(Box::new(compiled(environment, "object.spec.replicas <= 5")));
        let node: &CelJson<'_> = Box::leak(Box::new(
            serde_json::from_str(text).expect("the Pod is JSON"),
        ));
        let bindings = Box::leak(Box::new(
            environment.bindings().with("object", CelValue::json(node)),
        ));
        move || {
            let evaluation = program.evaluate(bindings);
            assert_eq!(evaluation.result, Ok(CelValue::Bool(true)));
        }
    })
}

fn main() {
    let text = pod();
    println!("the Pod has {} bytes", text.len());
    measure(
        "What does evaluating an object by CEL expressions cost?",
        vec![
            Case::new("decode with serde_json (baseline)", || {
                || {
                    black_box(serde_json::from_str::<Value>(&text).expect("it is JSON"));
                }
            }),
            Case::new("decode for expressions", || {
                || {
                    black_box(serde_json::from_str::<CelJson<'_>>(&text).expect("it is JSON"));
                }
            }),
            simple(&text),
            evaluating("ten policies", &text, &POLICIES),
            Case::new("compile ten policies", || {
                let environment = environment();
                move || {
                    for policy in POLICIES {
                        black_box(compiled(&environment, policy));
                    }
                }
            }),
        ],
    );
}
