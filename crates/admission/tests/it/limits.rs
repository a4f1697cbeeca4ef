//! What could run or grow without bound: chains of variables, and repetition.

use std::cell::Cell;
use std::sync::Arc;

use fairgate_admission::{
    AdmissionAbort, AdmissionAttributes, AdmissionInputs, AdmissionObjects, AdmissionOperation,
    ClusterInputs, ConversionFailure, DecisionKind, EquivalentResource, EvaluationBudgets,
    GroupVersionKind, GroupVersionResource, InputFailure, ParamScope, PolicyParamKind, PolicySet,
};
use fairgate_cel::CelJson;
use fairgate_cel::library::authorizer::CelAuthorizer;
use fairgate_core::digest::User;
use fairgate_core::time::Time;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde_json::{Value, json};

/// The default stack size of tokio's and the standard library's threads, in bytes.
const STACK: usize = 2 << 20;

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(test).unwrap().join().unwrap();
}

/// A cluster with one namespace.
pub(super) struct Cluster {
    object: CelJson<'static>,
    namespace: CelJson<'static>,
    params: Vec<CelJson<'static>>,
    /// How often an evaluation has asked whether to stop.
    asked: Cell<u32>,
    /// Whether it is then told to.
    stops: bool,
}

impl Cluster {
    fn new() -> Self {
        Self::with(
            r#"{"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"replicas": 3}}"#,
        )
    }

    /// With this object to be written.
    pub(super) fn with(object: &'static str) -> Self {
        let namespace = r#"{"metadata": {"name": "shop", "labels": {"env": "prod", "team": "a"}}}"#;
        Self {
            object: serde_json::from_str(object).unwrap(),
            namespace: serde_json::from_str(namespace).unwrap(),
            params: Vec::new(),
            asked: Cell::new(0),
            stops: false,
        }
    }
}

impl AdmissionInputs for Cluster {
    fn objects(&self, _: GroupVersionKind<'_>) -> Result<AdmissionObjects<'_>, ConversionFailure> {
        Ok(AdmissionObjects {
            object: Some(&self.object),
            old_object: None,
        })
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        &[]
    }

    fn cluster(&self) -> &dyn ClusterInputs {
        self
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.asked.get().into())
    }

    fn is_interrupted(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.stops
    }

    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        unreachable!("no policy here asks")
    }
}

impl ClusterInputs for Cluster {
    fn namespace(&self, _: &str) -> Result<&CelJson<'_>, InputFailure> {
        Ok(&self.namespace)
    }

    fn param_scope(&self, _: &PolicyParamKind) -> Result<ParamScope, String> {
        Ok(ParamScope::Namespaced)
    }

    fn params_known(&self, _: &PolicyParamKind) -> bool {
        true
    }

    fn param(&self, _: &PolicyParamKind, _: &str, _: &str) -> Result<&CelJson<'_>, InputFailure> {
        Err(InputFailure::NotFound)
    }

    fn params(&self, _: &PolicyParamKind, _: &str) -> Vec<&CelJson<'_>> {
        self.params.iter().collect()
    }
}

pub(super) fn creation(user: &User) -> AdmissionAttributes<'_> {
    AdmissionAttributes {
        operation: AdmissionOperation::Create,
        resource: GroupVersionResource {
            group: "apps",
            version: "v1",
            resource: "deployments",
        },
        subresource: "",
        kind: GroupVersionKind {
            group: "apps",
            version: "v1",
            kind: "Deployment",
        },
        namespace: "shop",
        name: "web",
        user,
        dry_run: false,
        options: None,
    }
}

pub(super) fn policy(name: &str, resources: &Value, spec: &Value) -> ValidatingAdmissionPolicy {
    let mut document = json!({"metadata": {"name": name}, "spec": spec});
    document["spec"]["matchConstraints"] = resources.clone();
    serde_json::from_value(document).unwrap()
}

pub(super) fn binding(policy: &str) -> ValidatingAdmissionPolicyBinding {
    let spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    serde_json::from_value(json!({"metadata": {"name": "b"}, "spec": spec})).unwrap()
}

pub(super) fn resources(resource: &str, namespaces: &Value) -> Value {
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]});
    json!({"matchPolicy": "Equivalent", "namespaceSelector": namespaces, "objectSelector": {}, "resourceRules": [rule]})
}

/// The decisions of the policy `spec` about the creation of a Deployment.
fn decisions(spec: &Value) -> Vec<(DecisionKind, String)> {
    let policies = [policy("p", &resources("*", &json!({})), spec)];
    let set = PolicySet::compile(&policies, &[binding("p")]);
    let user = User::new("alice", ["dev"]);
    let (attributes, cluster) = (creation(&user), Cluster::new());
    let verdict = set.evaluate(&attributes, &cluster, EvaluationBudgets::default());
    let evaluations = verdict.unwrap().evaluations;
    let decisions = evaluations.into_iter().flat_map(|one| one.decisions);
    decisions.map(|one| (one.kind, one.message)).collect()
}

