//! The policy objects of an API at one moment, for commands: listed once, without a retry.

use http::StatusCode;
use kube::{Api, Client, api::ListParams};

use super::{
    GROUP_PATH, KINDS, VERSIONS, is_complete,
    known_objects::{KnownObjects, RawObject, set_type},
    preferred, resource, served_versions, set_of,
};
use crate::document_set::{DocumentSet, Revision};
use fairgate_upstream::informer::{ApiResource, Event};

/// The most objects in one response.
const PAGE: u32 = 500;

/// Why the objects could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyListError {
    /// A request failed.
    #[error("{path}: {source}")]
    Request {
        /// The path that was asked.
        path: String,
        /// Why it failed. Its text may hold what a credential plugin printed.
        source: Box<kube::Error>,
    },
    /// The server serves no supported version.
    #[error("{path}: only versions are served that are not supported: {0:?}", path = GROUP_PATH)]
    NoVersion(Vec<String>),
}

/// Lists the objects. The revision of the set is the server's. Objects that cannot be used are left out with a warning.
///
/// # Errors
///
/// [`PolicyListError`].
pub async fn list(client: &Client) -> Result<DocumentSet, PolicyListError> {
    let version = match served_versions(client).await {
        Ok(served) => preferred(&served).ok_or(PolicyListError::NoVersion(served))?,
        // Discovery may be forbidden although reading the objects is not.
        Err(kube::Error::Api(status)) if status.code == StatusCode::FORBIDDEN.as_u16() => {
            VERSIONS[0]
        }
        Err(error) => return Err(failed(GROUP_PATH.to_owned(), error)),
    };
    let mut objects = KINDS.map(|(_, plural)| KnownObjects::new(plural));
    let mut revision = String::new();
    for (known, kind) in objects.iter_mut().zip(&KINDS) {
        revision = list_kind(client, &resource(kind, version), known).await?;
    }
    debug_assert!(is_complete(&objects), "both kinds were listed");
    Ok(DocumentSet {
        revision: Revision(revision),
        ..set_of(&objects, false)
    })
}

/// Lists a kind, and returns the revision of the list.
async fn list_kind(
    client: &Client,
    kind: &ApiResource,
    known: &mut KnownObjects,
) -> Result<String, PolicyListError> {
    let api = Api::<RawObject>::all_with(client.clone(), kind);
    let mut page = ListParams::default().limit(PAGE);
    known.take(Event::Init);
    loop {
        let listed = api.list(&page).await;
        let path = || format!("{GROUP_PATH}/{}/{}", kind.version, kind.plural);
        let listed = listed.map_err(|error| failed(path(), error))?;
        for mut object in listed.items {
            set_type(&mut object, kind);
            known.take(Event::InitApply(object));
        }
        page.continue_token = listed.metadata.continue_.filter(|token| !token.is_empty());
        if page.continue_token.is_none() {
            known.take(Event::InitDone);
            return Ok(listed.metadata.resource_version.unwrap_or_default());
        }
    }
}

fn failed(path: String, source: kube::Error) -> PolicyListError {
    let source = Box::new(source);
    PolicyListError::Request { path, source }
}
