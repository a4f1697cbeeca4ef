//! A request that is evaluated without a server, and all that evaluating may ask for.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::resources::{KnownResources, TestedResource};
use fairgate_admission::{
    AdmissionAttributes, AdmissionInputs, AdmissionObjects, AdmissionOperation, ClusterInputs,
    ConversionFailure, EquivalentResource, EvaluationObserver, ExpressionRole, ExpressionStep,
    GroupVersionKind, GroupVersionResource, InputFailure, ParamScope, PolicyParamKind,
};
use fairgate_cel::{
    CelJson,
    library::authorizer::{AuthorizationAnswer, AuthorizationCheck, CelAuthorizer},
};
use fairgate_core::digest::User;
use fairgate_objects::conversion::BuiltInConversion;

/// An authorization check with its answer. Attributes that it does not name may have any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AnsweredCheck {
    /// Values by attribute: `verb`, `group`, `resource`, `subresource`, `namespace`, `name`, `path`, `serviceAccount`
    /// (`NAMESPACE/NAME`), `fieldSelector`, `labelSelector`.
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) answer: AuthorizationAnswer,
}

/// A request to evaluate.
#[derive(Clone, Debug)]
pub(super) struct TestRequest {
    pub(super) operation: AdmissionOperation,
    pub(super) resource: TestedResource,
    /// Empty for cluster-scoped resources.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) user: User,
    pub(super) dry_run: bool,
    /// `CreateOptions` and so on; null for upgrades.
    pub(super) options: Value,
    pub(super) object: Option<Value>,
    pub(super) old_object: Option<Value>,
    /// The namespaces that are known.
    pub(super) namespaces: Vec<Value>,
    pub(super) params: Vec<Value>,
    pub(super) checks: Vec<AnsweredCheck>,
}

impl TestRequest {
    fn requested(&self) -> GroupVersionResource<'_> {
        resource_of(&self.resource)
    }

    /// The attributes. `options` are those of the request, converted.
    pub(super) fn attributes<'s>(
        &'s self,
        options: Option<&'s CelJson<'s>>,
    ) -> AdmissionAttributes<'s> {
        AdmissionAttributes {
            operation: self.operation,
            resource: self.requested(),
            subresource: &self.resource.subresource,
            kind: kind_of(&self.resource),
            namespace: &self.namespace,
            name: &self.name,
            user: &self.user,
            dry_run: self.dry_run,
            options,
        }
    }
}

fn resource_of(of: &TestedResource) -> GroupVersionResource<'_> {
    GroupVersionResource {
        group: &of.group,
        version: &of.version,
        resource: &of.plural,
    }
}

fn kind_of(of: &TestedResource) -> GroupVersionKind<'_> {
    let [group, version, kind] = &of.kind;
    GroupVersionKind {
        group,
        version,
        kind,
    }
}

/// A document as expressions see it.
///
/// # Errors
///
/// A number that is none in JSON.
pub(super) fn node(value: &Value) -> Result<CelJson<'_>, String> {
    CelJson::deserialize(value).map_err(|error| error.to_string())
}

fn as_admission_objects<'a>(
    [object, old_object]: &'a [Option<CelJson<'a>>; 2],
) -> AdmissionObjects<'a> {
    AdmissionObjects {
        object: object.as_ref(),
        old_object: old_object.as_ref(),
    }
}

/// The default of a namespace that is not given.
fn assumed_namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}

/// An expression that was evaluated.
#[derive(Clone, Debug)]
pub(super) struct TracedExpression {
    pub(super) role: ExpressionRole,
    pub(super) index: usize,
    /// The name of a variable.
    pub(super) name: String,
    /// The value as text, or the error.
    pub(super) result: Result<String, String>,
    pub(super) cost: u64,
}

/// An evaluation of a policy, as it was seen.
#[derive(Clone, Debug)]
pub(super) struct TracedEvaluation {
    /// The param's name; empty if there is none.
    pub(super) param: String,
    pub(super) expressions: Vec<TracedExpression>,
}

/// A wrong configuration: policy, binding, text.
pub(super) type TracedError = (String, Option<String>, String);

/// What was seen while a request was evaluated.
#[derive(Default)]
pub(super) struct EvaluationTrace {
    /// In the order of the verdict's evaluations.
    evaluations: RefCell<Vec<TracedEvaluation>>,
    errors: RefCell<Vec<TracedError>>,
}

impl EvaluationTrace {
    /// The evaluations in the order of the verdict's, and the errors.
    pub(super) fn into_parts(self) -> (Vec<TracedEvaluation>, Vec<TracedError>) {
        (self.evaluations.into_inner(), self.errors.into_inner())
    }
}

