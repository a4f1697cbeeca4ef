//! Writes of which it is not known what the server takes from the body: a dry run tells, or they are refused.

use fairgate_admission::Fidelity;
use fairgate_apiserver::StatusError;
use http::StatusCode;

use crate::{
    evaluate::{Evaluation, Unjudged},
    facts::WriteFacts,
    judged_object::{self, WriteStrategy},
    responses::{RefusedRequest, reasons},
};

impl Evaluation {
    /// What the upstream makes of the body; `None` if only a dry run can tell.
    pub(crate) fn strategy(&self) -> Option<WriteStrategy> {
        let facts = &self.plan.facts;
        let (group, version) = (&facts.group, &facts.version);
        let cluster = &self.admitter.cluster;
        let status = cluster.resource(group, version, &facts.resource, "status");
        judged_object::strategy(facts, status.is_some())
    }

    /// Checks that a request whose fields only the upstream knows may be sent as a dry run: kube-apiserver carries none of them
    /// out, but other API servers may, unless the author of a policy has said that they do not.
    pub(crate) fn check_dry_runs(&self) -> Result<(), Unjudged> {
        let facts = &self.plan.facts;
        let may =
            self.plan.fidelity == Fidelity::DryRun || judged_object::is_of_kubernetes(&facts.group);
        if may {
            Ok(())
        } else {
            Err(self.unknown_fields())
        }
    }

    /// The refusal of a request of which nobody here knows what is taken from the body.
    pub(crate) fn unknown_fields(&self) -> Unjudged {
        let facts = &self.plan.facts;
        let WriteFacts {
            group, resource, ..
        } = facts;
        let mut target = format!("{resource}.{group}");
        if !facts.subresource.is_empty() {
            target = format!("{target}/{}", facts.subresource);
        }
        let text = format!(
            "fairgate: it is not known which fields of the body a write of {target} changes, so admission policies cannot judge it; \
             set the annotation fairgate.dev/fidelity of the policies that match it to dryRun if its server supports dry runs, or to asSent"
        );
        let error = StatusError::new(StatusCode::FORBIDDEN, "Forbidden", &text);
        RefusedRequest::error(&error, reasons::FAILED, self.output).into()
    }
}
