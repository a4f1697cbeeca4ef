//! What the server takes from the body of a write. Where that is not known, a dry run tells, or the write is refused.

use std::sync::Arc;

use fairgate_admission::Fidelity;
use fairgate_apihttp::status_error::StatusError;
use fairgate_base::tasks;
use fairgate_objects::custom::CustomSchema;
use http::StatusCode;

use crate::{
    evaluate::{Evaluation, Unevaluated},
    limits::body_budget::ReadFailure,
    object::evaluated_object::{self, WriteStrategy},
    replies::responses::{RefusedRequest, reasons},
    request::facts::WriteFacts,
};

impl Evaluation {
    /// What the upstream makes of the body; `None` if only a dry run can tell. `schema` is that of a custom resource, which knows
    /// sooner than discovery whether there is a subresource `status`.
    pub(crate) fn strategy(&self, schema: Option<&CustomSchema>) -> Option<WriteStrategy> {
        let facts = &self.plan.facts;
        let discovered = || {
            let (group, version) = (&facts.group, &facts.version);
            let cluster = &self.evaluator.cluster;
            cluster
                .resource(group, version, &facts.resource, "status")
                .is_some()
        };
        evaluated_object::strategy(
            facts,
            schema.map_or_else(discovered, CustomSchema::has_status),
        )
    }

    /// Whether its kind is one of Kubernetes that has no table here: definitions of custom resources, `APIServices`, and kinds in versions
    /// that only a newer server has. A server reads their bodies into types: it drops nulls and members that those do not have, and merges lists in
    /// patches, so policies about what is there could be evaded by a body that is taken as it is.
    pub(crate) fn has_unknown_type(&self) -> bool {
        let facts = &self.plan.facts;
        evaluated_object::is_of_kubernetes(&facts.group) && !facts.has_table()
    }

    /// The schema by which the server prunes the body; `None` if it does not by any.
    ///
    /// # Errors
    ///
    /// It could not be read.
    pub(crate) async fn custom_schema(&self) -> Result<Option<CustomSchema>, Unevaluated> {
        let facts = &self.plan.facts;
        let is_as_sent = self.plan.fidelity == Fidelity::AsSent;
        if is_as_sent || evaluated_object::is_of_kubernetes(&facts.group) || facts.has_table() {
            return Ok(None);
        }
        self.definition().await
    }

    /// The schema of a custom resource, also of one whose subresource it is; `None` if it is no custom resource.
    ///
    /// # Errors
    ///
    /// It could not be read.
    pub(crate) async fn definition(&self) -> Result<Option<CustomSchema>, Unevaluated> {
        let facts = &self.plan.facts;
        let (upstream, share) = (self.evaluator.upstream.clone(), self.share.another());
        let definitions = Arc::clone(&self.evaluator.definitions);
        let key = (facts.definition_path(), facts.version.clone());
        let reading = async move { definitions.schema(&upstream, key, share).await };
        let task = tasks::spawn_until_dropped(&self.control, reading);
        let read = task.await;
        let read = read.unwrap_or_else(|error| Err(error.to_string().into()));
        if matches!(read, Err(ReadFailure::NotServed(_)))
            && !self.evaluator.cluster.serves_definitions()
        {
            return Ok(None);
        }
        read.map_err(|failure| self.unread("read the definition of the custom resource", failure))
    }

    /// Checks that a request whose fields only the upstream knows may be sent as a dry run: kube-apiserver carries none of them
    /// out, but other API servers may, unless the author of a policy has said that they do not.
    pub(crate) fn check_dry_runs(&self) -> Result<(), Unevaluated> {
        let facts = &self.plan.facts;
        let may = self.plan.fidelity == Fidelity::DryRun
            || evaluated_object::is_of_kubernetes(&facts.group);
        if may {
            Ok(())
        } else {
            Err(self.unknown_fields())
        }
    }

    /// The refusal of a request of which nobody here knows what is taken from the body.
    pub(crate) fn unknown_fields(&self) -> Unevaluated {
        let facts = &*self.plan.facts;
        let WriteFacts {
            group, resource, ..
        } = facts;
        let mut target = format!("{resource}.{group}");
        if !facts.subresource.is_empty() {
            target = format!("{target}/{}", facts.subresource);
        }
        let text = format!(
            "fairgate: it is not known which fields of the body a write of {target} changes, so admission policies cannot evaluate it; \
             set the annotation fairgate.dev/fidelity of the policies that match it to dryRun if its server supports dry runs, or to asSent"
        );
        let error = StatusError::new(StatusCode::FORBIDDEN, "Forbidden", &text);
        RefusedRequest::error(&error, reasons::FAILED, self.output).into()
    }
}