/// Variables that each use the one before, in an expression that nests `nesting` deep.
fn chain(length: usize, nesting: usize) -> Value {
    let mut variables = vec![json!({"name": "v0", "expression": "object.spec.replicas"})];
    for at in 1..length {
        let inner = format!("variables.v{}", at - 1);
        let expression = format!("{}{inner}{}", "-(".repeat(nesting), ")".repeat(nesting));
        variables.push(json!({"name": format!("v{at}"), "expression": expression}));
    }
    let last = format!("variables.v{} == 3", length - 1);
    json!({"variables": variables, "validations": [{"expression": last}]})
}

#[test]
fn chains_of_variables_as_people_write_them_are_computed() {
    for (length, nesting) in [(2, 0), (40, 2), (5, 100)] {
        let decisions = decisions(&chain(length, nesting));
        assert_eq!(decisions[0].0, DecisionKind::Allowed, "{decisions:?}");
    }
}

#[test]
fn a_chain_of_variables_of_any_length_ends_with_an_error_and_not_with_a_stack_overflow() {
    for (length, nesting) in [(3000, 0), (300, 4), (60, 120), (1000, 1)] {
        on_a_small_stack(move || {
            let decisions = decisions(&chain(length, nesting));
            assert_eq!(decisions[0].0, DecisionKind::ErrorDenied);
            assert!(
                decisions[0].1.ends_with("variables nest too deep"),
                "{}",
                decisions[0].1.len()
            );
        });
    }
}

#[test]
fn a_variable_that_uses_itself_through_a_later_one_of_the_same_name_ends() {
    let variables = json!([
        {"name": "a", "expression": "1"},
        {"name": "b", "expression": "variables.a"},
        {"name": "a", "expression": "variables.b"},
    ]);
    let validations = json!([{"expression": "variables.a == 1"}]);
    on_a_small_stack(move || {
        let decisions = decisions(&json!({"variables": variables, "validations": validations}));
        assert_eq!(decisions[0].0, DecisionKind::ErrorDenied);
    });
}

#[test]
fn a_variable_is_computed_once_however_often_it_is_used() {
    // Each of 300 uses would cost 300 000 if it were computed again: more than all may cost.
    let costly = "lists.range(300).all(a, lists.range(100).all(b, a + b >= 0))";
    let uses = vec!["variables.v"; 300].join(" && ");
    let spec = json!({
        "variables": [{"name": "v", "expression": costly}],
        "validations": [{"expression": uses}],
    });
    assert_eq!(decisions(&spec)[0].0, DecisionKind::Allowed);
}

#[test]
fn expressions_whose_cost_says_nothing_of_their_work_share_a_limit() {
    let validations = vec![json!({"expression": endless()}); 20];
    let spec = json!({"validations": validations});
    let policies = [policy("p", &resources("*", &json!({})), &spec)];
    let set = PolicySet::compile(&policies, &[binding("p")]);
    let user = User::new("alice", ["dev"]);
    let (attributes, cluster) = (creation(&user), Cluster::new());
    let budgets = EvaluationBudgets {
        validations: 100_000,
        ..EvaluationBudgets::default()
    };
    let verdict = set.evaluate(&attributes, &cluster, budgets).unwrap();
    let decisions = &verdict.evaluations[0].decisions;
    assert_eq!(decisions.len(), 20);
    for decision in decisions {
        assert_eq!(decision.kind, DecisionKind::ErrorDenied);
        let message = &decision.message;
        assert!(
            message.ends_with("too much work that its cost does not count"),
            "{message}"
        );
    }
    // A hundred iterations ask once, and take three steps each or more: of one expression, and of the budget. Without
    // the limit all twenty would take as many as the first.
    assert!(cluster.asked.get() < 20_000, "{}", cluster.asked.get());
}

/// An expression that does more work than its cost allows.
fn endless() -> String {
    // A list that is doubled 22 times costs some hundreds; walking over it costs nothing.
    let list = (0..22).fold("[[]]".to_owned(), |list, _| {
        format!("[{list}].map(v, v + v)[0]")
    });
    format!("[{list}].exists_one(b, b.exists_one(x, false))")
}

