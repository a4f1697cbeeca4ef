//! The load: an "elephant" that floods the gateway, and "mice" that send few requests.
//!
//! The elephant is one user with 200 connections, each in a *closed loop*: it sends a
//! request, waits for the response and sends the next. After a rejection a connection pauses for as long as
//! `Retry-After` says. A mouse is a user of its own in an *open loop*: it sends at fixed times, whether or
//! not earlier responses have arrived, and latency counts from the intended time, so that delays are not
//! hidden by late starts (no coordinated omission).
//!
//! With several gateways the connections of the elephant are spread over all of them. The mice are at the first one, in closed loops on
//! so many connections that they ask for more than their share: what each user is served shows its share.
//!
//! The connections of the elephant open one after the other during the warm-up, like those of separate
//! processes; if they were opened together, they would be served in lockstep for the whole run.

use std::{net::SocketAddr, time::Duration};

use http::HeaderValue;
use tokio::{sync::watch, task::JoinSet};

use super::{
    client::{ClientError, ClientResponse, DemoConnection},
    figures::random_part,
    flow::DemoFlow,
    gateway::DemoUser,
};
use fairgate_base::{clock::Clock, tasks};
use fairgate_core::{
    sync::{Arc, Mutex, lock},
    time::Time,
};
use fairgate_loadkit::pauses;

/// The number of connections of the elephant.
pub const ELEPHANT_CONNECTIONS: u32 = 200;
/// The number of mice.
pub(super) const MICE: u32 = 4;
/// The interval between the requests of a mouse that sends few.
const MOUSE_PERIOD: Duration = Duration::from_millis(500);
/// The maximum of one mouse's requests in flight; further ones fail at once.
const MOUSE_OPEN_MAX: usize = 128;
/// The pause of a client after a request without a response.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause of a client, whatever `Retry-After` says.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The target and the schedule of the load.
#[derive(Clone, Debug)]
pub(super) struct LoadSettings {
    /// The addresses of the gateways. The elephant is at all of them, mice are at the first.
    pub(super) gateways: Vec<SocketAddr>,
    /// The connections of a mouse, each with one request after the other. `None`: it sends a few requests at fixed times.
    pub(super) mouse_connections: Option<u32>,
    /// When the first client starts.
    pub(super) start: Time,
    /// The end of the warm-up: requests from here on are counted.
    pub(super) settled: Time,
    /// Turns true when no further request may start.
    pub(super) stop: watch::Receiver<bool>,
    /// The clock that clients read and wait by.
    pub(super) clock: Clock,
}

/// The users: the elephant first, then the mice.
pub fn users() -> Vec<DemoUser> {
    flows().iter().map(|flow| flow.user()).collect()
}

/// The same, with the outcome of their requests.
pub(super) fn flows() -> Vec<Arc<DemoFlow>> {
    let mice = (1..=MICE).map(|number| format!("mouse-{number}"));
    let names = ["elephant".to_owned()].into_iter().chain(mice);
    names.map(DemoFlow::new).collect()
}

/// Starts the clients of `flows`, as [`flows`] made them, on the current runtime. They end after
/// [`LoadSettings::stop`], when their last responses have arrived.
pub(super) fn start(
    course: &LoadSettings,
    flows: &[Arc<DemoFlow>],
) -> Result<JoinSet<()>, http::Error> {
    let mut clients = JoinSet::new();
    let settling = course.settled.since(course.start);
    for (flow, number) in flows.iter().zip(0..) {
        let is_elephant = number == 0;
        let everywhere = if is_elephant {
            course.gateways.len()
        } else {
            1
        };
        let mut gateways = course.gateways.iter().take(everywhere).cycle();
        let mut client = || {
            let gateway = *gateways.next().expect("there is a gateway");
            Ok::<_, http::Error>(DemoClient {
                flow: Arc::clone(flow),
                authorization: flow.authorization()?,
                gateway,
                course: course.clone(),
            })
        };
        let connections = if is_elephant {
            Some(ELEPHANT_CONNECTIONS)
        } else {
            course.mouse_connections
        };
        let Some(connections) = connections else {
            clients.spawn(tasks::boxed(client()?.run_open_loop(number)));
            continue;
        };
        for connection in 0..connections {
            let after = course.start.plus(settling * connection / connections);
            clients.spawn(tasks::boxed(client()?.run_closed_loop(after)));
        }
    }
    Ok(clients)
}

