//! Scenarios: who sends which load, what kind of server stands behind the gateway, and what is expected of it.
//!
//! A scenario is a YAML file. `README.md` beside this crate explains every key; [`read()`] reads a file and reports
//! all mistakes at once, each with its line and what to do. The same file runs over sockets and in virtual time.
//!
//! Not here: how load is generated (`load`), how the stand-in server behaves (`upstream`).

pub(crate) mod body;
pub(crate) mod expectation;
mod fields;
pub(crate) mod kinds;
pub(crate) mod policy_objects;
mod read;
mod request;
#[cfg(test)]
mod tests;
mod values;

use std::{path::Path, time::Duration};

use serde_json::Value;

pub(crate) use expectation::Expectation;
pub(crate) use read::{ScenarioReading, read};
#[cfg(test)]
pub(crate) use read::{known_keys, parse};

use kinds::WrittenKind;

use fairgate_core::{
    apf::{Seats, Semantics, objects::Bootstrap},
    digest::RequestInfo,
};
use fairgate_upstream::dial::HttpVersion;

/// A scenario that has no mistakes.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// The name of the file without its extension.
    pub(crate) name: String,
    /// What the scenario shows, in a few words.
    pub(crate) title: String,
    /// What one should see, and why.
    pub(crate) about: String,
    /// The seed of its random numbers.
    pub(crate) seed: u64,
    /// Load is generated, but not measured, for this time.
    pub(crate) warm_up: Duration,
    /// Then it is measured for this time.
    pub(crate) duration: Duration,
    pub(crate) gateway: GatewaySpec,
    /// `FlowSchema` and `PriorityLevelConfiguration` objects.
    pub(crate) policy: Vec<Value>,
    pub(crate) clients: Vec<ClientSpec>,
    pub(crate) upstream: UpstreamSpec,
    pub(crate) events: Vec<ScenarioEvent>,
    pub(crate) expect: Vec<Expectation>,
}

/// The gateway that `local` starts.
#[derive(Clone, Debug)]
pub(crate) struct GatewaySpec {
    pub(crate) total_seats: Seats,
    pub(crate) semantics: Semantics,
    pub(crate) bootstrap: Bootstrap,
    /// Whether clients connect with TLS.
    pub(crate) tls: bool,
    pub(crate) request_timeout: Duration,
}

/// A group of users with the same load.
#[derive(Clone, Debug)]
pub(crate) struct ClientSpec {
    pub(crate) name: String,
    /// How many users; each is a separate flow if the policy tells flows apart by user.
    pub(crate) users: u32,
    pub(crate) groups: Vec<String>,
    pub(crate) load: LoadSpec,
    pub(crate) requests: Vec<RequestSpec>,
    pub(crate) connection: ConnectionSpec,
    pub(crate) retry: RetryBehavior,
    /// From the beginning of the warm-up.
    pub(crate) starts: Duration,
    /// From the beginning of the warm-up; `None`: until the end.
    pub(crate) stops: Option<Duration>,
}

/// When a user sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LoadSpec {
    /// Each thread sends its next request a think time after the response to the one before.
    Closed {
        threads: u32,
        /// The mean; drawn evenly from half to one and a half times that.
        think: Duration,
    },
    /// Requests are sent at scheduled times, independently of earlier ones.
    Open(OpenLoad),
}

/// An open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OpenLoad {
    /// Requests a second.
    pub(crate) rate: f64,
    pub(crate) arrivals: ArrivalProcess,
    /// The rate changes linearly to this rate over this time, and then stays.
    pub(crate) ramp: Option<(f64, Duration)>,
    /// Bursts in addition: this many requests at once in each of these periods.
    pub(crate) burst: Option<(u32, Duration)>,
}

/// How the arrivals of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivalProcess {
    /// At equal intervals.
    Constant,
    /// At random.
    Poisson,
}

/// One kind of request in the mix of a client.
#[derive(Clone, Debug)]
pub(crate) struct RequestSpec {
    pub(crate) method: &'static str,
    /// Path and query.
    pub(crate) target: String,
    /// The request info that fairgate derives from method and target.
    pub(crate) info: RequestInfo,
    pub(crate) weight: u32,
    /// The least size of the body; an object that is larger stays so.
    pub(crate) body_bytes: u32,
    /// The kind of object at the path, if it is known.
    pub(crate) written: Option<WrittenKind>,
    /// For a watch, how long it is held before the client closes it.
    pub(crate) hold: Duration,
    /// Bytes a second at which the response is read; 0: as fast as it comes.
    pub(crate) read_rate: u32,
}

