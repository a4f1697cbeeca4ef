//! Sends the requests of a table, and clean ones after each.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use fairgate_base::clock::Clock;
use serde_json::json;

use super::{
    client,
    row::Row,
    scripted::{CLEAN, HOSTILE, Script, ScriptedUpstream, clean_body},
};
use crate::{
    client::HANG,
    process::{GatewayProcess, ProcessOptions},
};

/// The clean requests after a hostile answer.
const CLEAN_REQUESTS: [&str; 6] = ["GET", "POST", "POST", "GET", "GET", "POST"];

/// The gateway's connections to the upstream.
const OPEN: &str = "fairgate_upstream_connections";

/// Tries every row.
///
/// # Panics
///
/// With all that is wrong.
pub fn run(rows: &[Row]) {
    let trial = Trial::start();
    // The gateway takes the very first connection for one that served a request before.
    trial.note("the first request", trial.send_clean("GET", "/clean/first"));
    for row in rows {
        for method in row.methods {
            for is_reused in [false, true] {
                trial.try_row(row, method, is_reused);
            }
        }
    }
    trial.end();
}

/// A gateway with one core, whose requests share the connections, and its upstream.
struct Trial {
    upstream: ScriptedUpstream,
    gateway: GatewayProcess,
    /// Requests with hostile answers so far.
    number: Cell<usize>,
    /// How many of them came on a connection that had served another request.
    reused: Cell<usize>,
    wrong: RefCell<Vec<String>>,
}

impl Trial {
    fn start() -> Self {
        let upstream = ScriptedUpstream::start();
        let configuration = json!({
            "upstream": {"url": format!("http://{}", upstream.address)}, "dataCores": 1,
            "authentication": {"tokenFile": "tokens"},
        });
        let options = ProcessOptions {
            tokens: "alice-token,alice,1,devs\n",
            ..ProcessOptions::default()
        };
        Self {
            gateway: GatewayProcess::with(configuration, &options),
            upstream,
            number: Cell::default(),
            reused: Cell::default(),
            wrong: RefCell::default(),
        }
    }

    fn try_row(&self, row: &Row, method: &str, is_reused: bool) {
        let number = self.number.get() + 1;
        self.number.set(number);
        let on = if is_reused { "used" } else { "new" };
        let name = format!("{} [{method}, {on} connection]", row.name);
        if !is_reused {
            self.upstream.close_all();
            self.note(&name, self.connections_fall_to(0));
        }
        self.upstream.plays(Script {
            reads_body: row.reads_body,
            steps: row.steps.clone(),
            then: row.then,
        });
        let target = format!("{HOSTILE}/{number}{}", row.query);
        let body = b"GET /smuggled HTTP/1.1\r\nHost: upstream\r\n\r\n";
        let body: Vec<u8> = body.iter().copied().cycle().take(row.body_bytes).collect();
        let received = client::send(self.gateway.address, method, &target, &body);
        for problem in self.upstream.responded() {
            self.note(&name, Err(problem));
        }
        self.note(&name, received.and_then(|it| row.check(method, &it)));
        for (index, method) in CLEAN_REQUESTS.into_iter().enumerate() {
            let target = format!("{CLEAN}/{number}/{index}");
            self.note(&name, self.send_clean(method, &target));
        }
        self.upstream.release();
        self.note(&name, self.connections_fall_to(1));
        self.note(&name, self.check_arrivals(row, method, is_reused));
    }

    fn note(&self, name: &str, result: Result<(), String>) {
        let wrong = result.map_err(|what| format!("{name}: {what}"));
        self.wrong.borrow_mut().extend(wrong.err());
    }

    /// Sends a request that must get its own answer, and nothing else.
    fn send_clean(&self, method: &str, target: &str) -> Result<(), String> {
        let body = match method {
            "POST" => format!("the body for {target}").into_bytes(),
            _ => Vec::new(),
        };
        let received = client::send(self.gateway.address, method, target, &body)
            .map_err(|error| format!("{method} {target}: {error}"))?;
        let is_whole = received.status == 200 && received.ending == client::Ending::Complete;
        if !is_whole || received.body != clean_body(method, target, &body) {
            return Err(format!("{method} {target} got {received}"));
        }
        if received
            .to_string()
            .to_ascii_lowercase()
            .contains("hostile")
        {
            return Err(format!("{method} {target} got hostile headers: {received}"));
        }
        Ok(())
    }

    /// What the upstream was sent.
    fn check_arrivals(&self, row: &Row, method: &str, is_reused: bool) -> Result<(), String> {
        let arrivals = self.upstream.arrivals();
        let number = self.number.get();
        let target = format!("{HOSTILE}/{number}{}", row.query);
        let hostile: Vec<_> = arrivals
            .iter()
            .filter(|arrival| arrival.target == target)
            .collect();
        let Some(first) = hostile.first() else {
            let may_not_arrive = row.reads.contains(&0);
            return may_not_arrive
                .then_some(())
                .ok_or("the request did not arrive".into());
        };
        if first.reused && !is_reused {
            return Err("the request came on a used connection".into());
        }
        self.reused
            .set(self.reused.get() + usize::from(first.reused));
        let times = if method == "POST" || !first.reused {
            &(1..=1)
        } else {
            &row.reads
        };
        if !times.contains(&hostile.len()) {
            return Err(format!("the request arrived {} times", hostile.len()));
        }
        for (index, method) in CLEAN_REQUESTS.into_iter().enumerate() {
            let target = format!("{CLEAN}/{number}/{index}");
            let times = arrivals.iter().filter(|one| one.target == target).count();
            // A read may be sent again if its connection is closed meanwhile.
            let most = if method == "GET" { 2 } else { 1 };
            if !(1..=most).contains(&times) {
                return Err(format!("{method} {target} arrived {times} times"));
            }
        }
        let is_stray = |target: &str| {
            let known = [HOSTILE, CLEAN, "/metrics", "/api", "/version"];
            !known.iter().any(|known| target.starts_with(known))
        };
        let stray = arrivals.iter().find(|one| is_stray(&one.target));
        stray.map_or(Ok(()), |stray| Err(format!("never sent: {stray:?}")))
    }

    /// Waits until the gateway has at most so many connections to the upstream.
    fn connections_fall_to(&self, most: u64) -> Result<(), String> {
        let clock = Clock::system();
        let end = clock.now().plus(HANG);
        loop {
            // Before the first connection there is no such metric.
            let open = self.gateway.metric(OPEN).unwrap_or(0);
            if open <= most {
                return Ok(());
            }
            if clock.now() > end {
                return Err(format!("{open} connections stay open"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(self) {
        let mut wrong = self.wrong.take();
        if self.gateway.metric(OPEN).is_none() {
            wrong.push(format!("there is no metric {OPEN}"));
        }
        if self.reused.get() == 0 {
            wrong.push("no connection was used twice".into());
        }
        let connections = self.upstream.connections();
        if connections > 4 * self.number.get() {
            wrong.push(format!("{connections} connections were opened"));
        }
        wrong.extend(self.gateway.logged("panic"));
        wrong.extend(self.send_clean("GET", "/clean/last").err());
        let requests = self.number.get();
        assert!(
            wrong.is_empty(),
            "{} of {requests} requests:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
}
