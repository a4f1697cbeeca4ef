//! A model of an upstream with a `ReplicaSet`, its controller, and gateways that evict its pods.

use std::{collections::BTreeMap, time::Duration};

use fairgate_core::{random::Random, time::Time};
use fairgate_disruption::{
    budget::DisruptionBudget,
    controller::{
        ControllerStep, DisruptionController, ObjectKey, StatusWriteOutcome, scale::ControllerScale,
    },
    pod::Pod,
    procedure::{
        calls::{CallOutcome, CallReply, UpstreamCall},
        machine::{Eviction, EvictionStep},
        request::EvictionRequest,
        server_clock::ServerClock,
    },
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// An event of a watch.
enum Event {
    Budget(Value),
    Pod(Value),
    PodGone(String),
}

/// A scheduled event.
enum Later {
    Event(Event),
    /// The pod has terminated and is removed.
    End(String),
    /// The pod becomes ready.
    Ready(String),
    /// A call arrives late, after its sender has given up.
    Call(UpstreamCall),
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) elapsed: Duration,
    version: u64,
    pub(crate) pods: BTreeMap<String, Value>,
    pub(crate) budget: Value,
    later: BTreeMap<(Duration, u64), Later>,
    /// The time of the last scheduled event. Watches deliver events in order.
    last_event: Duration,
    created: u64,
    /// The replicas of the `ReplicaSet`.
    replicas: usize,
    /// Whether a pod that ends is replaced by a new one, which becomes ready.
    pub(crate) replaces: bool,
    /// Whether a new pod has the name of the one that it replaces.
    pub(crate) keeps_names: bool,
    controller: DisruptionController,
    /// The percentage of calls that fail.
    faults: u64,
}

/// A client that evicts one pod until it is gone.
pub(crate) struct Drainer {
    pub(crate) pod: String,
    pub(crate) uid: Value,
    pub(crate) eviction: Option<Eviction<String>>,
    pub(crate) asks_at: Duration,
    /// The difference of the gateway's clock from the upstream's.
    pub(crate) skew: SignedDuration,
}

fn start() -> Timestamp {
    "2024-01-01T00:00:00Z".parse().unwrap()
}

fn failure(code: u16) -> CallOutcome<String> {
    CallOutcome::Failure {
        code,
        response: String::new(),
    }
}

impl World {
    pub(crate) fn new(spec: &Value, pods: usize, seed: u64, faults: u64) -> Self {
        let mut world = Self {
            random: Random::seeded(seed),
            elapsed: Duration::ZERO,
            version: 0,
            pods: BTreeMap::new(),
            budget: json!({
                "metadata": {"name": "foo", "namespace": "ns", "generation": 1},
                "spec": spec,
            }),
            later: BTreeMap::new(),
            last_event: Duration::ZERO,
            created: 0,
            replicas: pods,
            replaces: true,
            keeps_names: false,
            controller: DisruptionController::default(),
            faults,
        };
        for _ in 0..pods {
            let name = world.create_pod(None);
            world.set_ready(&name);
        }
        world.put_budget(world.budget.clone());
        world
    }

    pub(crate) fn now(&self) -> Timestamp {
        start() + self.elapsed
    }

