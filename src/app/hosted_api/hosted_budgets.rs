//! The disruption budgets of the hosted API, as evictions read and charge them.

use std::sync::Arc;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::Handle;

use fairgate_apiserver::{Hosted, HostedBody};
use fairgate_base::{account::HeavyTurns, clock::Clock, tasks};
use fairgate_disruption::procedure::calls::{CallOutcome, CallReply, UpstreamCall};
use fairgate_eviction_layer::{BudgetApi, CallFuture, UpstreamResponse};
use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;

/// The field manager of the gateway's changes.
const MANAGER: &str = "fieldManager=fairgate";
/// Budgets in one page of a list.
const PAGE: usize = 100;

/// How many calls are made at a time.
const AT_ONCE: usize = 2;

/// The budgets of a hosted API. Calls are requests of the gateway itself to that API.
///
/// A budget may be large, and a list of them larger. So calls are made on threads of the blocking pool, a few at a time, and
/// namespaces take turns.
#[derive(Clone)]
pub(crate) struct HostedBudgets {
    hosted: Arc<Hosted>,
    clock: Clock,
    turns: HeavyTurns,
}

impl HostedBudgets {
    pub(crate) fn new(hosted: Arc<Hosted>, clock: Clock) -> Self {
        Self {
            hosted,
            clock,
            turns: HeavyTurns::new(AT_ONCE),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(crate) async fn outcome(
        &self,
        namespace: &str,
        call: &UpstreamCall,
    ) -> CallOutcome<UpstreamResponse> {
        let turn = self.turns.of(namespace, 1).await;
        let (this, namespace, call) = (self.clone(), namespace.to_owned(), call.clone());
        let working = tasks::spawn_on_blocking_pool(&Handle::current(), async move {
            // Held to the end, also if nobody waits for the outcome any more.
            let _turn = turn;
            this.call_api(&namespace, &call).await
        });
        working.await.unwrap_or(CallOutcome::Unknown)
    }

    async fn call_api(
        &self,
        namespace: &str,
        call: &UpstreamCall,
    ) -> CallOutcome<UpstreamResponse> {
        let version = POD_DISRUPTION_BUDGET.stored().name;
        let budgets = format!(
            "/apis/{}/namespaces/{namespace}/{}",
            POD_DISRUPTION_BUDGET.api_version(version),
            POD_DISRUPTION_BUDGET.plural
        );
        let (method, path, query, body) = match call {
            UpstreamCall::ListBudgets { continue_token } => {
                let mut query = format!("limit={PAGE}");
                if let Some(token) = continue_token {
                    // Its characters are those of URL-safe base64.
                    query.push_str("&continue=");
                    query.push_str(token);
                }
                (Method::GET, budgets, query, None)
            }
            UpstreamCall::GetBudget { name } => (
                Method::GET,
                format!("{budgets}/{name}"),
                String::new(),
                None,
            ),
            UpstreamCall::PutBudgetStatus { name, object } => (
                Method::PUT,
                format!("{budgets}/{name}/status"),
                MANAGER.to_owned(),
                Some(object),
            ),
            // Pods are the upstream's.
            _ => return CallOutcome::NotSent,
        };
        let json = "application/json";
        let response = self
            .hosted
            .serve_own(method, &path, &query, json, body)
            .await;
        let HostedBody::Full(body) = response.body else {
            return CallOutcome::Unknown;
        };
        if response.status.is_success() {
            return match serde_json::from_slice::<Value>(&body) {
                Ok(object) => CallOutcome::Success(object),
                Err(_) => CallOutcome::Unknown,
            };
        }
        // The store may have carried out a write that it could not confirm.
        if body_is_uncertain(response.status, call) {
            return CallOutcome::Unknown;
        }
        CallOutcome::Failure {
            code: response.status.as_u16(),
            response: UpstreamResponse {
                status: response.status,
                retry_after: response.headers.get(http::header::RETRY_AFTER).cloned(),
                body,
            },
        }
    }
}

fn body_is_uncertain(status: StatusCode, call: &UpstreamCall) -> bool {
    matches!(call, UpstreamCall::PutBudgetStatus { .. }) && status.is_server_error()
}

impl BudgetApi for HostedBudgets {
    fn call<'a>(&'a self, namespace: &'a str, call: &'a UpstreamCall) -> CallFuture<'a> {
        Box::pin(async move {
            let sent = self.now();
            let outcome = self.outcome(namespace, call).await;
            CallReply {
                outcome,
                sent,
                received: self.now(),
                date: None,
            }
        })
    }
}
