//! What a server would have said of a request before its policies denied it: that there is no such path or method, that options, name or
//! version are wrong, that there is no such object or namespace.
//!
//! It is looked for once a request is refused in any case, so it costs requests that policies allow nothing, and what is known here of servers
//! keeps no request from one that knows more.
//!
//! Source: Kubernetes `apiserver/pkg/endpoints/handlers` in their order, `apiserver/pkg/admission/plugin/namespace/lifecycle`, and
//! `customresource_handler.go` of `apiextensions-apiserver`.
//!
//! Not here: what the body tells (`body_checks`), and the validation of objects.

use std::time::Duration;

use bytes::Bytes;
use fairgate_admission::{AdmissionOperation, Fidelity};
use fairgate_apihttp::{
    content_type::{PatchType, custom_patch_type, patch_type},
    posted,
    query::Write,
    request::ApiRequest,
    response::ApiResponse,
    status_error::StatusError,
};
use fairgate_call::Call;
use fairgate_objects::schema::{BuiltInKind, built_in_kinds};
use http::StatusCode;

use crate::{
    evaluate::Evaluation,
    object::evaluated_object,
    object::object_errors::{details, dotted, not_found},
    object::objects,
    passes::evaluation_job::EvaluatedWrite,
    request::findings::FoundNamespace,
    request::write_request::WriteVerb,
};

/// How long it is found out whether the resource of a denied request exists.
const RESOURCES_LIMIT: Duration = Duration::from_secs(10);
/// Namespaces that nobody may delete.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// An error that a server comes to before its policies.
#[derive(Debug)]
pub(crate) struct EarlierError {
    pub(crate) response: ApiResponse,
    /// Whether it comes to it before it decodes the body.
    pub(crate) is_about_request: bool,
}

impl Evaluation {
    /// What a server would have said of a request that is refused here: with its verdict if policies deny it, else because it could not be evaluated.
    pub(crate) async fn earlier_error(
        &self,
        call: &Call,
        denied: Option<&EvaluatedWrite>,
    ) -> Option<EarlierError> {
        if self.plan.facts.verb == WriteVerb::Connect {
            return None;
        }
        let about_request = |response| EarlierError {
            response,
            is_about_request: true,
        };
        if denied.is_some() && self.plan.fidelity == Fidelity::DryRun {
            // The server has said nothing of it, but was not asked in the client's format.
            let output = posted::check_output(&ApiRequest::of(call), self.is_custom().await);
            let response = |error| ApiResponse::error(&error, self.output);
            return output.err().map(response).map(about_request);
        }
        if self.is_unserved().await {
            return Some(about_request(self.unserved()));
        }
        let is_custom = self.is_custom().await;
        if let Some(error) = self.request_error(call, is_custom) {
            return Some(about_request(ApiResponse::error(&error, self.output)));
        }
        let error = self.body_error(denied?).await?;
        Some(EarlierError {
            response: ApiResponse::error(&error, self.output),
            is_about_request: false,
        })
    }

    /// What a server would have said of an evaluated request once it has read its body.
    pub(crate) async fn body_error(&self, evaluated: &EvaluatedWrite) -> Option<StatusError> {
        let findings = &self.plan.facts.findings;
        let mut error = findings.error().cloned();
        if error.is_none() {
            error = self.namespace_error(evaluated.namespace).await;
        }
        error.or_else(|| findings.late_error().cloned())
    }

    /// The response to a request for a resource that there is not.
    fn unserved(&self) -> ApiResponse {
        if evaluated_object::is_of_kubernetes(&self.plan.facts.group) {
            return ApiResponse::error(&StatusError::no_route(), self.output);
        }
        let text = Bytes::from_static(b"404 page not found\n");
        ApiResponse::text(StatusCode::NOT_FOUND, text)
    }

    /// Whether the request is for a custom resource. An error to find that out leaves the answer to the policies.
    async fn is_custom(&self) -> bool {
        let facts = &self.plan.facts;
        if evaluated_object::is_of_kubernetes(&facts.group) {
            return false;
        }
        matches!(self.definition().await, Ok(Some(_)))
    }

    /// What is wrong with the path, the method, the headers and the query.
    fn request_error(&self, call: &Call, is_custom: bool) -> Option<StatusError> {
        let error = if is_custom {
            self.custom_route_error()
        } else {
            self.route_error()
        };
        error.or_else(|| self.options_error(call, is_custom))
    }

    /// Paths and methods that kube-apiserver's router does not have.
    fn route_error(&self) -> Option<StatusError> {
        let facts = &self.plan.facts;
        if !evaluated_object::is_of_kubernetes(&facts.group) {
            return None;
        }
        let has_name = !self.info.name().is_empty();
        if facts.subresource.is_empty() {
            let is_namespaced = facts.served.as_ref().is_some_and(|one| one.is_namespaced);
            let is_allowed = match facts.verb {
                WriteVerb::Create => {
                    let is_of_all = is_namespaced && facts.namespace.is_empty();
                    !(has_name || is_of_all)
                }
                WriteVerb::Update | WriteVerb::Patch => has_name,
                _ => true,
            };
            return (!is_allowed).then(StatusError::method_not_allowed);
        }
        let is_longer = self.info.parts().count() > 3;
        if is_longer && facts.subresource != "proxy" {
            return Some(StatusError::no_route());
        }
        let is_posted = match self.strategy(None) {
            Some(strategy) => strategy.is_posted(),
            None if facts.resource == "pods" && facts.subresource == "log" => {
                return Some(StatusError::method_not_allowed());
            }
            None => return None,
        };
        let is_post = facts.verb == WriteVerb::Create;
        let is_write = matches!(facts.verb, WriteVerb::Update | WriteVerb::Patch);
        let is_allowed = if is_posted { is_post } else { is_write };
        (!is_allowed).then(StatusError::method_not_allowed)
    }

