//! What is recorded of writes to hosted objects in mode audit.

use std::{
    future::ready,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use bytes::Bytes;
use fairgate_admission::{
    AdmissionOperation, InputFailure, LookupFuture, ParamScope, PolicyParamKind, SharedObject,
};
use fairgate_cel::CelJson;
use fairgate_core::{
    digest::{RequestDigest, RequestInfo, User},
    sync::lock,
};
use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;
use fairgate_store::{
    HistoryLimits, StoreFuture,
    local::{LocalSettings, LocalStore},
};
use fairgate_testkit::store::TestStore;
use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::{
    admin::{AdminEndpoints, AdminFuture},
    hosted::{Hosted, HostedSettings},
};
use fairgate_apihttp::{
    authorize::BuiltInRules,
    request::{ApiRequest, Caller},
};

const BUDGETS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
const MERGE_PATCH: &str = "application/merge-patch+json";

#[derive(Debug, Default)]
struct Records {
    all: Mutex<Vec<AdmissionRecord>>,
    changed: Notify,
}

impl AdmissionRecorder for Records {
    fn record(&self, record: AdmissionRecord) {
        lock(&self.all).push(record);
        self.changed.notify_waiters();
    }
}

impl Records {
    /// The operations of the writes that were evaluated, until this one is there.
    async fn until(&self, last: AdmissionOperation) -> Vec<AdmissionOperation> {
        loop {
            let changed = self.changed.notified();
            let all: Vec<_> = (lock(&self.all).iter().map(|record| record.operation)).collect();
            if all.contains(&last) {
                return all;
            }
            changed.await;
        }
    }
}

#[derive(Debug)]
struct InForce(Arc<PolicySet>);

impl PolicySetSource for InForce {
    fn policies(&self) -> Option<Arc<PolicySet>> {
        Some(Arc::clone(&self.0))
    }
}

/// A cluster in which every namespace exists, without labels, and no params do.
#[derive(Debug)]
struct NoObjects;

impl ClusterObjects for NoObjects {
    fn namespace(&self, _: &str) -> Option<SharedObject> {
        Some(Arc::new(CelJson::Null))
    }

    fn read_namespace<'a>(&'a self, _: &'a str, _: &'a str) -> LookupFuture<'a> {
        Box::pin(ready(Err(InputFailure::NotFound)))
    }

    fn param_scope(&self, _: &PolicyParamKind) -> Result<ParamScope, String> {
        Ok(ParamScope::Namespaced)
    }
}

struct Nothing;

impl ParamResources for Nothing {
    fn resource(&self, _: &str, _: &str) -> Option<String> {
        None
    }
}

impl AdminEndpoints for Nothing {
    fn ask<'a>(&'a self, _: &'a str, _: &'a str, _: bool) -> AdminFuture<'a> {
        Box::pin(ready(None))
    }
}

/// A policy that denies every update and every deletion.
fn policies() -> PolicySet {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no"},
        "spec": {
            "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [{
                "apiGroups": ["policy"], "apiVersions": ["v1"],
                "operations": ["UPDATE", "DELETE"], "resources": ["poddisruptionbudgets"],
            }]},
            "validations": [{
                "expression": "false",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no"},
        "spec": {"policyName": "no", "validationActions": ["Deny"]},
    });
    PolicySet::from_json(&[&policy], &[&binding]).unwrap()
}

fn store(clock: &Clock) -> Arc<TestStore> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("fairgate-hosted-audit-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let settings = LocalSettings {
        path: directory.join("store.redb"),
        limits: HistoryLimits::default(),
    };
    let store = LocalStore::open(settings, clock.clone()).unwrap();
    Arc::new(TestStore::in_directory(store, directory))
}

