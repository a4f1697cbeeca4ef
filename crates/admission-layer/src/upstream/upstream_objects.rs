//! Reads the stored objects of requests, in the gateway's own name: policies see them even where the user may not read
//! them, as in kube-apiserver.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use bytes::Bytes;
use fairgate_upstream::{absence, client::ApiClient, path::push_segment};
use http::{StatusCode, uri::PathAndQuery};
use serde_json::Value;

use crate::{
    limits::body_budget::{self, BodyShare, ReadFailure},
    limits::decoded::{decode, decoded_bytes},
    limits::lack::Lack,
    limits::workers::{LARGE, WorkerPool},
};

const JSON: &str = "application/json";
/// The metadata of an object, or all of it from servers that do not have it otherwise.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The time limit of one request.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// The largest response that is read, in bytes.
const MAX_RESPONSE: usize = 8 << 20;
/// Objects in one page of a list; fewer if that is too much to be read at once.
pub(crate) const PAGE: usize = 250;

/// Reads objects of the upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamReader {
    client: ApiClient,
    workers: Arc<WorkerPool>,
}

/// An object as the upstream has it.
#[derive(Debug)]
pub(crate) struct StoredObject {
    pub(crate) value: Value,
    /// Counts it.
    pub(crate) share: BodyShare,
}

/// Why a page could not be read.
#[derive(Debug)]
pub(crate) enum ListFailure {
    /// The upstream does not understand the query, or has no such collection: its `Status`.
    Refused(StatusCode, Bytes),
    /// Anything else.
    Unread(ReadFailure),
}

impl From<ReadFailure> for ListFailure {
    fn from(failure: ReadFailure) -> Self {
        Self::Unread(failure)
    }
}

impl From<String> for ListFailure {
    fn from(why: String) -> Self {
        Self::Unread(ReadFailure::Failed(why))
    }
}

/// A part of a list.
#[derive(Debug)]
pub(crate) struct UpstreamPage {
    pub(crate) items: Vec<Value>,
    /// Version and kind of the items, which do not have them.
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty in the last page.
    pub(crate) continue_token: String,
    /// Counts them.
    pub(crate) _share: BodyShare,
}

impl StoredObject {
    /// Its version; 0 if it has none, or not one of etcd.
    pub(crate) fn version(&self) -> u64 {
        let version = self.value["metadata"]["resourceVersion"].as_str();
        version
            .and_then(|version| version.parse().ok())
            .unwrap_or(0)
    }
}

impl UpstreamReader {
    /// Responses are read with this client, and large ones decoded by `workers`.
    pub(crate) fn new(client: ApiClient, workers: Arc<WorkerPool>) -> Self {
        Self { client, workers }
    }

