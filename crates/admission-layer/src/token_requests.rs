//! Reads the service account that a token is requested for.
//!
//! Not here: what a server makes of the request by it ([`TokenAccount`]).

use fairgate_admission::Fidelity;

use crate::{
    evaluate::{Evaluation, Unevaluated},
    object::token_account::TokenAccount,
    request::write_request::WriteVerb,
};

impl Evaluation {
    /// The account that a token is requested for; `None` if it is another request, or is evaluated as it was sent.
    ///
    /// # Errors
    ///
    /// The account could not be read.
    pub(crate) async fn token_account(&self) -> Result<Option<TokenAccount>, Unevaluated> {
        let facts = &self.plan.facts;
        let of = (&*facts.group, &*facts.resource, &*facts.subresource);
        if facts.verb != WriteVerb::Create
            || of != ("", "serviceaccounts", "token")
            || self.plan.fidelity == Fidelity::AsSent
        {
            return Ok(None);
        }
        let path = self.path.strip_suffix("/token").unwrap_or(&self.path);
        let upstream = &self.evaluator.upstream;
        let read = upstream.object_metadata(path, self.share.another()).await;
        let account = read.map_err(|failure| self.unread("read the service account", failure))?;
        Ok(Some(account.map_or(TokenAccount::Absent, |account| {
            let uid = account.value["metadata"]["uid"].as_str();
            TokenAccount::Known(uid.unwrap_or_default().to_owned())
        })))
    }
}
