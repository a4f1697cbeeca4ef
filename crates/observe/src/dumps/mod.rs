//! The debug dumps: three with the columns of kube-apiserver's, and those that it does not have: of tenants
//! ([`crate::dumps::tenant_dump`]), of users ([`crate::counting::user_metrics`]), of watches ([`crate::counting::watch_counts`]), of the policy in force, of
//! evictions that wait, and of the fleet ([`ProvidedDumps`]).
//!
//! Priority levels are copied one after the other, each under its lock; the text is made afterwards. Levels
//! are in order of name, queues by index, waiting requests by position, executing ones by arrival.
//!
//! Not here: who can read them ([`crate::ports::dumps_layer`], [`crate::ports::admin`]).

pub(crate) mod described_requests;
mod tenant_dump;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use tokio::task::spawn_blocking;

use crate::{
    aligned_table::AlignedTable,
    counting::{
        server_metrics, user_counts::UserRegistry, user_metrics, watch_counts::WatchCounts,
    },
};
use described_requests::describe;
use fairgate_base::clock::Clock;
use fairgate_core::{
    apf::{
        Policy,
        dispatcher::SchemaId,
        queueset::{Phase, QueueSet, RequestReport},
    },
    digest::{RequestDigest, RequestInfo, readable},
    time::Time,
};
use fairgate_gotext::GoDuration;
use fairgate_proxy::fairness::{FlowControl, Waiter};
use fairgate_upstream::servers::UpstreamServers;

/// The path of the dumps, before their name.
pub(crate) const PATH: &str = "/debug/api_priority_and_fairness/";
/// What kube-apiserver writes for a time that is not set.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// A dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    /// One row for each level.
    PriorityLevels,
    /// One row for each queue.
    Queues,
    /// One row for each request that waits or executes.
    Requests {
        /// Whether to include the attributes of the request.
        details: bool,
    },
    /// One row for each of the heaviest tenants. Not one of kube-apiserver's.
    Tenants,
    /// One row for each user that was refused, by level and reason, of those with most refusals.
    Refusals,
    /// One row for each of the users with most seat-seconds, by level.
    SeatSeconds,
    /// One row for each user and resource of open watches.
    Watches,
    /// The objects of the policy in force, in JSON. Not one of kube-apiserver's.
    Policy,
    /// One row for each eviction that waits for its budget. Not one of kube-apiserver's.
    WaitingEvictions,
    /// One row for each server behind the gateway, where there are several. Not one of kube-apiserver's.
    Servers,
    /// The fleet as this gateway sees it, in JSON. Not one of kube-apiserver's.
    Fleet,
}

/// What dumps are made of.
#[derive(Clone, Debug)]
pub(crate) struct DumpSources {
    pub(crate) flow_control: Arc<FlowControl>,
    pub(crate) clock: Clock,
    /// Refusals by user.
    pub(crate) refused_users: Arc<UserRegistry>,
    /// Seat-microseconds by user.
    pub(crate) seat_users: Arc<UserRegistry>,
    pub(crate) provided: Arc<ProvidedDumps>,
    /// The servers behind the gateway, if there are several.
    pub(crate) servers: Option<Arc<UpstreamServers>>,
}

/// Makes the text of a dump. Called on the blocking pool.
pub type MakeDump = Box<dyn Fn() -> String + Send + Sync>;

/// The dumps that other crates make. One that nobody has provided is empty.
#[derive(Default)]
pub struct ProvidedDumps {
    /// That of the policy in force: JSON.
    pub policy: OnceLock<MakeDump>,
    /// That of evictions that wait: a table.
    pub waiting_evictions: OnceLock<MakeDump>,
    /// That of the fleet: JSON.
    pub fleet: OnceLock<MakeDump>,
}

impl fmt::Debug for ProvidedDumps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvidedDumps").finish_non_exhaustive()
    }
}

impl Dump {
    /// Parses the path and query of a dump.
    pub(crate) fn of(path: &[u8], query: Option<&str>) -> Option<Self> {
        match path.strip_prefix(PATH.as_bytes())? {
            b"dump_priority_levels" => Some(Self::PriorityLevels),
            b"dump_queues" => Some(Self::Queues),
            b"dump_requests" => Some(Self::Requests {
                details: wants_details(query.unwrap_or_default()),
            }),
            b"dump_tenants" => Some(Self::Tenants),
            b"dump_refusals" => Some(Self::Refusals),
            b"dump_seat_seconds" => Some(Self::SeatSeconds),
            b"dump_watches" => Some(Self::Watches),
            b"dump_policy" => Some(Self::Policy),
            b"dump_waiting_evictions" => Some(Self::WaitingEvictions),
            b"dump_servers" => Some(Self::Servers),
            b"dump_fleet" => Some(Self::Fleet),
            _ => None,
        }
    }

