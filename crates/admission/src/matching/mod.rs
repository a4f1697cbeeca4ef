//! Which requests policies and bindings are for.
//!
//! `rules` compares resources, operations and names, and `selector` labels; this file combines them. [`index`] finds the
//! policies that may match without looking at the others.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/policy/matching` and `webhook/predicates`.

pub(crate) mod index;
mod rules;
mod selector;

use fairgate_cel::CelJson;
use k8s_openapi::api::admissionregistration::v1::{MatchResources, NamedRuleWithOperations};

pub(crate) use rules::ResourceRule;
pub(crate) use selector::LabelRule;

use crate::attributes::{
    AdmissionAttributes, AdmissionObjects, AdmissionOperation, GroupVersionKind,
    GroupVersionResource,
};
use crate::inputs::{AdmissionInputs, InputFailure};

/// A request with what matching asks the host for.
#[derive(Clone, Copy)]
pub(crate) struct MatchRequest<'a> {
    pub(crate) attributes: &'a AdmissionAttributes<'a>,
    pub(crate) inputs: &'a dyn AdmissionInputs,
    /// The objects as they were sent; none as long as they are not known.
    pub(crate) objects: AdmissionObjects<'a>,
    /// Whether the name is in an object that is not known yet: rules for any name may match.
    pub(crate) is_name_unknown: bool,
}

impl<'a> MatchRequest<'a> {
    /// A request whose body has not been read.
    pub(crate) fn before_body(
        attributes: &'a AdmissionAttributes<'a>,
        inputs: &'a dyn AdmissionInputs,
    ) -> Self {
        let creates = attributes.operation == AdmissionOperation::Create;
        Self {
            attributes,
            inputs,
            objects: AdmissionObjects::default(),
            is_name_unknown: creates && attributes.name.is_empty(),
        }
    }

    /// A request with its objects, if the host has them in the kind of the request.
    pub(crate) fn with_objects(
        attributes: &'a AdmissionAttributes<'a>,
        inputs: &'a dyn AdmissionInputs,
    ) -> Self {
        Self {
            attributes,
            inputs,
            objects: inputs.objects(attributes.kind).unwrap_or_default(),
            is_name_unknown: false,
        }
    }
}

/// The resource and kind that a policy evaluates a request as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatchedResource<'a> {
    pub(crate) resource: GroupVersionResource<'a>,
    pub(crate) kind: GroupVersionKind<'a>,
}

/// `matchConstraints` of a policy or `matchResources` of a binding.
pub(crate) struct ResourceMatcher {
    namespaces: Result<LabelRule, String>,
    objects: Result<LabelRule, String>,
    rules: Vec<ResourceRule>,
    exclusions: Vec<ResourceRule>,
    /// Whether other versions of the resource count.
    is_equivalent: bool,
}

impl ResourceMatcher {
    /// Selectors that cannot be read become errors of the requests that would match otherwise.
    ///
    /// # Errors
    ///
    /// When a selector is absent, which defaulting prevents.
    pub(crate) fn new(of: &MatchResources) -> Result<Self, String> {
        let absent = |what| {
            format!(
                "a nil {what} selector was passed, please ensure selectors are initialized properly"
            )
        };
        let namespaces = of.namespace_selector.as_ref();
        let namespaces = namespaces.ok_or_else(|| absent("namespace"))?;
        let objects = of.object_selector.as_ref();
        let objects = objects.ok_or_else(|| absent("object"))?;
        let read = |rules: &Option<Vec<NamedRuleWithOperations>>| {
            let rules = rules.iter().flatten();
            rules.map(ResourceRule::new).collect()
        };
        Ok(Self {
            namespaces: LabelRule::new(namespaces).map_err(internal),
            objects: LabelRule::new(objects).map_err(internal),
            rules: read(&of.resource_rules),
            exclusions: read(&of.exclude_resource_rules),
            is_equivalent: !matches!(of.match_policy.as_deref(), None | Some("Exact")),
        })
    }