    /// The same for custom resources, which are not behind the router.
    fn custom_route_error(&self) -> Option<StatusError> {
        let facts = &self.plan.facts;
        let has_name = !self.info.name().is_empty();
        let is_update = matches!(facts.verb, WriteVerb::Update | WriteVerb::Patch);
        if is_update && !has_name {
            return Some(StatusError::bad_request("name must be provided"));
        }
        if facts.subresource.is_empty() {
            return None;
        }
        if self.strategy(None).is_none() || facts.served.is_none() {
            return Some(not_found(facts));
        }
        if is_update {
            return None;
        }
        let verb = match facts.verb {
            WriteVerb::Create => "create",
            _ => "delete",
        };
        let message = format!(
            "{verb} is not supported on resources of kind \"{}\"",
            dotted(facts)
        );
        let error = StatusError::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        let mut details = details(facts);
        if let Some(details) = details.as_object_mut() {
            details.remove("name");
        }
        Some(error.with_details(details))
    }

    /// What is wrong with the media types and the options.
    fn options_error(&self, call: &Call, is_custom: bool) -> Option<StatusError> {
        let facts = &self.plan.facts;
        let format = patch_type(&self.content_type);
        let write = match facts.verb {
            WriteVerb::Create => Write::Create,
            WriteVerb::Update => Write::Update,
            WriteVerb::Patch => {
                if let Some(error) = self.patch_type_error(is_custom) {
                    return Some(error);
                }
                let apply = matches!(format, Ok(PatchType::Apply));
                Write::Patch { apply }
            }
            WriteVerb::Delete | WriteVerb::DeleteCollection => {
                let output = posted::check_output(&ApiRequest::of(call), is_custom);
                let has_body = !self.body.is_empty();
                let options = || self.plan.query.check_delete(facts.verb, has_body);
                return output.and_then(|()| options()).err();
            }
            WriteVerb::Connect => return None,
        };
        if facts.verb == WriteVerb::Create
            && let Err(error) = objects::body_format(&self.content_type)
        {
            let request = ApiRequest::of(call);
            let output = posted::check_output(&request, is_custom);
            return Some(output.err().unwrap_or(error));
        }
        posted::check_write(&ApiRequest::of(call), write, is_custom).err()
    }

    fn patch_type_error(&self, is_custom: bool) -> Option<StatusError> {
        if is_custom {
            return custom_patch_type(&self.content_type).err();
        }
        patch_type(&self.content_type).err()
    }

    /// Whether the upstream does not serve the resource at all, or not the subresource, as it has said of the stored object. Policies may be about all resources, also those that there are not.
    async fn is_unserved(&self) -> bool {
        let facts = &self.plan.facts;
        let served = || {
            let cluster = &self.evaluator.cluster;
            cluster.resource(
                &facts.group,
                &facts.version,
                &facts.resource,
                &facts.subresource,
            )
        };
        if !facts.subresource.is_empty() {
            return self.has_no_path.get() && served().is_none();
        }
        if served().is_some() || self.is_defined().await {
            return false;
        }
        // Discovery may be out of date: only after another reading is a resource known to be absent.
        let read = self.evaluator.cluster.resources_read();
        let read = tokio::time::timeout(RESOURCES_LIMIT, read).await;
        matches!(read, Ok(Ok(()))) && served().is_none()
    }

    /// Whether the resource is known to exist, although discovery may not list it: it is one of Kubernetes in a version that it has, or a custom
    /// resource. What cannot be found out leaves the answer to the policies.
    async fn is_defined(&self) -> bool {
        let facts = &self.plan.facts;
        if !evaluated_object::is_of_kubernetes(&facts.group) {
            return !matches!(self.definition().await, Ok(None));
        }
        let is_version =
            |kind: &BuiltInKind| kind.group == facts.group && kind.version == facts.version;
        self.strategy(None).is_some() && built_in_kinds().iter().any(is_version)
    }

    /// What is wrong with the namespace of a request, as the plugin `NamespaceLifecycle` finds out. `found` is what evaluating has read of it.
    async fn namespace_error(&self, found: Option<FoundNamespace>) -> Option<StatusError> {
        let facts = &self.plan.facts;
        if facts.is_namespace() {
            let is_kept = facts.verb == WriteVerb::Delete
                && facts.subresource.is_empty()
                && IMMORTAL.contains(&&*facts.name);
            let message = format!(
                "namespaces {:?} is forbidden: this namespace may not be deleted",
                facts.name
            );
            return is_kept.then(|| StatusError::forbidden(message, details(facts)));
        }
        let is_create = facts.operation == AdmissionOperation::Create;
        // As in the plugin: the answer to a review must not tell whether a namespace exists.
        if !is_create || facts.namespace.is_empty() || facts.resource.ends_with("accessreviews") {
            return None;
        }
        let cluster = &self.evaluator.cluster;
        let found = match (found, cluster.namespace(&facts.namespace)) {
            (Some(found), _) => found,
            (None, Some(known)) => FoundNamespace::of(Ok(&known)),
            (None, None) => {
                let (user, name) = (&facts.user.name, &facts.namespace);
                let read = cluster.read_namespace(user, name).await;
                FoundNamespace::of(read.as_ref().map(|object| &**object))
            }
        };
        let resource = (&*facts.group, &*facts.resource);
        match found {
            FoundNamespace::Absent => Some(StatusError::namespace_absent(&facts.namespace)),
            FoundNamespace::Ending => {
                let (namespace, name) = (&facts.namespace, &facts.name);
                Some(StatusError::namespace_terminating(
                    resource, namespace, name,
                ))
            }
            FoundNamespace::Active | FoundNamespace::Unknown => None,
        }
    }
}