    fn at(&mut self, after: Duration, later: Later) {
        self.created += 1;
        self.later
            .insert((self.elapsed + after, self.created), later);
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.random.within(0..most))
    }

    fn send(&mut self, event: Event) {
        let delay = self.millis(500);
        self.last_event = self.last_event.max(self.elapsed + delay);
        let delay = self.last_event.saturating_sub(self.elapsed);
        self.at(delay, Later::Event(event));
    }

    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    pub(crate) fn put_budget(&mut self, mut budget: Value) {
        self.stamp(&mut budget);
        self.budget = budget.clone();
        self.send(Event::Budget(budget));
    }

    pub(crate) fn put_pod(&mut self, name: &str, mut pod: Value) {
        self.stamp(&mut pod);
        self.pods.insert(name.to_owned(), pod.clone());
        self.send(Event::Pod(pod));
    }

    /// Creates a pod, which replaces the one with the name `ended`, if that is given. Returns its name.
    pub(crate) fn create_pod(&mut self, ended: Option<String>) -> String {
        self.created += 1;
        let uid = format!("uid-{}", self.created);
        let ended = ended.filter(|_| self.keeps_names);
        let name = ended.unwrap_or_else(|| format!("pod-{}", self.created));
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs",
            "controller": true,
        });
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid, "ownerReferences": [owner]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
        });
        self.put_pod(&name, pod);
        name
    }

    pub(crate) fn set_ready(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.get(name).cloned() {
            pod["status"]["conditions"][0]["status"] = json!("True");
            self.put_pod(name, pod);
        }
    }

    pub(crate) fn healthy(&self) -> usize {
        let healthy = |pod: &&Value| {
            pod["status"]["conditions"][0]["status"] == "True"
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        self.pods.values().filter(healthy).count()
    }

    /// Advances time to `end`, and applies the events that are due.
    pub(crate) fn pass(&mut self, end: Duration, mut check: impl FnMut(&Self)) {
        self.elapsed = end;
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > end {
                break;
            }
            let later = first.remove();
            self.happen(later);
            check(self);
        }
    }

    fn happen(&mut self, later: Later) {
        match later {
            Later::Event(Event::Budget(budget)) => {
                let budget = DisruptionBudget::from_value(budget).unwrap();
                self.controller.apply_budget(budget);
            }
            Later::Event(Event::Pod(pod)) => {
                self.controller.apply_pod(Pod::from_value(&pod).unwrap());
            }
            Later::Event(Event::PodGone(name)) => {
                self.controller.delete_pod(&ObjectKey::new("ns", &name));
            }
            Later::End(name) => {
                self.pods.remove(&name);
                self.send(Event::PodGone(name.clone()));
                if !self.replaces {
                    return;
                }
                let name = self.create_pod(Some(name));
                let delay = self.millis(4000);
                self.at(delay, Later::Ready(name));
            }
            Later::Ready(name) => self.set_ready(&name),
            Later::Call(call) => {
                self.carry_out(&call);
            }
        }
    }

    /// Executes a call, unless a fault prevents it.
    pub(crate) fn call(&mut self, call: &UpstreamCall) -> CallOutcome<String> {
        let faults = self.faults;
        if !self.random.percent(faults) {
            return self.carry_out(call);
        }
        match self.random.within(0..5) {
            0 => {
                self.carry_out(call);
                CallOutcome::Unknown
            }
            1 => {
                self.carry_out(call);
                failure(500)
            }
            2 => failure(503),
            3 => CallOutcome::NotSent,
            _ => {
                let delay = self.millis(10_000);
                self.at(delay, Later::Call(call.clone()));
                CallOutcome::Unknown
            }
        }
    }

    fn carry_out(&mut self, call: &UpstreamCall) -> CallOutcome<String> {
        let stale = |wanted: &Value, found: &Value| {
            ["uid", "resourceVersion"].iter().any(|member| {
                !wanted[*member].is_null() && wanted[*member] != found["metadata"][*member]
            })
        };
        match call {
            UpstreamCall::GetPod { name } => match self.pods.get(name) {
                Some(pod) => CallOutcome::Success(pod.clone()),
                None => failure(404),
            },
            UpstreamCall::ListBudgets { .. } => {
                let budget = Some(&self.budget).filter(|budget| !budget.is_null());
                CallOutcome::Success(json!({"items": Vec::from_iter(budget)}))
            }
            UpstreamCall::GetBudget { .. } => CallOutcome::Success(self.budget.clone()),
            UpstreamCall::PutBudgetStatus { object, .. } => {
                if self.write(object) {
                    CallOutcome::Success(self.budget.clone())
                } else {
                    failure(409)
                }
            }
            UpstreamCall::PatchPodStatus { name, patch } => match self.pods.get(name).cloned() {
                None => failure(404),
                Some(pod) if stale(&patch["metadata"], &pod) => failure(409),
                Some(pod) => {
                    self.put_pod(name, pod);
                    CallOutcome::Success(self.pods[name].clone())
                }
            },
            UpstreamCall::DeletePod { name, options, .. } => match self.pods.get(name).cloned() {
                None => failure(404),
                Some(pod) if stale(&options["preconditions"], &pod) => failure(409),
                Some(mut pod) => {
                    if pod["metadata"]["deletionTimestamp"].is_null() {
                        pod["metadata"]["deletionTimestamp"] = json!(self.now().to_string());
                        self.put_pod(name, pod);
                        let grace = self.millis(3000);
                        self.at(grace, Later::End(name.clone()));
                    }
                    CallOutcome::Success(json!({}))
                }
            },
        }
    }

    /// Stores the status of the budget, if it is based on the version that is stored.
    fn write(&mut self, object: &Value) -> bool {
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        if version(object) != version(&self.budget) {
            return false;
        }
        self.put_budget(object.clone());
        true
    }

    /// Executes the next operation of the controller.
    pub(crate) fn control(&mut self) {
        let (time, now) = (Time::ZERO.plus(self.elapsed), self.now());
        match self.controller.step(time, now) {
            ControllerStep::LookUp(_, owner) => {
                let scale = ControllerScale {
                    uid: owner.uid.clone(),
                    replicas: i32::try_from(self.replicas).unwrap(),
                };
                self.controller.looked_up(owner, Ok(Some(scale)), time, now);
            }
            ControllerStep::WriteStatus(_, object) => {
                let faults = self.faults;
                let lost = self.random.percent(faults);
                let outcome = match (self.random.percent(50), lost) {
                    (true, true) => StatusWriteOutcome::Failed("lost".to_owned()),
                    (_, lost) => match (self.write(&object), lost) {
                        (_, true) => StatusWriteOutcome::Failed("no answer".to_owned()),
                        (true, _) => StatusWriteOutcome::Written,
                        (false, _) => StatusWriteOutcome::Conflict,
                    },
                };
                self.controller.written(outcome, time, now);
            }
            ControllerStep::PatchPod(..) => self.controller.patched(true, time),
            ControllerStep::Continue | ControllerStep::Wait(_) => {}
        }
        self.controller.take_events();
    }
}

impl Drainer {
    pub(crate) fn is_done(&self, world: &World) -> bool {
        let pod = world.pods.get(&self.pod);
        pod.is_none_or(|pod| pod["metadata"]["uid"] != self.uid)
    }

    pub(crate) fn act(&mut self, world: &mut World) {
        if self.asks_at > world.elapsed || self.is_done(world) {
            return;
        }
        let eviction = self.eviction.get_or_insert_with(|| {
            let body = json!({"metadata": {"name": self.pod}});
            let request = EvictionRequest::new("ns", &self.pod, &[], &body).unwrap();
            Eviction::new(request, ServerClock::default())
        });
        match eviction.step() {
            EvictionStep::Call(call) => {
                let sent = world.now() + self.skew;
                let outcome = world.call(&call);
                let date = Timestamp::from_second(world.now().as_second()).unwrap();
                eviction.replied(CallReply {
                    outcome,
                    sent,
                    received: sent,
                    date: Some(date),
                });
            }
            EvictionStep::Pause(pause) => {
                eviction.paused();
                self.asks_at = world.elapsed + pause;
            }
            EvictionStep::Done(_) => {
                // As `kubectl drain` does.
                self.eviction = None;
                self.asks_at = world.elapsed + Duration::from_secs(5);
            }
        }
    }
}