impl EvaluationObserver for EvaluationTrace {
    fn evaluation(&self, _: &str, _: &str, param: Option<&CelJson<'_>>) {
        let param = param.map(|param| param.text_at(&["metadata", "name"]).to_owned());
        self.evaluations.borrow_mut().push(TracedEvaluation {
            param: param.unwrap_or_default(),
            expressions: Vec::new(),
        });
    }

    fn expression(&self, step: &ExpressionStep<'_>) {
        let traced = TracedExpression {
            role: step.role,
            index: step.index,
            name: step.name.to_owned(),
            result: match step.result {
                Ok(value) => Ok(value.to_string()),
                Err(error) => Err(error.to_owned()),
            },
            cost: step.cost,
        };
        if let Some(last) = self.evaluations.borrow_mut().last_mut() {
            last.expressions.push(traced);
        }
    }

    fn configuration_error(&self, policy: &str, binding: Option<&str>, error: &str) {
        let binding = binding.map(str::to_owned);
        let error = (policy.to_owned(), binding, error.to_owned());
        self.errors.borrow_mut().push(error);
    }
}

/// The object and the old object of a request in another version, or why they cannot be converted.
type ConvertedDocuments = Result<[Option<Value>; 2], String>;

/// Values that [`TestInputs`] borrows from.
pub(super) struct TestDocuments {
    equivalents: Vec<TestedResource>,
    /// By kind, what the request has in other versions.
    converted: Vec<([String; 3], ConvertedDocuments)>,
    namespace: Value,
    /// Whether the namespace of the request is made up.
    is_assumed: bool,
}

impl TestDocuments {
    pub(super) fn of(request: &TestRequest, known: &KnownResources) -> Self {
        let mut namespaces = request.namespaces.iter();
        let found = namespaces.find(|one| one["metadata"]["name"] == *request.namespace);
        let equivalents = known.equivalents(&request.resource);
        let converted = equivalents.iter().filter_map(|other| {
            let kinds = [&request.resource.kind, &other.kind];
            let [from, to] = kinds.map(|kind| kind.each_ref().map(|part| &**part));
            let conversion = BuiltInConversion::between(from, to)?;
            let objects = [&request.object, &request.old_object].map(|object| {
                let object = object.as_ref().map(|object| conversion.convert(object));
                object.transpose().map_err(|error| error.to_string())
            });
            let [object, old_object] = objects;
            let both = object.and_then(|object| Ok([object, old_object?]));
            Some((other.kind.clone(), both))
        });
        Self {
            converted: converted.collect(),
            equivalents,
            namespace: found
                .cloned()
                .unwrap_or_else(|| assumed_namespace(&request.namespace)),
            is_assumed: found.is_none(),
        }
    }
}

/// The same as expressions see it.
type ConvertedNodes<'w> = Result<[Option<CelJson<'w>>; 2], &'w str>;

/// All that evaluating a request may ask for.
pub(super) struct TestInputs<'w> {
    request: &'w TestRequest,
    known: &'w KnownResources,
    objects: [Option<CelJson<'w>>; 2],
    converted: Vec<(GroupVersionKind<'w>, ConvertedNodes<'w>)>,
    equivalents: Vec<EquivalentResource<'w>>,
    namespace: CelJson<'w>,
    params: Vec<CelJson<'w>>,
    authorizer: Arc<TestAuthorizer>,
    is_assumed: bool,
    used_namespace: Cell<bool>,
    pub(super) trace: EvaluationTrace,
}

impl<'w> TestInputs<'w> {
    /// # Errors
    ///
    /// A number in one of the documents that is none in JSON.
    pub(super) fn new(
        request: &'w TestRequest,
        documents: &'w TestDocuments,
        known: &'w KnownResources,
    ) -> Result<Self, String> {
        let optional = |value: &'w Option<Value>| value.as_ref().map(node).transpose();
        let params = request.params.iter().map(node);
        let mut converted = Vec::new();
        for ([group, version, kind], objects) in &documents.converted {
            let kind = GroupVersionKind {
                group,
                version,
                kind,
            };
            let nodes = match objects {
                Ok([object, old_object]) => Ok([optional(object)?, optional(old_object)?]),
                Err(why) => Err(&**why),
            };
            converted.push((kind, nodes));
        }
        let equivalents = documents.equivalents.iter();
        let equivalents = equivalents.map(|one| EquivalentResource {
            resource: resource_of(one),
            kind: Some(kind_of(one)),
        });
        Ok(Self {
            request,
            known,
            objects: [optional(&request.object)?, optional(&request.old_object)?],
            converted,
            equivalents: equivalents.collect(),
            namespace: node(&documents.namespace)?,
            params: params.collect::<Result<_, _>>()?,
            authorizer: Arc::new(TestAuthorizer {
                checks: request.checks.clone(),
                unanswered: Mutex::default(),
            }),
            is_assumed: documents.is_assumed,
            used_namespace: Cell::new(false),
            trace: EvaluationTrace::default(),
        })
    }

