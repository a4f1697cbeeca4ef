//! What evaluations allocate: nothing, unless the expression makes a value that has no place in the document.

use fairgate_cel::{CelJson, CelType, CelValue};

use super::environments::{NEWEST, base};

const OBJECT: &str = r#"{
    "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"owner": "a"}},
    "spec": {"replicas": 3, "account": "api", "containers": [
        {"name": "main", "image": "r.example.com/a:1", "limits": {"memory": "1Gi"}},
        {"name": "log", "image": "r.example.com/b:1", "limits": {"memory": "1Gi"}},
        {"name": "dns", "image": "r.example.com/c:1", "limits": {"memory": "1Gi"}}
    ]}
}"#;

/// Expressions that are true of the object, and how often evaluating them allocates.
const EXPRESSIONS: &[(&str, u64)] = &[
    ("object.spec.replicas <= 5", 0),
    ("!has(object.spec.paused) || object.spec.paused == false", 0),
    (
        "has(object.metadata.labels) && 'app' in object.metadata.labels",
        0,
    ),
    ("object.metadata.labels['app'] == 'web'", 0),
    ("object.spec.containers[1].name == 'log'", 0),
    (
        "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
        0,
    ),
    (
        "object.spec.containers.all(c, has(c.limits) && 'memory' in c.limits)",
        0,
    ),
    ("object.spec.containers.exists(c, c.name == 'dns')", 0),
    (
        "object.spec.containers.exists_one(c, c.image.startsWith('r.example.com/a'))",
        0,
    ),
    ("object.metadata.labels.all(k, k.size() < 64)", 0),
    ("object.spec.account in ['web', 'api', 'worker']", 0),
    ("object.metadata.name.matches('^[a-z]+$')", 0),
    ("object.spec.replicas * 2 + 1 == 7", 0),
    ("size(object.spec.containers) == 3 ? true : false", 0),
    // The optional value.
    (
        "object.metadata.?annotations['owner'].orValue('none') != 'none'",
        1,
    ),
    // The text, and what it is shared as.
    ("'name: ' + object.metadata.name == 'name: web'", 2),
    // The list, and what it is shared as.
    ("object.spec.containers.map(c, c.name).size() == 3", 2),
];

#[test]
fn evaluations_allocate_only_for_values_that_they_make() {
    let environment = base(NEWEST).variable("object", CelType::Dyn).build();
    let object: CelJson<'_> = serde_json::from_str(OBJECT).unwrap();
    let bindings = environment
        .bindings()
        .with("object", CelValue::json(&object));
    for (expression, expected) in EXPRESSIONS {
        let program = environment.compile(expression).unwrap();
        let evaluate = || {
            let evaluation = program.evaluate(&bindings);
            assert_eq!(evaluation.result, Ok(CelValue::Bool(true)), "{expression}");
        };
        // Patterns get their scratch space at their first use.
        evaluate();
        let counted = allocation_counter::measure(evaluate);
        assert_eq!(counted.count_total, *expected, "{expression}");
    }
}

#[test]
fn bindings_of_a_few_variables_allocate_nothing() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let builder = names.iter().fold(base(NEWEST), |builder, name| {
        builder.variable(name, CelType::Dyn)
    });
    let environment = builder.build();
    let counted = allocation_counter::measure(|| {
        let mut bindings = environment.bindings();
        assert!(bindings.set("h", CelValue::Bool(true)));
    });
    assert_eq!(counted.count_total, 0);
}