/// The connections of one user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionSpec {
    pub(crate) protocol: HttpVersion,
    /// The maximum number; `None`: one for each thread with HTTP/1.1, as many as its streams need with HTTP/2.
    pub(crate) connections: Option<u32>,
    /// Concurrent requests on one HTTP/2 connection.
    pub(crate) streams: u32,
    /// How long a refused connection is tried again, with the same intended time.
    pub(crate) reconnect: Duration,
}

/// What a client does with a 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryBehavior {
    /// It repeats the request after the time that the response names, as client-go does.
    Honour,
    /// It repeats the request at once.
    Ignore,
    /// It gives the request up.
    Never,
}

/// The stand-in for an API server.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSpec {
    /// How many servers there are, at least 1. Each has an equal part of the capacity.
    pub(crate) servers: u32,
    /// Requests that they execute at once at full speed, all together.
    pub(crate) capacity: u32,
    /// How much slower each request beyond its capacity makes it; see `upstream::model`.
    pub(crate) degradation: f64,
    /// Requests in progress beyond which it answers 429; 0: never.
    pub(crate) max_in_flight: u32,
    /// Service time of requests that no rule matches.
    pub(crate) service: ServiceTime,
    /// The first that matches counts.
    pub(crate) rules: Vec<ServiceRule>,
    pub(crate) objects: Vec<ObjectSpec>,
    /// Events a second on each watch.
    pub(crate) watch_events: f64,
}

/// How long the stand-in executes a request when it is not overloaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServiceTime {
    pub(crate) mean: Duration,
    pub(crate) distribution: ServiceSpread,
    /// In addition, for each object that a list returns.
    pub(crate) per_object: Duration,
}

/// How service times vary about their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServiceSpread {
    Constant,
    Exponential,
    Bimodal,
}

/// The service time of some requests.
#[derive(Clone, Debug)]
pub(crate) struct ServiceRule {
    /// Kubernetes' verbs; empty: all.
    pub(crate) verbs: Vec<String>,
    /// Resources; empty: all.
    pub(crate) resources: Vec<String>,
    pub(crate) service: ServiceTime,
}

/// The objects of one resource.
#[derive(Clone, Debug)]
pub(crate) struct ObjectSpec {
    pub(crate) resource: String,
    /// The number of objects in each namespace, and also in a list over all namespaces.
    pub(crate) count: u32,
    /// The size of one object.
    pub(crate) bytes: u32,
}

/// Something that happens during a run.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioEvent {
    /// From the beginning of the measured time.
    pub(crate) at: Duration,
    pub(crate) what: EventKind,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum EventKind {
    /// These policy objects replace those in force.
    Policy(Vec<Value>),
    /// All requests to the stand-in take this many times as long.
    Slowdown(f64, EventServer),
    /// Whether the stand-in is down: it neither responds nor accepts connections.
    UpstreamDown(bool, EventServer),
    /// The gateway gets SIGTERM, and a new one starts in its place.
    RestartGateway,
}

/// Which server something happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventServer {
    /// All of them.
    All,
    /// The one with this number, from 1.
    Numbered(u32),
}

impl UpstreamSpec {
    /// What each server executes at once at full speed.
    pub(crate) fn capacity_of_server(&self) -> u32 {
        (self.capacity / self.servers).max(1)
    }
}

impl Scenario {
    /// The client of this name.
    pub(crate) fn client(&self, name: &str) -> Option<&ClientSpec> {
        self.clients.iter().find(|client| client.name == name)
    }

    /// From the first request to the last.
    pub(crate) fn whole(&self) -> Duration {
        self.warm_up + self.duration
    }