    /// The object at a path; `None` if there is none. It is counted in `share`.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub(crate) async fn object(
        &self,
        path: &str,
        share: BodyShare,
    ) -> Result<Option<StoredObject>, ReadFailure> {
        self.object_as(path, JSON, share).await
    }

    /// The same with nothing but its metadata, if the upstream supports that.
    ///
    /// # Errors
    ///
    /// As [`object`](Self::object).
    pub(crate) async fn object_metadata(
        &self,
        path: &str,
        share: BodyShare,
    ) -> Result<Option<StoredObject>, ReadFailure> {
        self.object_as(path, METADATA, share).await
    }

    /// Makes something of an object: of a large one on a worker thread.
    ///
    /// # Errors
    ///
    /// No worker is free.
    pub(crate) async fn made_of<T: Send + 'static>(
        &self,
        object: StoredObject,
        make: impl FnOnce(&Value) -> T + Send + 'static,
    ) -> Result<T, ReadFailure> {
        let StoredObject { value, share } = object;
        if decoded_bytes(&value) <= LARGE {
            return Ok(make(&value));
        }
        let user = Arc::clone(share.user());
        let making = move || {
            let made = make(&value);
            drop((value, share));
            made
        };
        let made = self.workers.run(&user.name, 0, making).await;
        made.map_err(|_| ReadFailure::Lacking(Lack::Worker))
    }

    async fn object_as(
        &self,
        path: &str,
        accept: &'static str,
        mut share: BodyShare,
    ) -> Result<Option<StoredObject>, ReadFailure> {
        let (status, body) = self.get(path, accept, &mut share).await?;
        match status {
            StatusCode::OK => Ok(Some(StoredObject {
                value: self.decoded(body, &mut share).await?,
                share,
            })),
            StatusCode::NOT_FOUND if is_absent(&body) => Ok(None),
            StatusCode::NOT_FOUND => Err(ReadFailure::NotServed(refused(status, &body))),
            status => Err(refused(status, &body).into()),
        }
    }

    /// A page of at most `limit` objects of the collection at a path. `selectors` is a query, or empty; `from`, where the page begins, is more of
    /// it, with a `&` before each parameter. It is counted in `share`.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub(crate) async fn page(
        &self,
        path: &str,
        selectors: &str,
        from: &str,
        limit: usize,
        mut share: BodyShare,
    ) -> Result<UpstreamPage, ListFailure> {
        let mut target = format!("{path}?limit={limit}");
        if !selectors.is_empty() {
            target.push('&');
            target.push_str(selectors);
        }
        target.push_str(from);
        let (status, body) = self.get(&target, JSON, &mut share).await?;
        match status {
            StatusCode::OK => {}
            StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::GONE
            | StatusCode::GATEWAY_TIMEOUT => {
                return Err(ListFailure::Refused(status, body));
            }
            status => return Err(refused(status, &body).into()),
        }
        let mut list = self.decoded(body, &mut share).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Value::Array(items) = list["items"].take() else {
            return Err("the response is not a list".to_owned().into());
        };
        let kind = text(&list["kind"]);
        Ok(UpstreamPage {
            items,
            api_version: text(&list["apiVersion"]),
            kind: kind.strip_suffix("List").unwrap_or(&kind).to_owned(),
            continue_token: text(&list["metadata"]["continue"]),
            _share: share,
        })
    }

    /// The object with a name in the collection at a path, as it was stored at a revision, or is now: with the revision; `None` if there
    /// was none. It is counted in `share`.
    ///
    /// # Errors
    ///
    /// Why it could not be read: the revision may be compacted, or the upstream list no objects as they were.
    pub(crate) async fn object_at(
        &self,
        collection: &str,
        name: &str,
        revision: Option<u64>,
        mut share: BodyShare,
    ) -> Result<(u64, Option<StoredObject>), ReadFailure> {
        let mut target = format!("{collection}?fieldSelector=metadata.name");
        push_segment(&mut target, &format!("={}", escaped(name)));
        if let Some(revision) = revision {
            let _ = write!(
                target,
                "&resourceVersionMatch=Exact&resourceVersion={revision}"
            );
        }
        let (status, body) = self.get(&target, JSON, &mut share).await?;
        if status != StatusCode::OK {
            return Err(refused(status, &body).into());
        }
        let mut list = self.decoded(body, &mut share).await?;
        let listed = list["metadata"]["resourceVersion"].as_str();
        let listed = listed.and_then(|listed| listed.parse::<u64>().ok());
        // A server that ignores `resourceVersionMatch` lists the objects as they are now.
        let listed = listed.filter(|listed| revision.is_none_or(|revision| revision == *listed));
        let Some(listed) = listed else {
            return Err("the upstream does not list objects as they were"
                .to_owned()
                .into());
        };
        let [api_version, kind] = ["apiVersion", "kind"].map(|key| list[key].take());
        let Value::Array(items) = list["items"].take() else {
            return Err("the response is not a list".to_owned().into());
        };
        let mut items = items.into_iter();
        let Some(mut value) = items.find(|item| item["metadata"]["name"] == name) else {
            return Ok((listed, None));
        };
        if let Some(members) = value.as_object_mut() {
            // Items of built-in kinds do not have them.
            let kind = kind.as_str().unwrap_or_default();
            let kind = kind.strip_suffix("List").unwrap_or(kind);
            members.entry("apiVersion").or_insert(api_version);
            members.entry("kind").or_insert(kind.into());
        }
        Ok((listed, Some(StoredObject { value, share })))
    }

    async fn get(
        &self,
        target: &str,
        accept: &'static str,
        share: &mut BodyShare,
    ) -> Result<(StatusCode, Bytes), ReadFailure> {
        let reading = tokio::time::timeout(READ_LIMIT, self.read(target, accept, share));
        let late = |_elapsed| Err(ReadFailure::Lacking(Lack::Time));
        reading.await.unwrap_or_else(late)
    }

    async fn read(
        &self,
        target: &str,
        accept: &'static str,
        share: &mut BodyShare,
    ) -> Result<(StatusCode, Bytes), ReadFailure> {
        let target = PathAndQuery::try_from(target).map_err(|error| error.to_string())?;
        let response = self.client.open(target, accept).await;
        let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
        let body = body_budget::collect(body, MAX_RESPONSE, share).await?;
        Ok((head.status, body))
    }

    async fn decoded(&self, body: Bytes, share: &mut BodyShare) -> Result<Value, ReadFailure> {
        decode(&self.workers, body, share)
            .await?
            .map_err(|error| format!("the response is not valid JSON: {error}").into())
    }
}

/// A value of a field selector.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn is_absent(body: &[u8]) -> bool {
    serde_json::from_slice(body).is_ok_and(|body| absence::names_absent_object(&body))
}

fn refused(status: StatusCode, body: &[u8]) -> String {
    let read = serde_json::from_slice::<Value>(body).ok();
    let message = read.as_ref().and_then(|value| value["message"].as_str());
    let message = message.or(status.canonical_reason()).unwrap_or_default();
    let message: String = message.chars().take(300).collect();
    format!("the upstream answered {}: {message}", status.as_u16())
}