    /// The media type of its text.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Policy | Self::Fleet => "application/json",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// Makes the dump. Waits at most a second for cores to describe their requests, and leaves the cells of
    /// the others empty. To be called on the control runtime.
    pub(crate) async fn make(self, sources: &DumpSources) -> String {
        let (flow_control, clock) = (&sources.flow_control, &sources.clock);
        match self {
            Self::Refusals => user_metrics::refusal_table(&sources.refused_users),
            Self::SeatSeconds => user_metrics::seat_table(&sources.seat_users),
            Self::Watches => {
                let of = Arc::clone(flow_control);
                let table = spawn_blocking(move || WatchCounts::read(&of).table()).await;
                table.unwrap_or_default()
            }
            Self::Policy => make_provided(&sources.provided, |all| &all.policy).await,
            Self::WaitingEvictions => {
                make_provided(&sources.provided, |all| &all.waiting_evictions).await
            }
            Self::Servers => sources
                .servers
                .as_ref()
                .map_or_else(String::new, |servers| {
                    server_metrics::table(servers, clock.now())
                }),
            Self::Fleet => make_provided(&sources.provided, |all| &all.fleet).await,
            Self::PriorityLevels => priority_levels(flow_control, clock.now()),
            Self::Queues => queues(flow_control),
            Self::Tenants => tenant_dump::make(flow_control).await,
            Self::Requests { details } => {
                let rows = requests(flow_control);
                let waiters = rows.iter().map(|row| row.report.entry.waiter);
                let digests = describe(flow_control, waiters).await;
                write_requests(flow_control, clock, &rows, &digests, details)
            }
        }
    }
}

/// Makes a dump on the blocking pool, since it may take long.
async fn make_provided(
    provided: &Arc<ProvidedDumps>,
    which: fn(&ProvidedDumps) -> &OnceLock<MakeDump>,
) -> String {
    let provided = Arc::clone(provided);
    let make = move || {
        which(&provided)
            .get()
            .map_or_else(String::new, |make| make())
    };
    tokio::task::spawn_blocking(make).await.unwrap_or_default()
}

/// Whether the query asks for details, by any value but an empty one.
fn wants_details(query: &str) -> bool {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix("includeRequestDetails="))
        .is_some_and(|value| !value.is_empty())
}

fn priority_levels(flow_control: &FlowControl, now: Time) -> String {
    let mut table = AlignedTable::new(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ]);
    for level in flow_control.dispatcher().report(now) {
        let (summary, counters) = (&level.summary, &level.summary.counters);
        table.row([
            level.spec.name.to_string(),
            summary.queues_waiting.to_string(),
            level.idle.to_string(),
            level.quiescing.to_string(),
            summary.waiting.to_string(),
            summary.executing.to_string(),
            counters.dispatched.to_string(),
            counters.rejected.to_string(),
            // Time-outs are cancellations; the original never counts here either.
            "0".to_owned(),
            counters.cancelled.to_string(),
        ]);
    }
    table.to_text()
}

fn queues(flow_control: &FlowControl) -> String {
    let mut table = AlignedTable::new(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ]);
    for (name, level) in flow_control.dispatcher().levels() {
        let queues = level.inspect(|set| set.queues().collect::<Vec<_>>());
        for queue in queues {
            table.row([
                name.to_string(),
                queue.index.to_string(),
                queue.waiting.to_string(),
                queue.executing.to_string(),
                queue.seats_in_use.to_string(),
                queue.next_dispatch_r.to_string(),
                queue.initial_seats.to_string(),
                queue.max_seats.to_string(),
                queue.total_work.to_string(),
            ]);
        }
    }
    table.to_text()
}

/// A request with the names of its priority level and flow schema.
struct Row {
    level: Arc<str>,
    schema: Arc<str>,
    report: RequestReport<Waiter>,
}

/// All requests that wait or execute, in the order of the dump.
fn requests(flow_control: &FlowControl) -> Vec<Row> {
    let mut rows = Vec::new();
    for (level, queues) in flow_control.dispatcher().levels() {
        let mut reports = queues.inspect(QueueSet::requests);
        reports.retain(|report| report.entry.phase != Phase::Lingering);
        reports.sort_by_key(|report| {
            (
                report.queue.unwrap_or(u32::MAX),
                report.place.unwrap_or(u32::MAX),
                report.entry.arrived,
            )
        });
        rows.extend(reports.into_iter().map(|report| {
            Row {
                level: Arc::clone(&level),
                schema: flow_control
                    .dispatcher()
                    .schema_name(SchemaId(report.entry.schema)),
                report,
            }
        }));
    }
    rows
}

