//! The upstream's dry run of a request: what the object will be, with defaults, mutations and server-side apply.
//!
//! It is the client's own request with `dryRun=All`, as the same user, within the same seat.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use fairgate_call::{Call, ClientBody, Refusal, Reply, ReplyBody, RequestProgress};
use fairgate_core::digest::query_pairs;
use http::{
    HeaderValue, Request, Response, StatusCode, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WARNING},
    response,
    uri::PathAndQuery,
};
use serde_json::Value;
use tower::Service;

use crate::{
    limits::body_budget::{self, BodyShare, ReadFailure},
    limits::decoded::{decode, decode_sent},
    limits::lack::Lack,
    limits::workers::WorkerPool,
    object::empty_lists,
};

/// The largest response that is read, in bytes.
pub(crate) const MAX_RESPONSE: usize = 16 << 20;

/// The result of a dry run.
#[derive(Debug)]
pub(crate) enum DryRunEnd {
    /// The object as it would be stored, the response, and its warnings.
    Object(Value, DryRunReply, Vec<HeaderValue>),
    /// The upstream carries the request out, but does not return its object.
    NoObject,
    /// The upstream refuses the request, or failed and says so in a `Status`.
    Refused(StatusCode, DryRunRefusal),
    /// There is no memory for its response.
    NoRoom,
    /// Something else is lacking.
    Lacking(Lack),
    /// The upstream failed.
    Failed(String),
}

/// The response to a dry run.
#[derive(Debug)]
pub(crate) struct DryRunReply {
    head: response::Parts,
    body: Bytes,
}

/// What the client gets of an error response to a dry run.
#[derive(Debug)]
pub(crate) struct DryRunRefusal {
    pub(crate) retry_after: Option<HeaderValue>,
    pub(crate) warnings: Vec<HeaderValue>,
    pub(crate) body: Bytes,
}

impl DryRunReply {
    pub(crate) fn into_reply(self) -> Reply {
        Response::from_parts(self.head, ReplyBody::full(self.body))
    }
}

/// Makes dry runs of requests.
pub(crate) trait DryRuns {
    /// Sends `call` with this body as a dry run. The response is counted in `share`, as text and decoded. `content_type` is that
    /// of the body, if it is not the one of the call.
    ///
    /// # Errors
    ///
    /// The refusal of an inner layer.
    async fn dry_run(
        &mut self,
        call: &Call,
        body: &Bytes,
        content_type: Option<HeaderValue>,
        share: &mut BodyShare,
    ) -> Result<DryRunEnd, Refusal>;
}

/// Makes them through the inner service; large responses are read on worker threads.
pub(crate) struct ThroughInner<'s, S>(pub(crate) &'s mut S, pub(crate) &'s WorkerPool);

impl<S> DryRuns for ThroughInner<'_, S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    async fn dry_run(
        &mut self,
        call: &Call,
        sent: &Bytes,
        content_type: Option<HeaderValue>,
        share: &mut BodyShare,
    ) -> Result<DryRunEnd, Refusal> {
        let Some(mut dry) = dry_call(call, sent) else {
            return Ok(DryRunEnd::Lacking(Lack::Url));
        };
        if let Some(content_type) = content_type {
            let headers = dry.request.headers_mut();
            headers.insert(CONTENT_TYPE, content_type);
            headers.insert(CONTENT_LENGTH, sent.len().into());
        }
        let reply = self.0.call(dry).await?;
        let (head, body) = reply.into_parts();
        let body = body_budget::collect(body, MAX_RESPONSE, share).await;
        // The upstream is done with it, and nothing has been changed.
        call.context.progress.set(RequestProgress::NotSent);
        let body = match body {
            Ok(body) => body,
            Err(ReadFailure::TooLong | ReadFailure::Failed(_)) => {
                let why = "the response to the dry run is incomplete or too long";
                return Ok(DryRunEnd::Failed(why.to_owned()));
            }
            Err(failure) => return Ok(failure.into()),
        };
        let mut object = match decode(self.1, body.clone(), share).await {
            Ok(object) => object.ok(),
            Err(failure) => return Ok(failure.into()),
        };
        if let Some(object) = &mut object
            && head.status.is_success()
            && empty_lists::may_be_in(sent)
        {
            match decode_sent(self.1, sent.clone(), share).await {
                Ok(Ok(sent)) => empty_lists::restore(&sent, object),
                // Another format, in which none is written as such.
                Ok(Err(_)) => {}
                Err(failure) => return Ok(failure.into()),
            }
        }
        let reply = DryRunReply { head, body };
        Ok(if reply.head.status.is_success() {
            end_of_success(reply, object, call_is_dry(call))
        } else {
            end_of_failure(reply, object)
        })
    }
}

impl From<ReadFailure> for DryRunEnd {
    fn from(failure: ReadFailure) -> Self {
        match failure {
            ReadFailure::NoRoom => Self::NoRoom,
            ReadFailure::Lacking(lack) => Self::Lacking(lack),
            failure @ (ReadFailure::TooLong
            | ReadFailure::NotServed(_)
            | ReadFailure::Failed(_)) => Self::Failed(failure.to_string()),
        }
    }
}

