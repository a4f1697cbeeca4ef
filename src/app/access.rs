//! How the upstream is asked what users may do: as it is asked about their tokens, in the gateway's own
//! name, on connections apart from those of requests.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    counting,
    identity::UpstreamCredential,
    settings::{self, SettingsError},
};
use crate::{config::Config, observe::Own};
use fairgate_apiserver::access::{AccessSettings, AskAccess, AskFuture, NotAsked, SubjectAccess};
use fairgate_base::clock::Clock;
use fairgate_proxy::auth::token_review::{HttpTransport, ReviewTransport as _};

/// The upstream's word on who may do what.
pub(super) fn of_upstream(
    config: &Config,
    credential: &UpstreamCredential,
    clock: &Clock,
    own: &Arc<Own>,
) -> Result<SubjectAccess, SettingsError> {
    let path = HttpTransport::SUBJECT_ACCESS_REVIEWS;
    let upstream = Upstream(settings::review_transport(config, credential, path)?);
    let settings = AccessSettings {
        allowed_ttl: config.hosted_api.authorized_ttl,
        denied_ttl: config.hosted_api.unauthorized_ttl,
        events: counting::access_reviews(own),
        ..AccessSettings::default()
    };
    Ok(SubjectAccess::new(upstream, settings, clock.clone()))
}

struct Upstream(HttpTransport);

impl AskAccess for Upstream {
    fn ask(&self, review: Bytes) -> AskFuture<'_> {
        Box::pin(async move {
            let answer = self.0.post(review).await;
            answer.map_err(|error| NotAsked {
                reason: error.to_string(),
                again: error.worth_repeating(),
            })
        })
    }
}