fn write_requests(
    flow_control: &FlowControl,
    clock: &Clock,
    rows: &[Row],
    digests: &HashMap<Waiter, Arc<RequestDigest>>,
    details: bool,
) -> String {
    let mut header = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        // Consumers know it by this spelling.
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if details {
        header.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    let mut table = AlignedTable::new(&header);
    let view = flow_control.dispatcher().view();
    let distinguishers = Distinguishers::new(view.policy());
    let times = WallTimes::new(clock);
    let index = |index: Option<u32>| index.map_or_else(|| "-1".to_owned(), |i| i.to_string());
    for row in rows {
        let entry = &row.report.entry;
        let digest = digests.get(&entry.waiter).map(|digest| &**digest);
        let mut cells = vec![
            row.level.to_string(),
            row.schema.to_string(),
            index(row.report.queue),
            index(row.report.place),
            digest.map_or_else(String::new, |d| distinguishers.of(&row.schema, d)),
            times.of(entry.arrived),
            entry.work.initial_seats.to_string(),
            entry.work.final_seats.to_string(),
            GoDuration(entry.work.additional_latency).to_string(),
            entry
                .started
                .map_or_else(|| NO_TIME.to_owned(), |at| times.of(at)),
        ];
        if details {
            cells.extend(detail_cells(digest));
        }
        table.row(cells);
    }
    table.to_text()
}

fn detail_cells(digest: Option<&RequestDigest>) -> [String; 8] {
    let Some(digest) = digest else {
        return Default::default();
    };
    let info = &digest.info;
    let text = |part: &[u8]| readable(part).into_owned();
    [
        digest.user.name.clone(),
        info.verb.to_string(),
        text(info.path()),
        text(info.namespace()),
        text(info.name()),
        api_version(info),
        text(info.resource()),
        text(info.subresource()),
    ]
}

fn api_version(info: &RequestInfo) -> String {
    let (group, version) = (readable(info.group()), readable(info.version()));
    if group.is_empty() {
        version.into_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Computes flow distinguishers by the current policy.
pub(super) struct Distinguishers<'a> {
    policy: &'a Policy,
    schemas: HashMap<&'a str, fairgate_core::apf::SchemaIndex>,
}

impl<'a> Distinguishers<'a> {
    pub(super) fn new(policy: &'a Policy) -> Self {
        let schemas = policy.schemas().iter().zip(0..);
        Self {
            policy,
            schemas: schemas
                .map(|(schema, index)| (&*schema.name, fairgate_core::apf::SchemaIndex(index)))
                .collect(),
        }
    }

    /// Empty for a schema that no longer exists.
    pub(super) fn of(&self, schema: &str, digest: &RequestDigest) -> String {
        self.schemas.get(schema).map_or_else(String::new, |index| {
            readable(self.policy.distinguisher(*index, digest)).into_owned()
        })
    }
}

/// Converts monotonic time to UTC, by both clocks' readings at one moment.
struct WallTimes {
    now: Time,
    wall: Timestamp,
}

impl WallTimes {
    fn new(clock: &Clock) -> Self {
        Self {
            now: clock.now(),
            wall: Timestamp::try_from(clock.wall()).unwrap_or_default(),
        }
    }

    /// RFC 3339, with as many fractional digits as needed, at most nine.
    fn of(&self, at: Time) -> String {
        let wall = self.wall.checked_sub(self.now.since(at));
        wall.map_or_else(|_| NO_TIME.to_owned(), |wall| wall.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_no_more_digits_than_they_need() {
        let times = WallTimes {
            now: Time::from_nanos(5_000_000_000),
            wall: Timestamp::from_nanosecond(1_700_000_005_000_000_000).unwrap(),
        };
        let at = |nanos| times.of(Time::from_nanos(nanos));
        assert_eq!(at(5_000_000_000), "2023-11-14T22:13:25Z");
        assert_eq!(at(500_000_000), "2023-11-14T22:13:20.5Z");
        assert_eq!(at(1), "2023-11-14T22:13:20.000000001Z");
    }

    #[test]
    fn the_columns_of_an_unknown_request_are_empty() {
        assert!(detail_cells(None).iter().all(String::is_empty));
    }
}
