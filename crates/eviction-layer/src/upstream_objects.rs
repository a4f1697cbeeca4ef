//! Calls to the upstream with the gateway's own credentials.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request,
    header::{ACCEPT, CONTENT_TYPE, DATE, RETRY_AFTER, USER_AGENT},
    uri::PathAndQuery,
};
use http_body_util::Full;
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use serde_json::Value;

use crate::{
    budget_api::{BudgetApi, CallFuture},
    upstream_response::UpstreamResponse,
};
use fairgate_base::clock::Clock;
use fairgate_disruption::procedure::calls::{CallOutcome, CallReply, UpstreamCall};
use fairgate_upstream::{
    client::{ApiClient, RequestError, read_whole},
    deep_json,
    path::push_segment,
};

/// The time limit of one call.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The largest response that is read, in bytes.
const MAX_RESPONSE: usize = 32 << 20;
/// Budgets in one page of a list. Each may have thousands of entries in `disruptedPods`.
const PAGE: usize = 100;
const JSON: &str = "application/json";
/// The field manager of the gateway's changes.
const MANAGER: &str = "fairgate";

/// The pods and budgets of the upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamObjects {
    client: ApiClient,
    clock: Clock,
}

impl UpstreamObjects {
    /// Makes calls through `client`, whose credentials are the gateway's own.
    pub(crate) fn new(client: ApiClient, clock: Clock) -> Self {
        Self { client, clock }
    }

    /// Makes a call about pods or budgets of a namespace. It takes at most [`CALL_LIMIT`].
    pub(crate) async fn call(
        &self,
        namespace: &str,
        call: &UpstreamCall,
    ) -> CallReply<UpstreamResponse> {
        let sent = self.now();
        let (outcome, date) = match request(namespace, call) {
            Some(request) => tokio::time::timeout(CALL_LIMIT, self.send(request, call))
                .await
                .unwrap_or((CallOutcome::Unknown, None)),
            // Names that do not fit into a request line belong to no object.
            None => (CallOutcome::NotSent, None),
        };
        CallReply {
            outcome,
            sent,
            received: self.now(),
            date,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        call: &UpstreamCall,
    ) -> (CallOutcome<UpstreamResponse>, Option<Timestamp>) {
        let (head, body) = match self.client.send(request).await {
            Ok(response) => response.into_parts(),
            Err(RequestError::Connect { .. }) => return (CallOutcome::NotSent, None),
            Err(_) => return (CallOutcome::Unknown, None),
        };
        let date = date(&head.headers);
        let body = read_whole(body, MAX_RESPONSE).await;
        (outcome(&head, body.ok(), call), date)
    }
}

impl BudgetApi for UpstreamObjects {
    fn call<'a>(&'a self, namespace: &'a str, call: &'a UpstreamCall) -> CallFuture<'a> {
        Box::pin(self.call(namespace, call))
    }
}

/// The outcome of a call that was answered. `body` is `None` if it could not be read to its end.
fn outcome(
    head: &http::response::Parts,
    body: Option<Bytes>,
    call: &UpstreamCall,
) -> CallOutcome<UpstreamResponse> {
    if !head.status.is_success() {
        return CallOutcome::Failure {
            code: head.status.as_u16(),
            response: UpstreamResponse {
                status: head.status,
                retry_after: head.headers.get(RETRY_AFTER).cloned(),
                body: body.unwrap_or_default(),
            },
        };
    }
    let object = body.and_then(|body| deep_json::read(&body).ok());
    match (object, call) {
        (Some(object), _) => CallOutcome::Success(object),
        // The status alone shows that the call was carried out.
        (None, UpstreamCall::PutBudgetStatus { .. } | UpstreamCall::DeletePod { .. }) => {
            CallOutcome::Success(Value::Null)
        }
        (None, _) => CallOutcome::Unknown,
    }
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    DateTimeParser::new().parse_timestamp(text).ok()
}

