//! Leader election by a `Lease`: decides what to read or write, and when. Pure: time comes in as an argument.
//!
//! Clocks of different gateways need not agree. A candidate takes a lease over only after it has seen the lease
//! unchanged for the lease's whole duration by its own monotonic clock. A leader stops [`RENEW_DEADLINE`] after it
//! *sent* the last renewal that succeeded. That is 5 s before another candidate may take over the lease. So there are
//! never two leaders, unless the rates of two clocks differ by a third.
//!
//! No library is used, because those for kube-rs compare `renewTime` with the local clock, or need another version of
//! kube-rs than the gateway uses.
//!
//! Source: the API reference of `coordination.k8s.io/v1`, and the documented behaviour of the leader election of
//! Kubernetes' controllers.

use std::time::Duration;

use fairgate_core::time::Time;
use fairgate_gotext::time;
use jiff::Timestamp;
use serde_json::{Value, json};

/// How long a lease is valid after its renewal.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long after it sent the last successful renewal a leader stops.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often a leader renews the lease, and a candidate reads it.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// The maximum duration of another holder's lease. A longer `leaseDurationSeconds` counts as this.
const LONGEST_DURATION: Duration = Duration::from_secs(3600);

/// The next call about the lease.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseCall {
    /// GET the lease, then call [`Election::read`].
    Read,
    /// POST this object, then call [`Election::wrote`].
    Create(Value),
    /// PUT this object, then call [`Election::wrote`].
    Update(Value),
}

/// The outcome of a write of the lease.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseWrite {
    /// The object as it was stored.
    Stored(Value),
    /// Another client has changed, created or deleted it.
    Conflict,
    /// The outcome is unknown, or the server refused.
    Failed,
}

/// The state of one candidate in the election.
#[derive(Debug)]
pub struct Election {
    namespace: String,
    name: String,
    identity: String,
    state: LeaseState,
    /// Whether `state` may be out of date, so that nothing may be written before the lease is read.
    must_read: bool,
    /// When the next call is due.
    due: Time,
    /// The time until which this gateway leads; `None` if it does not.
    leads_until: Option<Time>,
}

#[derive(Debug)]
enum LeaseState {
    /// There is no lease.
    Absent,
    /// The lease as it was last read or written.
    Seen(SeenLease),
}

#[derive(Debug)]
struct SeenLease {
    object: Value,
    /// When this version of the lease was first seen.
    since: Time,
}

impl SeenLease {
    fn holder(&self) -> &str {
        let holder = &self.object["spec"]["holderIdentity"];
        holder.as_str().unwrap_or_default()
    }

    fn expires(&self) -> Time {
        let seconds = self.object["spec"]["leaseDurationSeconds"].as_u64();
        let duration = Duration::from_secs(seconds.unwrap_or(0)).min(LONGEST_DURATION);
        self.since.plus(duration)
    }
}