    /// The objects of the request.
    pub(super) fn requested(&self) -> AdmissionObjects<'_> {
        as_admission_objects(&self.objects)
    }

    /// The checks that nothing answers.
    pub(super) fn unanswered(&self) -> Vec<String> {
        let unanswered = self.authorizer.unanswered.lock();
        unanswered.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The namespace, if it was asked for and is made up.
    pub(super) fn assumed_namespace(&self) -> Option<&str> {
        (self.is_assumed && self.used_namespace.get()).then_some(&*self.request.namespace)
    }
}

impl AdmissionInputs for TestInputs<'_> {
    fn objects(
        &self,
        kind: GroupVersionKind<'_>,
    ) -> Result<AdmissionObjects<'_>, ConversionFailure> {
        let own = kind_of(&self.request.resource);
        if kind == own {
            return Ok(self.requested());
        }
        if let Some((_, found)) = self.converted.iter().find(|(of, _)| *of == kind) {
            return match found {
                Ok(objects) => Ok(as_admission_objects(objects)),
                Err(why) => Err(ConversionFailure::Failed((*why).to_owned())),
            };
        }
        Err(ConversionFailure::Failed(format!(
            "without a server, objects are not converted from version {:?} of group {:?} to version {:?} of group {:?}; \
             write the object in that version, or name its version in matchConstraints",
            own.version, own.group, kind.version, kind.group
        )))
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        &self.equivalents
    }

    fn cluster(&self) -> &dyn ClusterInputs {
        self
    }

    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        Arc::clone(&self.authorizer) as Arc<dyn CelAuthorizer>
    }

    fn observer(&self) -> Option<&dyn EvaluationObserver> {
        Some(&self.trace)
    }
}

impl ClusterInputs for TestInputs<'_> {
    fn namespace(&self, _: &str) -> Result<&CelJson<'_>, InputFailure> {
        self.used_namespace.set(true);
        Ok(&self.namespace)
    }

    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String> {
        let group = kind
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        let own =
            |one: &&Value| one["apiVersion"] == *kind.api_version && one["kind"] == *kind.kind;
        let mut params = self.request.params.iter();
        let is_namespaced = self.known.is_namespaced(group, &kind.kind);
        let is_namespaced = is_namespaced.unwrap_or_else(|| {
            let first = params.find(own);
            first.is_some_and(|param| param["metadata"]["namespace"].is_string())
        });
        Ok(if is_namespaced {
            ParamScope::Namespaced
        } else {
            ParamScope::Cluster
        })
    }

    fn params_known(&self, _: &PolicyParamKind) -> bool {
        true
    }

    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<&CelJson<'_>> {
        let own = |param: &&CelJson<'_>| {
            param.text_at(&["apiVersion"]) == kind.api_version
                && param.text_at(&["kind"]) == kind.kind
                && param.text_at(&["metadata", "namespace"]) == namespace
        };
        let found = self.params.iter().filter(own);
        // Shortens the lifetime of the documents.
        found.map(|param| -> &CelJson<'_> { param }).collect()
    }
}

/// Answers checks as the user says.
struct TestAuthorizer {
    checks: Vec<AnsweredCheck>,
    unanswered: Mutex<Vec<String>>,
}

impl CelAuthorizer for TestAuthorizer {
    fn authorize(&self, check: &AuthorizationCheck) -> AuthorizationAnswer {
        let account = check.service_account.as_ref();
        let account = account.map(|(namespace, name)| format!("{namespace}/{name}"));
        let path = check.path.as_deref().unwrap_or_default();
        let attributes: [(&str, &str); 10] = [
            ("verb", &*check.verb),
            ("group", &check.group),
            ("resource", &check.resource),
            ("subresource", &check.subresource),
            ("namespace", &check.namespace),
            ("name", &check.name),
            ("path", path),
            ("serviceAccount", account.as_deref().unwrap_or_default()),
            ("fieldSelector", &check.field_selector),
            ("labelSelector", &check.label_selector),
        ];
        let matches = |one: &&AnsweredCheck| {
            one.attributes.iter().all(|(name, wanted)| {
                attributes
                    .iter()
                    .any(|(known, value)| known == name && value == wanted)
            })
        };
        if let Some(known) = self.checks.iter().find(matches) {
            return known.answer.clone();
        }
        let set = attributes.iter().filter(|(_, value)| !value.is_empty());
        let shown: Vec<_> = set
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let shown = format!("{{{}}}", shown.join(", "));
        let mut unanswered = self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !unanswered.contains(&shown) {
            unanswered.push(shown.clone());
        }
        AuthorizationAnswer {
            error: Some(format!(
                "no answer is given for the authorization check {shown}; add one to `authorizer` of the case"
            )),
            ..AuthorizationAnswer::default()
        }
    }
}
