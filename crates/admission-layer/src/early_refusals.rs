//! The replies to requests that are refused before policies are asked.

use fairgate_apihttp::status_error::StatusError;
use fairgate_call::{Call, Reply};

use crate::{
    replies::responses::{RefusedRequest, reasons},
    request::write_request::Subject,
    side::{AdmissionSide, Concern, output},
};

impl AdmissionSide {
    /// The reply to a request that is refused whatever its body says; `None` if it is evaluated, or no policy is about it.
    pub(crate) fn early_refusal(&self, concern: &Concern, call: &Call) -> Option<Reply> {
        match concern {
            Concern::None | Concern::Evaluate(_) => None,
            Concern::Stale => Some(Self::stale(call)),
            Concern::UnknownResource if !self.evaluator.cluster.are_resources_known() => {
                Some(Self::unread(call))
            }
            Concern::NotReady => Some(Self::refusal(call, false)),
            Concern::Disguised | Concern::UnknownResource => Some(Self::refusal(call, true)),
        }
    }

    /// The reply to a request that is refused because the server has no such path or resource, or because policies are not known.
    pub(crate) fn refusal(call: &Call, is_ready: bool) -> Reply {
        let output = output(call);
        let refused = match Subject::of(&call.digest.info) {
            Subject::Write(write) if !is_ready => {
                let of = write.resource;
                RefusedRequest::not_ready(of.group, of.resource, write.name, output)
            }
            _ => RefusedRequest::error(&StatusError::no_route(), reasons::MALFORMED, output),
        };
        refused.reply(&[], &call.context)
    }

    /// The reply to a request that is refused because the upstream has not told its resources.
    pub(crate) fn unread(call: &Call) -> Reply {
        let error = StatusError::unavailable(
            "fairgate: the resources of the upstream have not been read yet, so it is not known whether an admission policy matches this request".to_owned(),
        );
        RefusedRequest::error(&error, reasons::FAILED, output(call)).reply(&[], &call.context)
    }

    /// The reply to a request that is refused because the policies in force have not been confirmed for too long.
    pub(crate) fn stale(call: &Call) -> Reply {
        let error = StatusError::unavailable(
            "fairgate: the admission policies have not been confirmed for longer than admission.policies.maxStaleness, so others may be in force".to_owned(),
        );
        RefusedRequest::error(&error, reasons::STALE, output(call)).reply(&[], &call.context)
    }
}