    /// Whether the request matches, and as which resource and kind.
    ///
    /// # Errors
    ///
    /// What is wrong with the policy, or with what it refers to, if the request would match otherwise.
    pub(crate) fn matches<'a>(
        &self,
        request: &MatchRequest<'a>,
    ) -> Result<Option<MatchedResource<'a>>, String> {
        let namespaces = self.selects_namespace(request);
        if namespaces == Ok(false) {
            return Ok(None);
        }
        let objects = match &self.objects {
            Ok(rule) => Ok(rule.is_everything() || selects_objects(rule, request.objects)),
            Err(error) => Err(error.clone()),
        };
        if objects == Ok(false) {
            return Ok(None);
        }
        let Some(matched) = self.matches_resource(request)? else {
            return Ok(None);
        };
        // Only now: an error of a selector concerns only requests that match otherwise.
        namespaces?;
        objects?;
        Ok(Some(matched))
    }

    /// The field because of which the request does not match; `None` if it matches.
    pub(crate) fn mismatch(&self, request: &MatchRequest<'_>) -> Option<&'static str> {
        if self.selects_namespace(request) == Ok(false) {
            return Some("namespaceSelector");
        }
        let is_selected =
            |rule: &LabelRule| rule.is_everything() || selects_objects(rule, request.objects);
        if self.objects.as_ref().is_ok_and(|rule| !is_selected(rule)) {
            return Some("objectSelector");
        }
        if let Ok(Some(_)) = rules::find(&self.exclusions, self.is_equivalent, false, request) {
            return Some("excludeResourceRules");
        }
        matches!(self.matches_resource(request), Ok(None)).then_some("resourceRules")
    }

    /// Whether a request whose objects are not known yet may match. An error counts as a match.
    pub(crate) fn may_match(&self, request: &MatchRequest<'_>) -> bool {
        self.early_match(request) != EarlyMatch::No
    }

    /// What is known of a match before the objects are.
    pub(crate) fn early_match(&self, request: &MatchRequest<'_>) -> EarlyMatch {
        let namespaces = self.selects_namespace(request);
        if namespaces == Ok(false) {
            return EarlyMatch::No;
        }
        let resource = self.matches_resource(request);
        if matches!(resource, Ok(None)) {
            return EarlyMatch::No;
        }
        let kind = request.attributes.kind;
        let is_same = resource.is_ok_and(|of| of.is_none_or(|of| of.kind == kind));
        if self.objects.is_ok() && namespaces.is_ok() && is_same {
            EarlyMatch::Sound
        } else {
            EarlyMatch::Possible
        }
    }

    /// Whether a request for a resource of which no other versions are known may match once they are.
    pub(crate) fn may_match_another_version(&self, request: &MatchRequest<'_>) -> bool {
        self.is_equivalent
            && rules::match_another_version(&self.rules, request)
            && self.selects_namespace(request) != Ok(false)
    }

    /// Whether matching is certain not to end in an error, whatever the objects are, and a match is as the requested kind.
    pub(crate) fn is_sound(&self, request: &MatchRequest<'_>) -> bool {
        self.early_match(request) != EarlyMatch::Possible
    }

    fn matches_resource<'a>(
        &self,
        request: &MatchRequest<'a>,
    ) -> Result<Option<MatchedResource<'a>>, String> {
        let excluded = rules::find(&self.exclusions, self.is_equivalent, false, request)?;
        if excluded.is_some() {
            return Ok(None);
        }
        if self.rules.is_empty() {
            return Ok(Some(MatchedResource {
                resource: request.attributes.resource,
                kind: request.attributes.kind,
            }));
        }
        let any_name = request.is_name_unknown;
        rules::find(&self.rules, self.is_equivalent, any_name, request)
    }

    fn selects_namespace(&self, request: &MatchRequest<'_>) -> Result<bool, String> {
        let attributes = request.attributes;
        if attributes.namespace.is_empty() && attributes.resource.resource != "namespaces" {
            // As in the original, a cluster-scoped object other than a namespace is never exempted.
            return Ok(true);
        }
        let rule = self.namespaces.as_ref().map_err(String::clone)?;
        if rule.is_everything() {
            return Ok(true);
        }
        let writes = matches!(
            attributes.operation,
            AdmissionOperation::Create | AdmissionOperation::Update
        );
        let is_namespace = attributes.resource.resource == "namespaces";
        if is_namespace && attributes.subresource.is_empty() && writes {
            // A namespace that is written is selected by its new labels.
            let object = request.objects.object;
            return Ok(object.is_none_or(|object| rule.selects(labels(object))));
        }
        let namespace = request.inputs.cluster().namespace(attributes.namespace);
        let namespace = namespace.map_err(|failure| of_namespace(failure, attributes.namespace))?;
        Ok(rule.selects(labels(namespace)))
    }

    /// The key of a label that a namespace must have to match, and the values that it may have.
    fn required_namespace_label(&self) -> Option<(&str, &[String])> {
        self.namespaces.as_ref().ok()?.required()
    }
}

/// What is known of a match before the objects of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyMatch {
    /// The request does not match, whatever the objects are.
    No,
    /// It may match, be an error, or match as another kind.
    Possible,
    /// It may match, as the requested kind and without an error.
    Sound,
}

/// The error text of a namespace that is not available.
pub(crate) fn of_namespace(failure: InputFailure, name: &str) -> String {
    match failure {
        InputFailure::NotFound => format!("namespaces \"{name}\" not found"),
        InputFailure::Failed(why) => internal(why),
        InputFailure::Lacking(lack) => internal(lack.to_string()),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is an argument of map_err"
)]
fn internal(why: String) -> String {
    format!("Internal error occurred: {why}")
}

/// Whether one of the objects is selected. One without metadata never is.
fn selects_objects(rule: &LabelRule, objects: AdmissionObjects<'_>) -> bool {
    let both = [objects.object, objects.old_object];
    both.into_iter().flatten().any(|object| {
        matches!(object.at(&["metadata"]), Some(CelJson::Object(_))) && rule.selects(labels(object))
    })
}

fn labels<'j>(object: &'j CelJson<'_>) -> Option<&'j CelJson<'j>> {
    object.at(&["metadata", "labels"])
}
