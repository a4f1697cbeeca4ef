//! Policies for tests: a few small priority levels, and FlowSchemas for them.

use std::{sync::Arc, time::Duration};

use fairgate_call::{ResetLimits, SpoolLimits};
use fairgate_core::{
    apf::{
        ObjectSet, Policy, PolicySettings, Semantics, objects::Bootstrap, work::EstimatorSettings,
    },
    time::Time,
};
use fairgate_proxy::fairness::{BodyLimits, Caps, Enforcement, FlowControl, FlowControlSettings};
use serde_json::{Value, json};

/// Shares of the mandatory level `catch-all`.
const CATCH_ALL_SHARES: u32 = 5;

/// Builds a policy. Every level has exactly the seats it is given: none lends or borrows.
#[derive(Clone)]
pub struct Rules {
    documents: Vec<Value>,
    seats: u32,
    pub semantics: Semantics,
    pub settings: FlowControlSettings,
}

/// What a level does with a request when no seat is free.
#[derive(Clone, Copy)]
pub enum Full {
    Reject,
    Queue { queues: u32, hand: u32, length: u32 },
}

impl Full {
    /// One queue of this length.
    pub const fn queue(length: u32) -> Self {
        Self::Queue {
            queues: 1,
            hand: 1,
            length,
        }
    }
}

impl Rules {
    pub fn new() -> Self {
        Self {
            documents: Vec::new(),
            seats: CATCH_ALL_SHARES,
            semantics: Semantics::Improved,
            settings: FlowControlSettings {
                enforcement: Enforcement::Enforce,
                // Requests wait for a quarter of it, a minute at most: as long as a test waits for anything.
                request_timeout: Duration::from_secs(600),
                max_queued: 10_000,
                estimator: EstimatorSettings::default(),
                borrowing_period: Duration::from_secs(1),
                long_running: Caps {
                    per_user: 100,
                    total: 1000,
                },
                watches: Caps::NONE,
                resets: ResetLimits::PER_USER,
                spool: SpoolLimits {
                    per_answer: 1 << 20,
                    total: 64 << 20,
                    min_read_bytes: 128 << 10,
                },
                bodies: BodyLimits {
                    unfinished_bytes: 1 << 20,
                    min_send_rate: 64 << 10,
                },
                long_head_bytes: 64 << 20,
            },
        }
    }

    /// One level, `small`, for all users except `system:masters`.
    pub fn small(seats: u32, full: Full) -> Self {
        Self::new()
            .level("small", seats, full)
            .schema("small", "small", &[])
    }

    /// Adds a level of `seats` seats; its UID is `uid-of-level-` followed by its name.
    pub fn level(mut self, name: &str, seats: u32, full: Full) -> Self {
        let response = match full {
            Full::Reject => json!({"type": "Reject"}),
            Full::Queue {
                queues,
                hand,
                length,
            } => json!({"type": "Queue", "queuing": {
                "queues": queues, "handSize": hand, "queueLengthLimit": length,
            }}),
        };
        self.seats += seats;
        self.documents.push(json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "PriorityLevelConfiguration",
            "metadata": {"name": name, "uid": format!("uid-of-level-{name}")},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": seats,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": response,
            }},
        }));
        self
    }

    /// Assigns the requests of `users`, or of all authenticated users if that is empty, to `level`, with a flow
    /// for each user. Its UID is `uid-of-schema-` followed by its name.
    pub fn schema(mut self, name: &str, level: &str, users: &[&str]) -> Self {
        let subjects: Vec<Value> = if users.is_empty() {
            vec![json!({"kind": "Group", "group": {"name": "system:authenticated"}})]
        } else {
            let user = |name| json!({"kind": "User", "user": {"name": name}});
            users.iter().map(user).collect()
        };
        let precedence = if users.is_empty() { 1000 } else { 500 };
        self.documents.push(json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": name, "uid": format!("uid-of-schema-{name}")},
            "spec": {
                "priorityLevelConfiguration": {"name": level},
                "matchingPrecedence": precedence,
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{
                    "subjects": subjects,
                    "resourceRules": [{
                        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                        "namespaces": ["*"], "clusterScope": true,
                    }],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }],
            },
        }));
        self
    }

    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self.settings.estimator.semantics = semantics;
        self
    }

    pub fn set(mut self, set: impl FnOnce(&mut FlowControlSettings)) -> Self {
        set(&mut self.settings);
        self
    }

    pub fn policy(&self) -> Arc<Policy> {
        let documents = self.documents.iter().cloned();
        let objects = ObjectSet::read(documents.map(|document| ("test", document)))
            .with_bootstrap(Bootstrap::Mandatory);
        let settings = PolicySettings {
            total_seats: self.seats,
            semantics: self.semantics,
            hash_key: [7; 16],
            tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
        };
        Arc::new(Policy::compile(&objects, &settings).unwrap().policy)
    }

    pub fn flow_control(&self, cores: usize) -> Arc<FlowControl> {
        let cores = u16::try_from(cores).unwrap();
        FlowControl::new(cores, self.policy(), self.settings.clone(), Time::ZERO)
    }
}