impl Election {
    /// A candidate. The identity must differ from those of all other candidates.
    pub fn new(namespace: &str, name: &str, identity: String) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            state: LeaseState::Absent,
            must_read: true,
            due: Time::ZERO,
            leads_until: None,
        }
    }

    /// The time until which this gateway leads; `None` if it does not lead at `now`.
    pub fn leads_until(&self, now: Time) -> Option<Time> {
        self.leads_until.filter(|until| now < *until)
    }

    /// The holder of the lease as it was last seen; empty if there is none.
    pub fn holder(&self) -> &str {
        match &self.state {
            LeaseState::Seen(seen) => seen.holder(),
            LeaseState::Absent => "",
        }
    }

    /// The version of the lease as it was last seen; empty if there is none.
    pub fn version(&self) -> &str {
        match &self.state {
            LeaseState::Seen(seen) => version(&seen.object).as_str().unwrap_or_default(),
            LeaseState::Absent => "",
        }
    }

    /// When the next call is due.
    pub fn due(&self) -> Time {
        self.due
    }

    /// The next call, to be made when it is due. `date` is wall-clock time; it is only written into the object.
    pub fn call(&self, now: Time, date: Timestamp) -> LeaseCall {
        match &self.state {
            _ if self.must_read => LeaseCall::Read,
            LeaseState::Absent => {
                let mut lease = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": self.namespace},
                });
                lease["spec"] = self.spec(&Value::Null, date);
                LeaseCall::Create(lease)
            }
            LeaseState::Seen(seen) => {
                let may_take = seen.holder().is_empty()
                    || seen.holder() == self.identity
                    || now >= seen.expires();
                if !may_take {
                    return LeaseCall::Read;
                }
                let mut lease = seen.object.clone();
                lease["spec"] = self.spec(&lease["spec"], date);
                LeaseCall::Update(lease)
            }
        }
    }

    /// The spec of a lease that this gateway holds, given the one before.
    fn spec(&self, before: &Value, date: Timestamp) -> Value {
        let now = micro_time(date);
        let mut spec = before.clone();
        if !spec.is_object() {
            spec = json!({});
        }
        if before["holderIdentity"] != json!(self.identity) {
            let transitions = before["leaseTransitions"].as_i64();
            spec["acquireTime"] = json!(now);
            spec["leaseTransitions"] = json!(transitions.map_or(0, |count| count + 1));
        }
        spec["holderIdentity"] = json!(self.identity);
        spec["leaseDurationSeconds"] = json!(LEASE_DURATION.as_secs());
        spec["renewTime"] = json!(now);
        spec
    }

    /// Continues with the lease that was read; `None` if it does not exist. `jitter`, of up to [`RETRY_PERIOD`], keeps
    /// candidates from sending requests at the same time.
    pub fn read(&mut self, lease: Option<Value>, now: Time, jitter: Duration) {
        self.must_read = false;
        let Some(object) = lease else {
            self.state = LeaseState::Absent;
            self.due = now;
            return;
        };
        let since = match &self.state {
            LeaseState::Seen(seen) if version(&seen.object) == version(&object) => seen.since,
            _ => now,
        };
        let seen = SeenLease { object, since };
        let is_free = seen.holder().is_empty() || seen.holder() == self.identity;
        self.due = if is_free || now >= seen.expires() {
            now
        } else {
            now.plus(RETRY_PERIOD + jitter)
        };
        self.state = LeaseState::Seen(seen);
    }

    /// Continues with the outcome of a write that was sent at `sent`.
    pub fn wrote(&mut self, outcome: LeaseWrite, sent: Time, now: Time, jitter: Duration) {
        match outcome {
            LeaseWrite::Stored(object) => {
                self.state = LeaseState::Seen(SeenLease { object, since: now });
                // From when it was sent: another candidate may have seen the lease just after the server stored it.
                self.leads_until = Some(sent.plus(RENEW_DEADLINE));
                self.due = sent.plus(RETRY_PERIOD);
            }
            LeaseWrite::Conflict => {
                self.must_read = true;
                self.due = now;
            }
            LeaseWrite::Failed => self.failed(now, jitter),
        }
    }

    /// A call failed. The lease must be read before the next write, because a write may have been executed.
    pub fn failed(&mut self, now: Time, jitter: Duration) {
        self.must_read = true;
        self.due = now.plus(RETRY_PERIOD / 2 + jitter / 2);
    }

    /// Stops leading. Returns the object to PUT in order to release the lease, if this gateway holds it.
    pub fn release(&mut self, date: Timestamp) -> Option<Value> {
        self.leads_until = None;
        let LeaseState::Seen(seen) = &self.state else {
            return None;
        };
        if seen.holder() != self.identity {
            return None;
        }
        let mut lease = seen.object.clone();
        lease["spec"]["holderIdentity"] = json!("");
        // As client-go does: the API refuses 0.
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        lease["spec"]["renewTime"] = json!(micro_time(date));
        Some(lease)
    }
}

fn version(lease: &Value) -> &Value {
    &lease["metadata"]["resourceVersion"]
}