    /// The policy that is in force for the longest part of the measured time; of equal parts, the last. The simulation plays
    /// it alone.
    pub(crate) fn lasting_policy(&self) -> &[Value] {
        let changes = self.events.iter().filter_map(|event| match &event.what {
            EventKind::Policy(objects) => Some((event.at.min(self.duration), objects)),
            _ => None,
        });
        let mut policies = vec![(Duration::ZERO, &self.policy)];
        policies.extend(changes);
        policies.sort_by_key(|(at, _)| *at);
        let ends = policies[1..].iter().map(|(at, _)| *at);
        let ends = ends.chain([self.duration]);
        let lasts = policies.iter().zip(ends);
        let longest = lasts.max_by_key(|((from, _), to)| to.saturating_sub(*from));
        longest.map_or(&self.policy, |((_, objects), _)| objects)
    }

    /// The same scenario in less time: all times of the run are shorter by one factor, so that it is measured for
    /// `duration`. Service times and rates stay.
    pub(crate) fn shortened(mut self, duration: Duration) -> Self {
        if duration >= self.duration {
            return self;
        }
        let factor = duration.as_secs_f64() / self.duration.as_secs_f64();
        let scale = |time: &mut Duration| *time = time.mul_f64(factor);
        scale(&mut self.warm_up);
        self.duration = duration;
        for client in &mut self.clients {
            scale(&mut client.starts);
            client.stops.iter_mut().for_each(scale);
            for request in &mut client.requests {
                scale(&mut request.hold);
            }
            if let LoadSpec::Open(open) = &mut client.load
                && let Some((_, over)) = &mut open.ramp
            {
                scale(over);
            }
        }
        self.events
            .iter_mut()
            .for_each(|event| scale(&mut event.at));
        self
    }
}

impl ClientSpec {
    /// The names of its users: its own, or with numbers if there are several.
    pub(crate) fn user_names(&self) -> Vec<String> {
        match self.users {
            1 => vec![self.name.clone()],
            users => (1..=users).map(|n| format!("{}-{n}", self.name)).collect(),
        }
    }

    /// The requests that it has in flight at most, of all its users; `None` for an open loop.
    pub(crate) fn threads(&self) -> Option<u32> {
        match self.load {
            LoadSpec::Closed { threads, .. } => Some(threads.saturating_mul(self.users)),
            LoadSpec::Open(_) => None,
        }
    }
}

impl RequestSpec {
    /// Path and query for the user with this number: `{user}` stands for the number, from 1.
    pub(crate) fn target_of(&self, user: u32) -> String {
        self.target.replace("{user}", &user.to_string())
    }

    /// The request info for the user with this number, from 1.
    pub(crate) fn info_of(&self, user: u32) -> RequestInfo {
        RequestInfo::from_target(self.method, &self.target_of(user))
            // A number makes no path invalid that is valid without it, so this does not happen.
            .unwrap_or_else(|_| self.info.clone())
    }
}

impl UpstreamSpec {
    /// The service time of a request, before objects are counted.
    pub(crate) fn service_of(&self, info: &RequestInfo) -> ServiceTime {
        let verb = info.verb.as_str();
        let resource = String::from_utf8_lossy(info.resource());
        let matches =
            |words: &[String], word: &str| words.is_empty() || words.iter().any(|w| w == word);
        let rule = self
            .rules
            .iter()
            .find(|rule| matches(&rule.verbs, verb) && matches(&rule.resources, &resource));
        rule.map_or(self.service, |rule| rule.service)
    }

    /// The objects that a request reads, and the bytes of each: those of its resource for a list or watch.
    pub(crate) fn objects_of(&self, info: &RequestInfo) -> (u32, u32) {
        let resource = info.resource();
        let kind = self
            .objects
            .iter()
            .find(|kind| kind.resource.as_bytes() == resource);
        // About what a small object has, such as a ConfigMap with one key and its managed fields.
        let bytes = kind.map_or(500, |kind| kind.bytes);
        let all = matches!(info.verb.as_str(), "list" | "watch" | "deletecollection");
        match kind {
            Some(kind) if all => (kind.count, bytes),
            _ if all => (0, bytes),
            _ => (1, bytes),
        }
    }

    /// The mean time that a request takes when the server is not overloaded.
    pub(crate) fn mean_service(&self, info: &RequestInfo) -> Duration {
        let service = self.service_of(info);
        let objects = match info.verb.as_str() {
            "list" | "deletecollection" => self.objects_of(info).0,
            _ => 0,
        };
        service.mean + service.per_object * objects
    }
}

/// The name of a scenario: that of its file without the extension.
fn name_of(path: &Path) -> String {
    path.file_stem().map_or_else(
        || "scenario".to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    )
}