/// What a response with an error status says; `object` is its body, if that is JSON.
fn end_of_failure(DryRunReply { head, body }: DryRunReply, object: Option<Value>) -> DryRunEnd {
    let is_status = object.is_some_and(|object| object["kind"] == "Status");
    let is_error = head.status.is_client_error() || head.status.is_server_error() && is_status;
    if !is_error {
        let why = format!("the upstream answered the dry run with {}", head.status);
        return DryRunEnd::Failed(why);
    }
    let refusal = DryRunRefusal {
        retry_after: head.headers.get(RETRY_AFTER).cloned(),
        warnings: warnings_of(&head),
        body,
    };
    DryRunEnd::Refused(head.status, refusal)
}

/// What a response without an error says; `object` is its body, if that is JSON, and `is_all` whether the client gets no other one.
fn end_of_success(mut reply: DryRunReply, object: Option<Value>, is_all: bool) -> DryRunEnd {
    let Some(object) = object.filter(Value::is_object) else {
        let why = "the response to the dry run is no object";
        return DryRunEnd::Failed(why.to_owned());
    };
    if object["kind"] == "Status" {
        return DryRunEnd::NoObject;
    }
    let warnings = warnings_of(&reply.head);
    let headers = &mut reply.head.headers;
    if !is_all {
        // They come again with the response to the request itself.
        headers.remove(WARNING);
    }
    headers.remove(CONTENT_LENGTH);
    DryRunEnd::Object(object, reply, warnings)
}

fn warnings_of(head: &response::Parts) -> Vec<HeaderValue> {
    head.headers.get_all(WARNING).iter().cloned().collect()
}

fn call_is_dry(call: &Call) -> bool {
    call.request
        .uri()
        .query()
        .is_some_and(|query| query_pairs(query).any(|(key, _)| key == "dryRun"))
}

/// The request as a dry run, whose response is JSON; `None` if its target would be too long.
fn dry_call(call: &Call, body: &Bytes) -> Option<Call> {
    let mut dry = with_body(call, body);
    *dry.request.uri_mut() = dry_target(call.request.uri())?;
    let headers = dry.request.headers_mut();
    headers.remove(ACCEPT_ENCODING);
    let json = HeaderValue::from_static("application/json");
    headers.insert(ACCEPT, json);
    Some(dry)
}

/// The same request with this body, and the headers of its own.
pub(crate) fn with_body(call: &Call, body: &Bytes) -> Call {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = call.request.method().clone();
    head.uri = call.request.uri().clone();
    head.version = call.request.version();
    head.headers = call.request.headers().clone();
    Call {
        request: Box::new(Request::from_parts(head, ClientBody::full(body.clone()))),
        digest: Arc::clone(&call.digest),
        identity: call.identity.clone(),
        kind: call.kind,
        peer: Rc::clone(&call.peer),
        received: call.received,
        deadline: call.deadline,
        context: Rc::clone(&call.context),
    }
}

/// The target with `dryRun=All`, unless the client itself asks for a dry run in plain letters: the upstream refuses what it
/// does not know of these, in its own words.
fn dry_target(uri: &Uri) -> Option<Uri> {
    let query = uri.query().unwrap_or_default();
    let is_plain =
        |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphabetic());
    let mut is_dry = false;
    let kept = query.split('&').filter(|pair| match pair.split_once('=') {
        Some(("dryRun", value)) => {
            is_dry |= is_plain(value);
            is_plain(value)
        }
        _ => !pair.is_empty() && *pair != "dryRun",
    });
    let mut kept: Vec<&str> = kept.collect();
    if !is_dry {
        kept.push("dryRun=All");
    }
    let target = format!("{}?{}", uri.path(), kept.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}

/// In audit mode there are none.
pub(crate) enum NoDryRuns {}

impl DryRuns for NoDryRuns {
    async fn dry_run(
        &mut self,
        _: &Call,
        _: &Bytes,
        _: Option<HeaderValue>,
        _: &mut BodyShare,
    ) -> Result<DryRunEnd, Refusal> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::digest::MAX_PARAMETERS;

    use super::*;

    #[test]
    fn the_target_keeps_its_parameters() {
        for (target, dry) in [
            ("/a/b", "/a/b?dryRun=All"),
            ("/a?x=1&force", "/a?x=1&force&dryRun=All"),
            ("/a?dryRun=All&x=%20", "/a?dryRun=All&x=%20"),
            ("/a?dryRun=x", "/a?dryRun=x"),
            ("/a?dryRun=%zz&dryRun", "/a?dryRun=All"),
            ("/a?dryRun=&", "/a?dryRun=All"),
        ] {
            assert_eq!(dry_target(&Uri::from_static(target)).unwrap(), dry);
        }
    }

    #[test]
    fn no_number_of_parameters_makes_a_server_ignore_that_it_is_a_dry_run() {
        let target = format!("/a?{}", vec!["a"; MAX_PARAMETERS].join("&"));
        let dry = dry_target(&target.parse().unwrap()).unwrap();
        let query = dry.query().unwrap();
        // Go reads so many, or none.
        assert!(query.split('&').count() <= 10_000);
        assert!(query_pairs(query).any(|pair| pair == ("dryRun".to_owned(), "All".to_owned())));
    }
}