fn of_validation(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

fn of_condition(expression: &str) -> Value {
    json!({
        "matchConditions": [{"name": "c", "expression": expression}],
        "validations": [{"expression": "true"}],
    })
}

fn with_variable(variable: &str, expression: &str) -> Value {
    json!({
        "variables": [{"name": "v", "expression": variable}],
        "validations": [{"expression": expression}],
    })
}

/// What a policy with this specification finds is denied although its failure policy is `Ignore`, and the message says why.
fn is_not_ignored(what: &str, mut spec: Value) {
    spec["failurePolicy"] = "Ignore".into();
    let decisions = decisions(&spec);
    let (kind, message) = decisions.first().expect(what);
    assert_eq!(*kind, DecisionKind::ErrorDenied, "{what}: {message}");
    assert!(
        message.ends_with("(a limit of fairgate; failurePolicy Ignore does not cover it)"),
        "{what}: {message}"
    );
}

#[test]
fn no_failure_policy_ignores_a_limit_that_kubernetes_does_not_have() {
    let endless = endless();
    // Half a million characters, which Go's package would accept.
    let pattern = format!(
        "'x'.matches('({}' + object.metadata.name + '){{1000}}')",
        "a".repeat(500)
    );
    // Each variable looks the former one up, at a depth that only the limit ends.
    let deep = chain(3000, 0);
    let specs = [
        ("a validation", of_validation(&endless)),
        ("a condition", of_condition(&endless)),
        ("a variable", with_variable(&endless, "variables.v")),
        (
            "a variable that an operator would absorb",
            with_variable(&endless, "variables.v || true"),
        ),
        (
            "a validation after one that has taken all work",
            json!({"validations": [
                {"expression": &endless}, {"expression": &endless}, {"expression": &endless}, {"expression": &endless},
                {"expression": "object.metadata.name == 'web'"},
            ]}),
        ),
        ("a pattern", of_validation(&pattern)),
        (
            "a pattern that an operator would absorb",
            of_validation(&format!("{pattern} || true")),
        ),
        ("a chain of variables", deep),
        (
            "digits of a quantity",
            of_validation("isQuantity('1234567890123456789012345e200000')"),
        ),
        (
            "digits of a sum",
            of_validation("quantity('1e200000').add(quantity('1n')).isGreaterThan(quantity('0'))"),
        ),
    ];
    for (what, spec) in specs {
        is_not_ignored(what, spec);
    }
}

#[test]
fn no_failure_policy_ignores_that_constant_patterns_are_too_large() {
    // Half a million characters, which Go's package would accept, known when the policy is read. And smaller ones, which are too large together.
    let constant = format!("'x'.matches('({}){{1000}}')", "a".repeat(500));
    let smaller = |name: char| {
        format!(
            "'x'.matches('({name}{{250}}){{4}}|{}')",
            "b{1000}".repeat(150)
        )
    };
    let together = ('a'..'k').map(smaller).collect::<Vec<_>>().join(" || ");
    let specs = [
        ("a constant pattern", of_validation(&constant)),
        (
            "a constant pattern that an operator would absorb",
            of_validation(&format!("{constant} || true")),
        ),
        (
            "a condition with a constant pattern",
            of_condition(&constant),
        ),
        (
            "a variable with a constant pattern that an operator would absorb",
            with_variable(&constant, "variables.v || true"),
        ),
        (
            "patterns that are too large together",
            of_validation(&together),
        ),
    ];
    for (what, spec) in specs {
        is_not_ignored(what, spec);
    }
}

#[test]
fn errors_and_limits_of_kubernetes_are_ignored_as_there() {
    let costly = "lists.range(100000).all(a, lists.range(100000).all(b, a + b >= 0))";
    for spec in [
        of_validation("object.spec.absent == 1"),
        of_validation(costly),
    ] {
        let mut spec = spec;
        spec["failurePolicy"] = "Ignore".into();
        let decisions = decisions(&spec);
        assert_eq!(decisions[0].0, DecisionKind::ErrorIgnored, "{decisions:?}");
    }
    // A condition that is false counts for more than one that ends at a limit.
    let spec = json!({
        "failurePolicy": "Ignore", "validations": [{"expression": "true"}],
        "matchConditions": [{"name": "c", "expression": endless()}, {"name": "d", "expression": "false"}],
    });
    assert_eq!(decisions(&spec), []);
}

#[test]
fn an_audit_annotation_that_ends_at_a_limit_is_not_left_out() {
    let spec = json!({
        "failurePolicy": "Ignore",
        "auditAnnotations": [{"key": "k", "valueExpression": format!("string({})", endless())}],
    });
    let policies = [policy("p", &resources("*", &json!({})), &spec)];
    let set = PolicySet::compile(&policies, &[binding("p")]);
    let user = User::new("alice", ["dev"]);
    let (attributes, cluster) = (creation(&user), Cluster::new());
    let verdict = set.evaluate(&attributes, &cluster, EvaluationBudgets::default());
    let denials = verdict.unwrap().denials;
    assert_eq!(denials.len(), 1, "{denials:?}");
    let message = &denials[0].message;
    assert!(message.ends_with("does not cover it)"), "{message}");
}

/// Whether evaluating is stopped, and how many of its expressions were.
fn interrupted(set: &PolicySet, cluster: &Cluster) -> (bool, usize) {
    let user = User::new("alice", ["dev"]);
    let attributes = creation(&user);
    match set.evaluate(&attributes, cluster, EvaluationBudgets::default()) {
        Err(AdmissionAbort::Interrupted) => (true, 0),
        Err(error) => panic!("{error}"),
        Ok(verdict) => {
            let decisions = verdict.evaluations.iter().flat_map(|one| &one.decisions);
            let is_stopped = |message: &str| message.ends_with("operation interrupted");
            let stopped = decisions.filter(|one| is_stopped(&one.message)).count();
            (false, stopped)
        }
    }
}

#[test]
fn short_evaluations_are_interrupted_between_two_of_them() {
    // Each is too short to be interrupted itself.
    let short = json!({"expression": "lists.range(90).all(at, at >= 0)"});
    let all = resources("*", &json!({}));
    let mut cluster = Cluster::new();
    cluster.stops = true;

    let param = r#"{"metadata": {"name": "p", "namespace": "shop"}}"#;
    cluster.params = vec![serde_json::from_str(param).unwrap(); 300];
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [&short],
    });
    let mut bound = serde_json::to_value(binding("p")).unwrap();
    bound["spec"]["paramRef"] = json!({"selector": {}, "parameterNotFoundAction": "Deny"});
    let bound = serde_json::from_value(bound).unwrap();
    let set = PolicySet::compile(&[policy("p", &all, &spec)], &[bound]);
    assert_eq!(interrupted(&set, &cluster), (true, 0));
    assert_eq!(cluster.asked.replace(0), 1, "of 300 params");

    let names = ["a", "b", "c"];
    let spec = json!({"validations": [&short]});
    let policies = names.map(|name| policy(name, &all, &spec));
    let set = PolicySet::compile(&policies, &names.map(binding));
    assert_eq!(interrupted(&set, &cluster), (true, 0));
    assert_eq!(cluster.asked.replace(0), 1, "of three policies");

    let spec = json!({"validations": vec![&short; 50]});
    let set = PolicySet::compile(&[policy("p", &all, &spec)], &[binding("p")]);
    assert_eq!(interrupted(&set, &cluster), (false, 49));
    assert_eq!(cluster.asked.replace(0), 49, "of fifty expressions");

    let variables =
        (0..50).map(|at| json!({"name": format!("v{at}"), "expression": short["expression"]}));
    let uses: Vec<_> = (0..50).map(|at| format!("variables.v{at}")).collect();
    let spec = json!({
        "variables": variables.collect::<Vec<_>>(),
        "validations": [{"expression": uses.join(" && ")}],
    });
    let set = PolicySet::compile(&[policy("p", &all, &spec)], &[binding("p")]);
    assert_eq!(
        interrupted(&set, &cluster),
        (false, 1),
        "at the first variable"
    );
}

