//! Reads the stored objects of requests, in the gateway's own name: policies see them even where the user may not read
//! them, as in kube-apiserver.

use std::time::Duration;

use bytes::Bytes;
use fairgate_objects::codec::json;
use fairgate_upstream::{
    client::{ApiClient, RequestError, with_causes},
    path::push_segment,
};
use http::{
    HeaderValue, Request, StatusCode,
    header::{ACCEPT, USER_AGENT},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;

/// The time limit of one request.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// The largest response that is read, in bytes.
const MAX_RESPONSE: usize = 32 << 20;
/// Objects in one page of a list.
const PAGE: usize = 250;

/// Reads objects of the upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamReader {
    client: ApiClient,
}

/// An object as the upstream has it.
#[derive(Debug)]
pub(crate) struct StoredObject {
    pub(crate) value: Value,
    /// The length of its JSON in bytes.
    pub(crate) length: usize,
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
}

impl UpstreamReader {
    pub(crate) fn new(client: ApiClient) -> Self {
        Self { client }
    }

    /// The object at a path; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub(crate) async fn object(&self, path: &str) -> Result<Option<StoredObject>, String> {
        let (status, body) = self.get(path).await?;
        match status {
            StatusCode::OK => Ok(Some(StoredObject {
                value: parsed(&body)?,
                length: body.len(),
            })),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(refused(status, &body)),
        }
    }

    /// A page of the collection at a path. `selectors` is a query, or empty.
    ///
    /// # Errors
    ///
    /// Why it could not be read.
    pub(crate) async fn page(
        &self,
        path: &str,
        selectors: &str,
        continue_token: &str,
    ) -> Result<UpstreamPage, String> {
        let mut target = format!("{path}?limit={PAGE}");
        if !selectors.is_empty() {
            target.push('&');
            target.push_str(selectors);
        }
        if !continue_token.is_empty() {
            target.push_str("&continue=");
            push_segment(&mut target, continue_token);
        }
        let (status, body) = self.get(&target).await?;
        if status != StatusCode::OK {
            return Err(refused(status, &body));
        }
        let mut list = parsed(&body)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Value::Array(items) = list["items"].take() else {
            return Err("the response is no list".to_owned());
        };
        let kind = text(&list["kind"]);
        Ok(UpstreamPage {
            items,
            api_version: text(&list["apiVersion"]),
            kind: kind.strip_suffix("List").unwrap_or(&kind).to_owned(),
            continue_token: text(&list["metadata"]["continue"]),
        })
    }

    async fn get(&self, target: &str) -> Result<(StatusCode, Bytes), String> {
        let reading = tokio::time::timeout(READ_LIMIT, self.read(target));
        let read = reading.await;
        read.unwrap_or_else(|_elapsed| Err("the upstream did not answer in time".to_owned()))
    }

    async fn read(&self, target: &str) -> Result<(StatusCode, Bytes), String> {
        let target = PathAndQuery::try_from(target).map_err(|error| error.to_string())?;
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = target.into();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("fairgate"));
        let response = self.client.send(request).await;
        let (head, body) = response
            .map_err(|error: RequestError| error.to_string())?
            .into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await;
        let body = body.map_err(|error| with_causes(&*error))?;
        Ok((head.status, body.to_bytes()))
    }
}

fn parsed(body: &[u8]) -> Result<Value, String> {
    let read = json::parse(body).map_err(|error| format!("the response is no JSON: {error}"))?;
    Ok(read.value)
}

fn refused(status: StatusCode, body: &[u8]) -> String {
    let read = serde_json::from_slice::<Value>(body).ok();
    let message = read.as_ref().and_then(|value| value["message"].as_str());
    let message = message.or(status.canonical_reason()).unwrap_or_default();
    let message: String = message.chars().take(300).collect();
    format!("the upstream answered {}: {message}", status.as_u16())
}