fn hosted(store: &Arc<TestStore>, clock: Clock, records: &Arc<Records>) -> Arc<Hosted> {
    let authorizer = || Authorizer::BuiltIn(BuiltInRules::default());
    Hosted::new(HostedSettings {
        body_bytes: 64 << 20,
        quotas: crate::limits::quota::HostedQuota::default(),
        kinds: vec![&POD_DISRUPTION_BUDGET],
        subresources: Vec::new(),
        store: Arc::clone(store) as Arc<dyn Store>,
        clock,
        authorizer: authorizer(),
        version: "v1.36.3".to_owned(),
        address: "127.0.0.1:6443".to_owned(),
        namespaces: None,
        admission: HostedAdmission::OfGateway(GatewayAdmission {
            mode: AdmissionMode::Audit,
            policies: Arc::new(InForce(Arc::new(policies()))),
            cluster: Arc::new(NoObjects),
            resources: Arc::new(Nothing),
            authorizer: authorizer(),
            recorder: Arc::clone(records) as Arc<dyn AdmissionRecorder>,
        }),
        admin: Arc::new(Nothing),
        responses: fairgate_call::ResponseMemory::new(64 << 20),
    })
}

/// A request of a client, which is evaluated. Returns the code of the response.
async fn by_client(hosted: &Hosted, method: Method, body: Option<&Value>) -> u16 {
    let path = format!("{BUDGETS}/a");
    let info = RequestInfo::parse(method.as_str(), &path, None).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MERGE_PATCH));
    let request = ApiRequest {
        method,
        path,
        query: String::new(),
        headers,
        body: Some(body.map_or_else(Bytes::new, |body| body.to_string().into())),
        caller: Caller::Client { impersonator: None },
        audit_id: None,
        digest: Arc::new(RequestDigest {
            info,
            user: Arc::new(User::new("alice", [User::AUTHENTICATED])),
        }),
    };
    hosted.serve(&request).await.status.as_u16()
}

fn with_label(state: &str) -> Value {
    json!({"metadata": {"labels": {"state": state}}})
}

/// Once, before an object is written, another request changes its label.
fn change_once(store: &TestStore, hosted: &Arc<Hosted>) {
    let (hosted, is_done) = (Arc::clone(hosted), Arc::new(AtomicBool::new(false)));
    let meanwhile = move || -> StoreFuture<'static, ()> {
        let (hosted, is_done) = (Arc::clone(&hosted), Arc::clone(&is_done));
        Box::pin(async move {
            if !is_done.swap(true, Ordering::SeqCst) {
                let (path, body) = (format!("{BUDGETS}/a"), with_label("meanwhile"));
                let changing = hosted.serve_own(Method::PATCH, &path, "", MERGE_PATCH, Some(&body));
                assert_eq!(changing.await.status.as_u16(), 200);
            }
            Ok(())
        })
    };
    let set = store
        .before_writes
        .set(("poddisruptionbudgets", Box::new(meanwhile)));
    assert!(set.is_ok());
}

#[tokio::test]
async fn of_a_write_that_is_tried_again_only_the_attempt_that_is_stored_is_recorded() {
    let (clock, records) = (Clock::system(), Arc::<Records>::default());
    let store = store(&clock);
    let hosted = hosted(&store, clock, &records);
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "a"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    let creating = hosted.serve_own(Method::POST, BUDGETS, "", "application/json", Some(&budget));
    assert_eq!(creating.await.status.as_u16(), 201);
    change_once(&store, &hosted);

    let patched = by_client(&hosted, Method::PATCH, Some(&with_label("stored"))).await;
    assert_eq!(patched, 200);
    assert_eq!(by_client(&hosted, Method::DELETE, None).await, 200);
    // They are evaluated in the order in which they are stored.
    let evaluated = records.until(AdmissionOperation::Delete);
    let evaluated = tokio::time::timeout(Duration::from_secs(60), evaluated).await;
    let expected = [AdmissionOperation::Update, AdmissionOperation::Delete];
    assert_eq!(evaluated.unwrap(), expected);
}