#[test]
fn each_expression_is_timed_by_itself() {
    // The clock of the cluster goes on whenever it is asked: with each hundred iterations.
    let costly = "lists.range(1000).exists(at, at < 0)";
    let expressions = ["false", costly, "object == null"];
    let one = |expression| json!({"expression": expression});
    let names = ["a", "b", "c", "all", "mixed"];
    let specs = [
        json!([one(expressions[0])]),
        json!([one(expressions[1])]),
        json!([one(expressions[2])]),
        json!(expressions.map(one)),
        // After one that holds, too.
        json!(["!lists.range(1000).exists(at, at < 0)", "false"].map(one)),
    ];
    let all = resources("*", &json!({}));
    let made = names.iter().zip(&specs);
    let policies: Vec<_> = made
        .map(|(name, validations)| policy(name, &all, &json!({"validations": validations})))
        .collect();
    let set = PolicySet::compile(&policies, &names.map(binding));
    let user = User::new("alice", ["dev"]);
    let (attributes, cluster) = (creation(&user), Cluster::new());
    let verdict = set.evaluate(&attributes, &cluster, EvaluationBudgets::default());
    let checks = verdict.unwrap().checks;
    let took: Vec<_> = checks.iter().map(|one| one.took.as_nanos()).collect();
    // In a policy with several expressions it is asked once before each but the first.
    assert_eq!((took.len(), took[6]), (7, 1));
    for (asked, took) in took[..6].chunks(3).enumerate() {
        assert_eq!(took[0], 0);
        assert!(took[1] >= 10, "{took:?}");
        assert_eq!(took[2], asked as u128, "not with the one before");
    }
}
