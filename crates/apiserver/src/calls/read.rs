//! `GET`: one object, or a list.

use std::{num::NonZeroUsize, time::Duration};

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{CallContext, HostedResponse, StatusError, store_fault};
use crate::objects::{list_response::ListedObjects, listed_object::ListedObject};
use fairgate_apihttp::{
    continue_token::ContinueToken,
    list_parameters::{ListParameters, parse_version},
};
use fairgate_store::{ListPage, ReadRevision, StoreError};

/// How long a read waits for a revision that the store has not reached yet.
const REVISION_TIMEOUT: Duration = Duration::from_secs(3);

/// How many entries a list reads from the store at once.
const MAX_CHUNK: usize = 10_000;

impl CallContext<'_> {
    pub(super) async fn get(&self) -> Result<HostedResponse, StatusError> {
        if self.query.flag("export") == Some(true) {
            return Err(StatusError::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        let version =
            parse_version(self.query.text("resourceVersion")).map_err(StatusError::internal)?;
        let at = self.not_older_than(version).await?;
        let name = &self.place.name;
        let found = self.find(name, at).await?;
        let entry = found.ok_or_else(|| StatusError::not_found(self.kind, name))?;
        self.reserve(entry.length())?;
        let object = self.decode(&entry)?;
        self.writer()?.object(StatusCode::OK, &object)
    }

    pub(super) async fn list(&self) -> Result<HostedResponse, StatusError> {
        let options = ListParameters::read(self.query)?;
        if options.watch {
            return self.watch_with(options).await;
        }
        let list = self.collect(&options).await?;
        self.answer_list(&list)
    }

    /// The response with a list, if there is room in memory for it.
    pub(super) fn answer_list(&self, list: &CollectedList) -> Result<HostedResponse, StatusError> {
        let writer = self.writer()?;
        let objects = ListedObjects {
            all: &list.objects,
            bytes: list.bytes,
        };
        let needed = writer.needs(&objects, &list.metadata)?;
        self.reserve(needed)?;
        writer.list(StatusCode::OK, &objects, list.metadata.clone(), needed)
    }

    /// Waits up to [`REVISION_TIMEOUT`] for `version`, and returns which state to read.
    pub(super) async fn not_older_than(
        &self,
        version: Option<u64>,
    ) -> Result<ReadRevision, StatusError> {
        match version {
            None => Ok(ReadRevision::Newest),
            Some(version) => {
                self.wait_for(version).await?;
                Ok(ReadRevision::Cached)
            }
        }
    }

    /// Waits up to [`REVISION_TIMEOUT`] until the cache is at least at `version`.
    pub(super) async fn wait_for(&self, version: u64) -> Result<(), StatusError> {
        let store = &self.state.store;
        if store.cached_revision() >= version {
            return Ok(());
        }
        match tokio::time::timeout(REVISION_TIMEOUT, store.wait_for(version)).await {
            Ok(waited) => waited.map_err(|error| store_fault(&error)),
            Err(_) => Err(StatusError::too_large_version(
                version,
                store.cached_revision(),
            )),
        }
    }

    /// The objects that `options` select.
    pub(super) async fn collect(
        &self,
        options: &ListParameters,
    ) -> Result<CollectedList, StatusError> {
        let selects_all = options.labels.is_everything() && options.fields.is_everything();
        let start = self.start_of(options).await?;
        // Version 0 reads the cache without pages, as kube-apiserver does.
        let any = options.resource_version == "0" && options.continue_token.is_empty();
        // A list of one object has no pages.
        let is_one_scope = !self.kind.namespaced || !self.place.namespace.is_empty();
        let is_one = is_one_scope && options.fields.required("metadata.name").is_some();
        let whole = any || is_one;
        let limit = if whole { 0 } else { options.limit };
        let limit = usize::try_from(limit).unwrap_or(0);
        let prefix = self.prefix();
        let mut after = start.after;
        let mut at = start.at;
        let (mut objects, mut bytes) = (Vec::new(), 0);
        // A selector may reject thousands of entries, so a page is filled from further chunks, each twice
        // as large as the one before.
        let mut chunk = limit;
        let page = loop {
            let mut page = self
                .state
                .store
                .list(&prefix, after.as_deref(), NonZeroUsize::new(chunk), at)
                .await
                .map_err(|error| self.list_fault(&error, after.as_deref(), options))?;
            let mut left = page.entries.len();
            for entry in &page.entries {
                if limit > 0 && objects.len() >= limit {
                    break;
                }
                left -= 1;
                let object = ListedObject::of(self.kind, entry)?;
                if selects_all || options.select(object.object()?.stored()) {
                    objects.push(object);
                    bytes += entry.length();
                }
            }
            let looked_at = page.entries.len() - left;
            let last = page.entries[..looked_at].last();
            after = last.map(|entry| entry.key.to_string()).or(after);
            at = ReadRevision::Exactly(page.revision);
            page.remaining += left as u64;
            if !page.more() || objects.len() >= limit {
                break page;
            }
            chunk = chunk.saturating_mul(2).min(MAX_CHUNK);
        };
        Ok(CollectedList {
            objects,
            bytes,
            metadata: list_metadata(&page, options, after.as_deref(), &prefix),
        })
    }

    /// The key after which a list begins, and its revision.
    async fn start_of(&self, options: &ListParameters) -> Result<Start, StatusError> {
        let version = options
            .version()
            .map_err(|text| StatusError::bad_request(format!("invalid resource version: {text}")));
        if !options.continue_token.is_empty() {
            let token = ContinueToken::decode(&options.continue_token)?;
            if version?.is_some_and(|version| version > 0) {
                return Err(StatusError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let key = token.start.strip_suffix('\0').unwrap_or(&token.start);
            return Ok(Start {
                after: Some(self.prefix() + key),
                at: token
                    .revision
                    .map_or(ReadRevision::Newest, ReadRevision::Exactly),
            });
        }
        let exactly = options.version_match == "Exact"
            || (options.version_match.is_empty() && options.limit > 0);
        let at = match version? {
            None => ReadRevision::Newest,
            Some(0) => ReadRevision::Cached,
            Some(version) if exactly => {
                let newest = self.newest().await?;
                if version > newest {
                    return Err(StatusError::too_large_version(version, newest));
                }
                self.wait_for(version).await?;
                ReadRevision::Exactly(version)
            }
            Some(version) => self.not_older_than(Some(version)).await?,
        };
        Ok(Start { after: None, at })
    }

    async fn newest(&self) -> Result<u64, StatusError> {
        let newest = self.state.store.revision().await;
        newest.map_err(|error| store_fault(&error))
    }

    /// The error of a list. If its continue token has expired, the error has a token to continue with.
    fn list_fault(
        &self,
        error: &StoreError,
        after: Option<&str>,
        options: &ListParameters,
    ) -> StatusError {
        let compacted = matches!(error, StoreError::Compacted { .. });
        let (true, false, Some(key)) = (compacted, options.continue_token.is_empty(), after) else {
            return store_fault(error);
        };
        let prefix = self.prefix();
        let key = key.strip_prefix(prefix.as_str()).unwrap_or(key);
        let mut expired = StatusError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can \
             start a new list without the continue parameter, or use the continue token in this \
             response to retrieve the remainder of the results. Continuing with the provided token \
             results in an inconsistent list - objects that were created, modified, or deleted between \
             the time the first chunk was returned and now may show up in the list.",
        );
        expired.continue_token = Some(ContinueToken::behind(key, None).encode());
        expired
    }
}

/// The metadata of a list whose last page read is `page`.
fn list_metadata(
    page: &ListPage,
    options: &ListParameters,
    after: Option<&str>,
    prefix: &str,
) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), json!(page.revision.to_string()));
    if let (true, Some(key)) = (page.more(), after) {
        let key = key.strip_prefix(prefix).unwrap_or(key);
        let token = ContinueToken::behind(key, Some(page.revision));
        metadata.insert("continue".into(), json!(token.encode()));
        if options.labels.is_everything() && options.fields.is_everything() {
            metadata.insert("remainingItemCount".into(), json!(page.remaining));
        }
    }
    metadata
}

/// The objects of a list.
pub(super) struct CollectedList {
    pub(super) objects: Vec<ListedObject>,
    /// The length of all of them, as they are stored.
    bytes: usize,
    /// The list's own metadata.
    metadata: Map<String, Value>,
}

/// Where a list begins.
struct Start {
    after: Option<String>,
    at: ReadRevision,
}