/// The HTTP request of a call; `None` if its path would be too long.
fn request(namespace: &str, call: &UpstreamCall) -> Option<Request<Full<Bytes>>> {
    let pod = |name: &str| {
        let mut path = String::from("/api/v1/namespaces/");
        push_segment(&mut path, namespace);
        path.push_str("/pods/");
        push_segment(&mut path, name);
        path
    };
    let budgets = || {
        let mut path = String::from("/apis/policy/v1/namespaces/");
        push_segment(&mut path, namespace);
        path.push_str("/poddisruptionbudgets");
        path
    };
    let budget = |name: &str| {
        let mut path = budgets();
        path.push('/');
        push_segment(&mut path, name);
        path
    };
    let (method, path, body) = match call {
        UpstreamCall::GetPod { name } => (Method::GET, pod(name), None),
        UpstreamCall::ListBudgets { continue_token } => {
            let mut path = format!("{}?limit={PAGE}", budgets());
            if let Some(token) = continue_token {
                path.push_str("&continue=");
                push_segment(&mut path, token);
            }
            (Method::GET, path, None)
        }
        UpstreamCall::GetBudget { name } => (Method::GET, budget(name), None),
        UpstreamCall::PutBudgetStatus { name, object } => {
            let path = format!("{}/status?fieldManager={MANAGER}", budget(name));
            (Method::PUT, path, Some((JSON, object)))
        }
        UpstreamCall::PatchPodStatus { name, patch } => {
            let path = format!("{}/status?fieldManager={MANAGER}", pod(name));
            let strategic = "application/strategic-merge-patch+json";
            (Method::PATCH, path, Some((strategic, patch)))
        }
        UpstreamCall::DeletePod {
            name,
            options,
            dry_run,
        } => {
            let query = if *dry_run { "?dryRun=All" } else { "" };
            let path = format!("{}{query}", pod(name));
            (Method::DELETE, path, Some((JSON, options)))
        }
    };
    let path = PathAndQuery::try_from(path).ok()?;
    let bytes = body.map(|(_, value)| Bytes::from(value.to_string()));
    let mut request = Request::new(Full::new(bytes.unwrap_or_default()));
    *request.method_mut() = method;
    *request.uri_mut() = path.into();
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static(JSON));
    headers.insert(USER_AGENT, HeaderValue::from_static(MANAGER));
    if let Some((content_type, _)) = body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::json;

    use super::*;

    fn target(call: &UpstreamCall) -> String {
        let request = request("n s", call).unwrap();
        format!("{} {}", request.method(), request.uri())
    }

    #[test]
    fn names_cannot_leave_their_segment() {
        let name = "a/../b?x=1#%".to_owned();
        let escaped = "a%2F..%2Fb%3Fx%3D1%23%25";
        assert_eq!(
            target(&UpstreamCall::GetPod { name: name.clone() }),
            format!("GET /api/v1/namespaces/n%20s/pods/{escaped}")
        );
        assert_eq!(
            target(&UpstreamCall::GetBudget { name }),
            format!("GET /apis/policy/v1/namespaces/n%20s/poddisruptionbudgets/{escaped}")
        );
        let list = UpstreamCall::ListBudgets {
            continue_token: Some("a&b=".to_owned()),
        };
        assert!(target(&list).ends_with("/poddisruptionbudgets?limit=100&continue=a%26b%3D"));
        let name = "x".repeat(70_000);
        assert!(request("ns", &UpstreamCall::GetPod { name }).is_none());
    }

    #[test]
    fn a_dry_run_is_requested_in_the_query_too() {
        let delete = |dry_run| UpstreamCall::DeletePod {
            name: "p".to_owned(),
            options: json!({}),
            dry_run,
        };
        assert!(target(&delete(true)).ends_with("/pods/p?dryRun=All"));
        assert!(target(&delete(false)).ends_with("/pods/p"));
    }

    #[test]
    fn a_date_is_read_as_http_writes_it() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        headers.insert(
            DATE,
            HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"),
        );
        assert_eq!(date(&headers), "1994-11-06T08:49:37Z".parse().ok());
    }

    #[test]
    fn a_change_counts_by_its_status_and_a_read_by_its_body() {
        let head = |status| {
            let mut response = http::Response::new(());
            *response.status_mut() = status;
            response.into_parts().0
        };
        let delete = UpstreamCall::DeletePod {
            name: "p".to_owned(),
            options: json!({}),
            dry_run: false,
        };
        let get = UpstreamCall::GetPod {
            name: "p".to_owned(),
        };
        let ok = head(StatusCode::OK);
        assert_eq!(
            outcome(&ok, None, &delete),
            CallOutcome::Success(Value::Null)
        );
        assert_eq!(outcome(&ok, None, &get), CallOutcome::Unknown);
        let cut = Bytes::from_static(b"{\"kind\":");
        assert_eq!(outcome(&ok, Some(cut), &get), CallOutcome::Unknown);
        let CallOutcome::Failure { code, response } =
            outcome(&head(StatusCode::CONFLICT), None, &get)
        else {
            panic!("a conflict is a failure");
        };
        assert_eq!((code, response.body), (409, Bytes::new()));
    }
}