/// A time as leases store it, in microseconds.
fn micro_time(date: Timestamp) -> String {
    let micros = date.subsec_nanosecond() / 1000;
    // No clock is beyond the year 9999.
    time::from_micros(date.as_second(), micros).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_JITTER: Duration = Duration::ZERO;

    fn at(seconds: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(seconds))
    }

    fn date() -> Timestamp {
        "2024-01-01T00:00:00Z".parse().unwrap()
    }

    /// A model of the server: the lease, if there is one, and its version.
    #[derive(Default)]
    struct Server {
        lease: Option<Value>,
        version: u64,
    }

    impl Server {
        fn store(&mut self, mut lease: Value) -> Value {
            self.version += 1;
            lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.lease = Some(lease.clone());
            lease
        }

        /// Executes the next call of a candidate.
        fn serve(&mut self, candidate: &mut Election, now: Time) {
            let outcome = match candidate.call(now, date()) {
                LeaseCall::Read => return candidate.read(self.lease.clone(), now, NO_JITTER),
                LeaseCall::Create(lease) if self.lease.is_none() => {
                    LeaseWrite::Stored(self.store(lease))
                }
                LeaseCall::Update(lease)
                    if self
                        .lease
                        .as_ref()
                        .map(|now| &now["metadata"]["resourceVersion"])
                        == Some(&lease["metadata"]["resourceVersion"]) =>
                {
                    LeaseWrite::Stored(self.store(lease))
                }
                _ => LeaseWrite::Conflict,
            };
            candidate.wrote(outcome, now, now, NO_JITTER);
        }

        /// Executes all calls of the candidates that are due until `until`, in order.
        fn run(&mut self, candidates: &mut [&mut Election], until: Time) {
            while let Some(next) = candidates.iter_mut().min_by_key(|one| one.due()) {
                if next.due() > until {
                    return;
                }
                let now = next.due();
                self.serve(next, now);
            }
        }
    }

    fn candidate(identity: &str) -> Election {
        Election::new("kube-system", "x", identity.to_owned())
    }

    #[test]
    fn the_first_candidate_leads_as_long_as_it_renews() {
        let (mut a, mut b) = (candidate("a"), candidate("b"));
        let mut server = Server::default();
        for second in 1..100 {
            server.run(&mut [&mut a, &mut b], at(second));
            assert!(a.leads_until(at(second)).is_some(), "at {second}");
            assert!(b.leads_until(at(second)).is_none(), "at {second}");
            assert_eq!(b.holder(), "a");
        }
        let lease = server.lease.unwrap();
        assert_eq!(lease["spec"]["leaseTransitions"], 0);
        assert_eq!(lease["spec"]["renewTime"], "2024-01-01T00:00:00.000000Z");
    }

    #[test]
    fn a_leader_that_is_cut_off_stops_before_another_begins() {
        let (mut a, mut b) = (candidate("a"), candidate("b"));
        let mut server = Server::default();
        server.run(&mut [&mut a, &mut b], at(20));
        let mut begun = None;
        for tenths in 200..500 {
            let now = Time::from_nanos(tenths * 100_000_000);
            while a.due() <= now {
                let due = a.due();
                a.failed(due, NO_JITTER);
            }
            server.run(&mut [&mut b], now);
            let leads = |one: &Election| one.leads_until(now).is_some();
            assert!(!(leads(&a) && leads(&b)), "two leaders at {now:?}");
            if leads(&b) {
                begun.get_or_insert(now);
            }
        }
        let begun = begun.unwrap();
        assert!(begun >= at(20 + 13) && begun <= at(20 + 19), "{begun:?}");
        assert_eq!(server.lease.unwrap()["spec"]["leaseTransitions"], 1);
    }

    #[test]
    fn a_released_lease_is_acquired_immediately() {
        let (mut a, mut b) = (candidate("a"), candidate("b"));
        let mut server = Server::default();
        server.run(&mut [&mut a, &mut b], at(10));
        let released = a.release(date()).unwrap();
        server.store(released);
        assert!(a.leads_until(at(10)).is_none());
        server.run(&mut [&mut b], at(13));
        assert!(b.leads_until(at(13)).is_some());
        assert!(a.release(date()).is_none() || server.lease.is_some());
    }

    #[test]
    fn the_times_in_the_lease_are_ignored() {
        let mut server = Server::default();
        server.store(json!({"spec": {
            "holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "1999-01-01T00:00:00.000000Z",
        }}));
        let mut a = candidate("a");
        server.run(&mut [&mut a], at(14));
        assert!(
            a.leads_until(at(14)).is_none(),
            "it was first seen 14 s ago"
        );
        server.run(&mut [&mut a], at(18));
        assert!(a.leads_until(at(18)).is_some());
    }

    #[test]
    fn a_candidate_that_loses_the_race_for_a_lease_does_not_lead() {
        let (mut a, mut b) = (candidate("a"), candidate("b"));
        let mut server = Server::default();
        server.serve(&mut a, at(0));
        server.serve(&mut b, at(0));
        server.serve(&mut a, at(0));
        server.serve(&mut b, at(0));
        assert!(a.leads_until(at(0)).is_some() && b.leads_until(at(0)).is_none());
        // Its lease is taken away, for example by an operator.
        let taken = json!({"spec": {"holderIdentity": "c", "leaseDurationSeconds": 15}});
        server.store(taken);
        server.run(&mut [&mut a], at(9));
        assert_eq!(a.holder(), "c");
        assert!(a.leads_until(at(12)).is_none());
    }
}
