//! What is known of the servers behind the gateway, where there are several: as metrics and as a dump.

use crate::{
    aligned_table::AlignedTable,
    metrics::{catalogue, catalogue::MetricDef, exposition::Exposition},
};
use fairgate_core::{
    servers::{health::ServerState, load::HasLoad as _},
    time::Time,
};
use fairgate_upstream::servers::{UpstreamServer, UpstreamServers};

type ReadServer = fn(&UpstreamServer) -> f64;

/// The metrics of a server, and how each is read.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn metrics() -> [(&'static MetricDef, ReadServer); 9] {
    [
        (&catalogue::SERVER_UP, |server| {
            f64::from(u8::from(server.load().capacity() > 0))
        }),
        (&catalogue::SERVER_SEATS, |server| {
            server.load().seats().into()
        }),
        (&catalogue::SERVER_CAPACITY, |server| {
            server.load().capacity().into()
        }),
        (&catalogue::SERVER_SEATS_IN_USE, |server| {
            server.load().in_use().into()
        }),
        (&catalogue::SERVER_LONG_RUNNING, |server| {
            server.load().long_running().into()
        }),
        (&catalogue::SERVER_CONNECTIONS, |server| {
            server.load().connections().into()
        }),
        (
            &catalogue::SERVER_ANSWER_SECONDS,
            UpstreamServer::answer_seconds,
        ),
        (&catalogue::SERVER_EJECTIONS, |server| {
            server.ejections() as f64
        }),
        (&catalogue::SERVER_MOVED_WATCHES, |server| {
            server.moved_watches() as f64
        }),
    ]
}

/// Writes the metrics of all servers.
pub(crate) fn write(text: &mut Exposition, servers: &UpstreamServers) {
    let list = servers.list();
    for (family, read) in metrics() {
        text.family(family);
        for server in &**list {
            text.sample(family, &[("server", &**server.name())], read(server));
        }
    }
    let family = &catalogue::SERVER_PROBLEM;
    text.family(family);
    for server in &**list {
        if let Some(problem) = server.condition().problem() {
            let labels = [("reason", problem.as_str()), ("server", &**server.name())];
            text.sample(family, &labels, 1_u64);
        }
    }
    let family = &catalogue::SERVER_ANSWERS;
    text.family(family);
    for server in &**list {
        let (answers, errors) = server.answers();
        for (code, count) in [("2xx-4xx", answers), ("5xx", errors)] {
            let labels = [("code", code), ("server", &**server.name())];
            text.sample(family, &labels, count);
        }
    }
    let family = &catalogue::SERVER_WAITING;
    text.family(family);
    text.sample(family, &[], servers.places().len() as u64);
}

/// The dump: one row for each server.
pub(crate) fn table(servers: &UpstreamServers, now: Time) -> String {
    let mut table = AlignedTable::new(&[
        "Server",
        "State",
        "SinceSeconds",
        "Seats",
        "Capacity",
        "SeatsInUse",
        "LongRunning",
        "Connections",
        "Answers",
        "Errors",
        "Problem",
    ]);
    for server in &**servers.list() {
        let (condition, load) = (server.condition(), server.load());
        let (answers, errors) = server.answers();
        let state = match condition.state {
            ServerState::Ready => "Ready",
            ServerState::NotReady => "NotReady",
            ServerState::Ejected => "Ejected",
        };
        let problem = condition.problem().map(|problem| {
            let why = server.endpoint().problem();
            why.map_or_else(|| problem.to_string(), |why| format!("{problem}: {why}"))
        });
        table.row([
            server.name().to_string(),
            state.to_owned(),
            now.since(condition.since).as_secs().to_string(),
            load.seats().to_string(),
            load.capacity().to_string(),
            load.in_use().to_string(),
            load.long_running().to_string(),
            load.connections().to_string(),
            answers.to_string(),
            errors.to_string(),
            problem.unwrap_or_default(),
        ]);
    }
    table.to_text()
}
