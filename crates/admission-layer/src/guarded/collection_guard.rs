//! Guarded deletions of collections.
//!
//! A server evaluates the objects of a collection as it deletes them. The gateway evaluates those that it has read: another one may be
//! created before the deletion, and one of them may be changed. A condition on the version of each is only possible for one
//! object. So the collection is deleted object by object: each request is the client's own, for the evaluated version of one object.
//!
//! Not here: evaluating them (`collection`).

use bytes::Bytes;
use fairgate_call::{Call, Refusal, Reply, ReplyBody};
use fairgate_core::digest::is_parameter;
use fairgate_upstream::path::push_segment;
use http::{
    HeaderValue, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, WARNING},
    uri::PathAndQuery,
};
use serde_json::json;
use tower::Service;

use crate::{
    evaluate::Evaluation,
    guarded::conditional::{CarriedOut, RecordAtEnd, forget, guarded},
    limits::lack::Lack,
    object::guard::{EvaluatedItem, MAX_RETRIES},
    replies::responses::{RefusedRequest, reasons},
    upstream::old_read::OldRead,
};
use fairgate_admission::WriteGuard;

/// A UID that no object has: a deletion with it as a precondition deletes nothing.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

impl Evaluation {
    /// Deletes the evaluated objects of a collection. If another one is there, or one of them has changed, it is evaluated again.
    ///
    /// If some were deleted by then, what policies said stays recorded, also if they deny the rest afterwards.
    pub(crate) async fn delete_items<S>(
        &mut self,
        call: Call,
        inner: &mut S,
        record: &mut RecordAtEnd<'_>,
        retries: u32,
    ) -> Result<CarriedOut, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        record.guarded(if retries > 0 {
            WriteGuard::Repeated
        } else {
            WriteGuard::Held
        });
        let items = std::mem::take(&mut self.evaluated_items);
        let deleted_before = self.deleted_items.number();
        let is_one = deleted_before == 0 && items.len() <= 1;
        // Of an empty collection, the server may delete what has been created meanwhile.
        let none = (is_one && items.is_empty()).then_some(None);
        for item in items.into_iter().map(Some).chain(none) {
            let Some(deletion) = self.deletion(&call, item.as_ref()) else {
                let error = Lack::Url.status();
                let refused = RefusedRequest::error(&error, reasons::FAILED, self.output);
                return Ok(CarriedOut::Refused(Box::new(call), refused));
            };
            let reply = inner.call(deletion).await?;
            if reply.status() == StatusCode::CONFLICT && retries < MAX_RETRIES {
                forget(reply, &call).await;
                if self.deleted_items.number() == deleted_before {
                    record.cancel();
                }
                return Ok(CarriedOut::Changed(Box::new(call), OldRead::None));
            }
            // The reply to one is the list of what was deleted.
            if is_one || !reply.status().is_success() {
                return Ok(CarriedOut::Reply(reply));
            }
            if let Some(item) = item {
                self.deleted_items.add(item, reply.headers());
            }
            forget(reply, &call).await;
        }
        let warnings = self.deleted_items.take_warnings();
        Ok(CarriedOut::Reply(success(warnings)))
    }

    /// The client's request for one of its objects, or for none.
    fn deletion(&self, call: &Call, item: Option<&EvaluatedItem>) -> Option<Call> {
        let mut options = self.plan.facts.options.clone().unwrap_or_else(|| json!({}));
        options["apiVersion"] = json!("meta.k8s.io/v1");
        options["kind"] = json!("DeleteOptions");
        let preconditions = &mut options["preconditions"];
        match item {
            Some(item) => {
                preconditions["resourceVersion"] = json!(item.version.resource_version);
                if preconditions["uid"].is_null() && !item.version.uid.is_empty() {
                    preconditions["uid"] = json!(item.version.uid);
                }
            }
            None => preconditions["uid"] = json!(NO_UID),
        }
        let body = Bytes::from(options.to_string());
        let mut deletion = guarded(call, &body, Some("application/json"));
        if let Some(item) = item {
            *deletion.request.uri_mut() = self.target(call.request.uri(), &item.name)?;
        }
        Some(deletion)
    }

    /// The target with a selector of this name; `None` if it would be too long.
    fn target(&self, uri: &Uri, name: &str) -> Option<Uri> {
        let query = uri.query().unwrap_or_default();
        // What says which of the objects are meant, and by which list, has been taken into account.
        let replaced = [
            "fieldSelector",
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
        ];
        let kept = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !is_parameter(pair, &replaced));
        let mut target = uri.path().to_owned();
        target.push('?');
        for pair in kept {
            target.push_str(pair);
            target.push('&');
        }
        let mut selector = self.plan.query.field_selector().to_owned();
        if !selector.is_empty() {
            selector.push(',');
        }
        selector.push_str("metadata.name=");
        for character in name.chars() {
            if matches!(character, '\\' | ',' | '=') {
                selector.push('\\');
            }
            selector.push(character);
        }
        target.push_str("fieldSelector=");
        push_segment(&mut target, &selector);
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
        Uri::from_parts(parts).ok()
    }
}

/// The reply to the deletion of several objects.
fn success(warnings: Vec<HeaderValue>) -> Reply {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    let mut reply = Response::new(ReplyBody::full(format!("{status}\n")));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for warning in warnings {
        headers.append(WARNING, warning);
    }
    reply
}