#[derive(Clone, Debug)]
struct DemoClient {
    flow: Arc<DemoFlow>,
    authorization: HeaderValue,
    gateway: SocketAddr,
    course: LoadSettings,
}

impl DemoClient {
    /// Sends one request after the other.
    async fn run_closed_loop(mut self, begin: Time) {
        let mut connection = None;
        let mut next = begin;
        while self.wait_until(next).await {
            next = self.course.clock.now();
            let pause = self.request(&mut connection, next).await;
            next = self.course.clock.now().plus(pause);
        }
    }

    /// Sends the requests of a mouse that sends few.
    async fn run_open_loop(mut self, number: u64) {
        let idle = Arc::new(Mutex::new(Vec::new()));
        let mut open = JoinSet::new();
        for round in 0.. {
            let intended = self.course.start.plus(mouse_moment(number, round));
            if !self.wait_until(intended).await {
                break;
            }
            while open.try_join_next().is_some() {}
            if open.len() >= MOUSE_OPEN_MAX {
                drop(self.flow.begin(intended, self.counts(intended)));
                continue;
            }
            let (mouse, idle) = (self.clone(), Arc::clone(&idle));
            open.spawn(tasks::boxed(async move {
                let mut connection = lock(&idle).pop();
                mouse.request(&mut connection, intended).await;
                lock(&idle).extend(connection);
            }));
        }
        while open.join_next().await.is_some() {}
    }

    /// Waits for `moment`. Returns false if the load must stop.
    async fn wait_until(&mut self, moment: Time) -> bool {
        let LoadSettings { stop, clock, .. } = &mut self.course;
        pauses::wait_until(clock, stop, moment).await
    }

    fn counts(&self, intended: Time) -> bool {
        intended >= self.course.settled
    }

    /// Sends one request that was meant to be sent at `intended`; returns how long to pause.
    async fn request(&self, connection: &mut Option<DemoConnection>, intended: Time) -> Duration {
        let open = self.flow.begin(intended, self.counts(intended));
        let response = self.send(connection).await;
        open.end(self.course.clock.now(), &response);
        match response {
            Ok(response) => response.retry_after.unwrap_or_default().min(PAUSE_MAX),
            Err(_) => FAILURE_PAUSE,
        }
    }

    /// Sends a request on `connection`, which is opened if necessary, and dropped after a failure.
    async fn send(
        &self,
        connection: &mut Option<DemoConnection>,
    ) -> Result<ClientResponse, ClientError> {
        let mut used = match connection.take() {
            Some(used) => used,
            None => DemoConnection::open(self.gateway).await?,
        };
        let response = used.send(&self.authorization).await?;
        *connection = Some(used);
        Ok(response)
    }
}

/// When a mouse sends its `round`th request, counted from the start: once in each period, at a pseudo-random
/// moment that is the same in every run, so that mice and the server do not run in lockstep.
fn mouse_moment(mouse: u64, round: u32) -> Duration {
    MOUSE_PERIOD * round + random_part(mouse << 32 | u64::from(round), MOUSE_PERIOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_an_elephant_and_four_mice() {
        let flows = flows();
        let names: Vec<&str> = flows.iter().map(|flow| flow.name()).collect();
        assert_eq!(
            names,
            ["elephant", "mouse-1", "mouse-2", "mouse-3", "mouse-4"]
        );
    }

    #[test]
    fn a_mouse_sends_two_requests_a_second_at_random_times() {
        for round in 0..1000 {
            let moments = [1, 2].map(|mouse| mouse_moment(mouse, round));
            let period = MOUSE_PERIOD * round..MOUSE_PERIOD * (round + 1);
            assert!(moments.iter().all(|moment| period.contains(moment)));
            assert_ne!(moments[0], moments[1]);
        }
    }
}
