//! What requests asked for and how they ended, counted by bounded labels.
//!
//! Group, version, resource and subresource come from the path, where a client can write what it
//! likes. So they become labels only once a request for them has succeeded, which the upstream alone
//! decides, and only [`MAX_KINDS`] combinations are told apart; everything else is counted under
//! [`OTHER`]. Paths that are no resources share [`NON_RESOURCE`]. Every other label has few values.
//! A histogram takes twenty times the room of a count, so only [`MAX_TIMED`] combinations have one of
//! their own; the times of all others are in the histograms of [`OTHER`].
//! A combination that was not seen for [`FORGOTTEN_AFTER`] is forgotten with its counts, so that what
//! was asked for once is not rendered for ever; one that comes back begins at 0.
//!
//! Each core counts in rows of its own, found by one look into a small table; the key is a hash that
//! no client can aim at. The [`Registry`] knows the rows of all cores, for the scrape.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    hash::{BuildHasherDefault, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use http::Method;
use siphasher::sip::SipHasher13;

use fairgate_core::{
    cells::{Counter, Histogram, HistogramTotal},
    digest::{RequestInfo, Verb, readable},
    sync::{Mutex, lock},
};

/// Combinations of verb, scope and resource that are told apart.
pub const MAX_KINDS: usize = 1024;
/// Combinations with a histogram of their own.
pub const MAX_TIMED: usize = 320;
/// How long a combination is rendered that is not seen any more.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// How often it is looked for such.
pub const SWEEP_PERIOD: Duration = Duration::from_secs(60);
/// The same in sweeps.
const FORGOTTEN_SWEEPS: u32 = 60;
/// Sweeps without a request after which a combination gives up its histogram to one that has none.
const IDLE_SWEEPS: u32 = 5;
/// Resources that one core knows to exist.
const MAX_RESOURCES: usize = 4096;
/// Stands for all that is not told apart.
pub const OTHER: &str = "other";
/// The subresource of paths that are no resources.
pub const NON_RESOURCE: &str = "non-resource";

/// Upper bounds of the time to the end of an answer, in seconds.
const SLI_DURATIONS: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
    30.0, 45.0, 60.0,
];

/// Whether a request was to be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DryRun {
    /// It was.
    #[default]
    No,
    /// It was to be tried only.
    All,
    /// It did not say so properly.
    Invalid,
}

impl DryRun {
    /// What the query of a request says.
    pub fn of(query: Option<&str>) -> Self {
        let mut values = query
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.strip_prefix("dryRun="));
        match values.next() {
            None => Self::No,
            Some("All") if values.all(|value| value == "All") => Self::All,
            Some(_) => Self::Invalid,
        }
    }

    /// The value of the `dry_run` label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "",
            Self::All => "All",
            Self::Invalid => "invalid",
        }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// What it asked for.
    pub info: &'a RequestInfo,
    /// Its method.
    pub method: &'a Method,
    /// Whether it was a server-side apply.
    pub is_apply: bool,
    /// Whether it was to be carried out.
    pub dry_run: DryRun,
    /// The status of its answer.
    pub code: u16,
    /// Whether the gateway refused or ended it in self-defence.
    pub terminated: bool,
    /// Time to the end of the answer, less the wait for seats.
    pub took: Duration,
}

/// What a row counts requests of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "they are the labels of the same names")]
pub struct Kind {
    pub group: Box<str>,
    pub version: Box<str>,
    pub resource: Box<str>,
    pub subresource: Box<str>,
    pub scope: &'static str,
    pub verb: &'static str,
}

impl Kind {
    fn of(info: &RequestInfo, scope: &'static str, verb: &'static str) -> Self {
        let text = |part: &[u8]| readable(part).into();
        if !info.is_resource {
            return Self::fixed("", NON_RESOURCE, scope, verb);
        }
        Self {
            group: text(info.group()),
            version: text(info.version()),
            resource: text(info.resource()),
            subresource: text(info.subresource()),
            scope,
            verb,
        }
    }

    fn other(scope: &'static str, verb: &'static str) -> Self {
        Self::fixed(OTHER, OTHER, scope, verb)
    }

    fn fixed(name: &str, subresource: &str, scope: &'static str, verb: &'static str) -> Self {
        Self {
            group: name.into(),
            version: name.into(),
            resource: name.into(),
            subresource: subresource.into(),
            scope,
            verb,
        }
    }
}

/// The `verb` label: the method as the API server reports it.
fn verb_label(request: &Ended<'_>) -> &'static str {
    let info = request.info;
    match info.verb {
        Verb::Watch => return "WATCH",
        _ if info.is_resource && info.is_long_running() => return "CONNECT",
        Verb::List => return "LIST",
        Verb::Patch if request.is_apply => return "APPLY",
        _ => {}
    }
    match *request.method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => OTHER,
    }
}

/// The `scope` label: what the request reaches.
fn scope_label(info: &RequestInfo) -> &'static str {
    if !info.is_resource {
        ""
    } else if !info.name().is_empty() || info.verb == Verb::Create {
        "resource"
    } else if info.namespace().is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}

/// Counts by status and dry run: the first `N` of them apart, the rest together.
#[derive(Debug)]
struct Codes<const N: usize> {
    /// Status and dry run; 0 while the cell is free.
    tags: [AtomicU32; N],
    counts: [Counter; N],
    rest: Counter,
}

impl<const N: usize> Default for Codes<N> {
    fn default() -> Self {
        Self {
            tags: std::array::from_fn(|_| AtomicU32::new(0)),
            counts: std::array::from_fn(|_| Counter::default()),
            rest: Counter::default(),
        }
    }
}

impl<const N: usize> Codes<N> {
    fn count(&self, code: u16, dry_run: DryRun) {
        let wanted = u32::from(code) << 2 | dry_run as u32 | 1 << 31;
        for (tag, count) in self.tags.iter().zip(&self.counts) {
            let present = tag.load(Ordering::Relaxed);
            if present == 0 {
                tag.store(wanted, Ordering::Relaxed);
            }
            if present == 0 || present == wanted {
                count.increment();
                return;
            }
        }
        self.rest.increment();
    }

    fn add_to(&self, totals: &mut Totals) {
        for (tag, count) in self.tags.iter().zip(&self.counts) {
            let tag = tag.load(Ordering::Relaxed);
            if tag == 0 {
                return;
            }
            let dry_run = match tag & 3 {
                0 => DryRun::No,
                1 => DryRun::All,
                _ => DryRun::Invalid,
            };
            let code = u16::try_from(tag >> 2 & 0xffff).ok();
            *totals.entry((code, dry_run)).or_default() += count.get();
        }
        let rest = self.rest.get();
        if rest > 0 {
            *totals.entry((None, DryRun::No)).or_default() += rest;
        }
    }
}

/// Counts by status, `None` for those not told apart, and dry run.
pub type Totals = BTreeMap<(Option<u16>, DryRun), u64>;

/// What one core counts of one kind of request.
#[derive(Debug)]
struct Row {
    requests: Codes<16>,
    terminations: Codes<6>,
    took: Histogram<21>,
    /// Whether `took` is in use.
    is_timed: AtomicBool,
    /// The sweep after which it was last counted in.
    seen: AtomicU32,
    /// Whether the registry has forgotten it.
    gone: AtomicBool,
}

impl Row {
    fn new(is_timed: bool) -> Self {
        Self {
            is_timed: AtomicBool::new(is_timed),
            seen: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            requests: Codes::default(),
            terminations: Codes::default(),
            took: Histogram::new(&SLI_DURATIONS),
        }
    }

    fn count(&self, request: &Ended<'_>, sweep: u32) {
        self.seen.store(sweep, Ordering::Relaxed);
        self.requests.count(request.code, request.dry_run);
        if request.terminated {
            self.terminations.count(request.code, DryRun::No);
        }
    }

    fn is_timed(&self) -> bool {
        self.is_timed.load(Ordering::Relaxed)
    }

    fn last_seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }
}

/// What all cores counted of one kind of request.
#[derive(Debug, Default)]
pub struct KindTotals {
    /// All requests.
    pub requests: Totals,
    /// Those that the gateway refused or ended.
    pub terminations: Totals,
    /// Time to the end of the answer, less the wait for seats, in seconds.
    pub took: HistogramTotal,
}

/// The rows of all cores.
#[derive(Debug, Default)]
pub struct Registry {
    rows: Mutex<BTreeMap<Kind, KindRows>>,
    is_full: AtomicBool,
    /// How many sweeps there were.
    sweeps: AtomicU32,
}

/// The rows of one kind.
#[derive(Clone, Debug, Default)]
struct KindRows {
    rows: Vec<Arc<Row>>,
    is_timed: bool,
}

impl KindRows {
    fn last_seen(&self) -> u32 {
        let seen = self.rows.iter().map(|row| row.last_seen());
        seen.max().unwrap_or(0)
    }

    fn set_timed(&mut self, is_timed: bool) {
        self.is_timed = is_timed;
        for row in &self.rows {
            row.is_timed.store(is_timed, Ordering::Relaxed);
        }
    }

    fn forget(&self) {
        for row in &self.rows {
            row.gone.store(true, Ordering::Relaxed);
        }
    }

    fn totals(&self) -> KindTotals {
        let mut totals = KindTotals::default();
        for row in &self.rows {
            row.requests.add_to(&mut totals.requests);
            row.terminations.add_to(&mut totals.terminations);
            if self.is_timed {
                row.took.add_to(&mut totals.took);
            }
        }
        totals
    }
}

impl Registry {
    /// A new row for requests of `kind`; `None` if there are too many kinds already.
    fn add(&self, kind: &Kind) -> Option<Arc<Row>> {
        if self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        let mut rows = lock(&self.rows);
        let is_timed = match rows.get(kind) {
            Some(same) => same.is_timed,
            None if rows.len() >= MAX_KINDS => {
                self.is_full.store(true, Ordering::Relaxed);
                return None;
            }
            None => count_timed(&rows) < MAX_TIMED,
        };
        let row = Arc::new(Row::new(is_timed));
        row.seen.store(self.sweep_number(), Ordering::Relaxed);
        let same = rows.entry(kind.clone()).or_default();
        same.is_timed = is_timed;
        same.rows.push(Arc::clone(&row));
        Some(row)
    }

    fn sweep_number(&self) -> u32 {
        self.sweeps.load(Ordering::Relaxed)
    }

    /// Forgets what was not seen for too long, and takes histograms from kinds that do not use them to
    /// kinds that have none. To be called every [`SWEEP_PERIOD`]. A core that counts at this very
    /// moment may lose that one count.
    pub fn sweep(&self) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed) + 1;
        let mut rows = lock(&self.rows);
        let idle = |rows: &KindRows| now.saturating_sub(rows.last_seen());
        rows.retain(|kind, rows| {
            let forgotten = &*kind.group != OTHER && idle(rows) > FORGOTTEN_SWEEPS;
            if forgotten {
                rows.forget();
            }
            !forgotten
        });
        let mut room = MAX_TIMED.saturating_sub(count_timed(&rows));
        let of_idle: Vec<Kind> = rows
            .iter()
            .filter(|(kind, rows)| {
                &*kind.group != OTHER && rows.is_timed && idle(rows) > IDLE_SWEEPS
            })
            .map(|(kind, _)| kind.clone())
            .collect();
        let mut of_idle = of_idle.iter();
        let untimed: Vec<Kind> = rows
            .iter()
            .filter(|(_, rows)| !rows.is_timed && idle(rows) <= 1)
            .map(|(kind, _)| kind.clone())
            .collect();
        for kind in untimed {
            if room > 0 {
                room -= 1;
            } else if let Some(other) = of_idle.next().and_then(|other| rows.get_mut(other)) {
                other.set_timed(false);
            } else {
                break;
            }
            if let Some(rows) = rows.get_mut(&kind) {
                rows.set_timed(true);
            }
        }
        self.is_full
            .store(rows.len() >= MAX_KINDS, Ordering::Relaxed);
    }

    /// A new row for requests that are not told apart.
    fn add_other(&self, kind: Kind) -> Arc<Row> {
        let row = Arc::new(Row::new(true));
        let mut rows = lock(&self.rows);
        let same = rows.entry(kind).or_default();
        same.is_timed = true;
        same.rows.push(Arc::clone(&row));
        row
    }

    /// How many kinds are told apart.
    pub fn len(&self) -> usize {
        lock(&self.rows).len()
    }

    /// Whether nothing was counted yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything counted, by kind.
    pub fn totals(&self) -> Vec<(Kind, KindTotals)> {
        let rows = lock(&self.rows).clone();
        rows.into_iter()
            .map(|(kind, rows)| (kind, rows.totals()))
            .collect()
    }
}

/// How many kinds have a histogram of their own. It costs a look at all, when there is a new one.
fn count_timed(rows: &BTreeMap<Kind, KindRows>) -> usize {
    rows.values().filter(|rows| rows.is_timed).count()
}

/// Rows by the hash of their kind.
type Rows = HashMap<u64, Arc<Row>, BuildHasherDefault<AsIs>>;

/// What one core counts.
#[derive(Debug)]
pub struct Table {
    registry: Arc<Registry>,
    /// The hasher that keys are made with.
    hasher: SipHasher13,
    rows: RefCell<Rows>,
    /// With the sweep after which each was last asked for.
    resources: RefCell<HashMap<u64, u32, BuildHasherDefault<AsIs>>>,
    /// The last sweep that this table has followed.
    swept: Cell<u32>,
}

impl Table {
    /// An empty table whose rows `registry` knows.
    pub fn new(registry: Arc<Registry>) -> Self {
        use std::hash::BuildHasher as _;
        let random = RandomState::new();
        Self {
            registry,
            hasher: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
            rows: RefCell::default(),
            resources: RefCell::default(),
            swept: Cell::new(0),
        }
    }

    /// Counts a request. Two hashes of a few dozen bytes, two looks into tables; allocates only for
    /// the first of its kind.
    pub fn count(&self, request: &Ended<'_>) {
        let sweep = self.registry.sweep_number();
        if self.swept.replace(sweep) != sweep {
            self.forget(sweep);
        }
        let (verb, scope) = (verb_label(request), scope_label(request.info));
        let resource = self.resource_key(request.info);
        let known = self.knows(resource, request);
        let mut rows = self.rows.borrow_mut();
        let key = self.key(if known { resource } else { 0 }, verb, scope);
        let kind = || Kind::of(request.info, scope, verb);
        let key = if rows.contains_key(&key) || known && self.add(&mut rows, key, &kind()) {
            key
        } else {
            self.key(0, verb, scope)
        };
        let other = || self.registry.add_other(Kind::other(scope, verb));
        let row = rows.entry(key).or_insert_with(other);
        row.count(request, sweep);
        if row.is_timed() {
            row.took.observe_duration(request.took);
        } else {
            let row = rows.entry(self.key(0, verb, scope)).or_insert_with(other);
            row.took.observe_duration(request.took);
        }
    }

    /// Adds a row for a kind that is new to this core; false if there are too many already.
    fn add(&self, rows: &mut Rows, key: u64, kind: &Kind) -> bool {
        let row = self.registry.add(kind);
        row.is_some_and(|row| rows.insert(key, row).is_none())
    }

    /// Drops what the registry has forgotten. It costs one look at all rows, once in a
    /// [`SWEEP_PERIOD`] at most.
    fn forget(&self, sweep: u32) {
        let is_there = |row: &Arc<Row>| !row.gone.load(Ordering::Relaxed);
        self.rows.borrow_mut().retain(|_, row| is_there(row));
        let mut resources = self.resources.borrow_mut();
        resources.retain(|_, seen| sweep.saturating_sub(*seen) <= FORGOTTEN_SWEEPS);
    }

    fn key(&self, resource: u64, verb: &str, scope: &str) -> u64 {
        let mut hasher = self.hasher;
        hasher.write_u64(resource);
        hasher.write(verb.as_bytes());
        hasher.write_u8(0);
        hasher.write(scope.as_bytes());
        hasher.finish()
    }

    fn resource_key(&self, info: &RequestInfo) -> u64 {
        if !info.is_resource {
            return 1;
        }
        let mut hasher = self.hasher;
        for part in [
            info.group(),
            info.version(),
            info.resource(),
            info.subresource(),
        ] {
            hasher.write(part);
            hasher.write_u8(0);
        }
        // 0 stands for all that is not told apart, 1 for what is no resource.
        hasher.finish() | 2
    }

    /// Whether there is such a resource, as far as this core has seen.
    fn knows(&self, resource: u64, request: &Ended<'_>) -> bool {
        if !request.info.is_resource {
            return true;
        }
        if let Some(seen) = self.resources.borrow_mut().get_mut(&resource) {
            *seen = self.swept.get();
            return true;
        }
        // Only for what exists does the upstream answer so.
        let exists = matches!(request.code, 100..400 | 409 | 422) && !request.terminated;
        let mut resources = self.resources.borrow_mut();
        let learn = exists
            && resources.len() < MAX_RESOURCES
            && !self.registry.is_full.load(Ordering::Relaxed);
        learn && resources.insert(resource, self.swept.get()).is_none()
    }
}

/// Takes a hash for what it is.
#[derive(Clone, Copy, Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(table: &Table, method: &Method, target: &str, code: u16) {
        let info = RequestInfo::from_target(method.as_str(), target).unwrap();
        table.count(&Ended {
            info: &info,
            method,
            is_apply: target.contains("fieldManager"),
            dry_run: DryRun::of(target.split_once('?').map(|(_, query)| query)),
            code,
            terminated: code == 429,
            took: Duration::from_millis(70),
        });
    }

    fn lines(registry: &Registry) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, totals) in registry.totals() {
            for ((code, dry_run), count) in totals.requests {
                let Kind {
                    group,
                    version,
                    resource,
                    subresource,
                    scope,
                    verb,
                } = &kind;
                let (code, dry_run) = (code.unwrap_or(0), dry_run.as_str());
                lines.push(format!(
                    "{verb} {group}/{version}/{resource}/{subresource} {scope} {code}{dry_run} {count}"
                ));
            }
        }
        lines
    }

    #[test]
    fn requests_are_told_apart_as_the_api_server_does_it() {
        let registry = Arc::new(Registry::default());
        let (one, other) = (Table::new(registry.clone()), Table::new(registry.clone()));
        let pods = "/api/v1/namespaces/a/pods";
        count(&one, &Method::GET, pods, 200);
        count(&other, &Method::GET, pods, 200);
        count(&other, &Method::GET, &format!("{pods}/x"), 404);
        count(&one, &Method::GET, &format!("{pods}?watch=1"), 200);
        count(&one, &Method::GET, &format!("{pods}/x/log"), 200);
        count(&one, &Method::POST, &format!("{pods}?dryRun=All"), 201);
        count(
            &one,
            &Method::PATCH,
            &format!("{pods}/x?fieldManager=m"),
            200,
        );
        count(&one, &Method::DELETE, pods, 429);
        count(&one, &Method::GET, "/apis/apps/v1/deployments", 200);
        count(&one, &Method::HEAD, "/livez/ping", 200);
        count(&one, &Method::GET, "/secret/path", 404);
        assert_eq!(
            lines(&registry),
            [
                "GET ///non-resource  200 1",
                "GET ///non-resource  404 1",
                "DELETE /v1/pods/ namespace 429 1",
                "LIST /v1/pods/ namespace 200 2",
                "WATCH /v1/pods/ namespace 200 1",
                "APPLY /v1/pods/ resource 200 1",
                "GET /v1/pods/ resource 404 1",
                "POST /v1/pods/ resource 201All 1",
                "CONNECT /v1/pods/log resource 200 1",
                "LIST apps/v1/deployments/ cluster 200 1",
            ]
        );
        let totals = registry.totals();
        let terminated = totals.iter().map(|(_, t)| t.terminations.len());
        assert_eq!(terminated.sum::<usize>(), 1);
        let took: u64 = totals.iter().map(|(_, t)| t.took.count()).sum();
        assert_eq!(took, 11);
    }

    #[test]
    fn a_resource_that_never_answered_is_not_told_apart() {
        let registry = Arc::new(Registry::default());
        let table = Table::new(registry.clone());
        for i in 0..1000 {
            count(&table, &Method::GET, &format!("/apis/g{i}/v1/things"), 404);
            count(&table, &Method::GET, &format!("/api/v1/made-up-{i}/x"), 429);
        }
        assert_eq!(
            lines(&registry),
            [
                "LIST other/other/other/other cluster 404 1000",
                "GET other/other/other/other resource 429 1000"
            ]
        );
    }

    #[test]
    fn kinds_are_bounded_even_if_the_upstream_answers_everything() {
        let registry = Arc::new(Registry::default());
        let tables = [Table::new(registry.clone()), Table::new(registry.clone())];
        for i in 0..MAX_KINDS * 2 {
            let target = format!("/apis/g/v1/thing{i}");
            count(&tables[i % 2], &Method::GET, &target, 200);
            count(&tables[i % 2], &Method::POST, &target, 201);
        }
        assert!(registry.len() <= MAX_KINDS + 4, "{}", registry.len());
        let counted: u64 = registry
            .totals()
            .iter()
            .flat_map(|(_, totals)| totals.requests.values())
            .sum();
        assert_eq!(counted, MAX_KINDS as u64 * 4);
        assert!(
            lines(&registry)
                .iter()
                .any(|line| line.starts_with("POST other/"))
        );
    }

    #[test]
    fn a_kind_that_is_not_seen_any_more_is_forgotten() {
        let registry = Arc::new(Registry::default());
        let tables = [Table::new(registry.clone()), Table::new(registry.clone())];
        for i in 0..MAX_KINDS * 2 {
            count(
                &tables[i % 2],
                &Method::GET,
                &format!("/apis/g/v1/t{i}"),
                200,
            );
        }
        assert!(registry.is_full.load(Ordering::Relaxed));
        for _ in 0..=FORGOTTEN_SWEEPS {
            count(&tables[0], &Method::GET, "/apis/g/v1/t0", 200);
            registry.sweep();
        }
        let left = lines(&registry);
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(
            left[0].starts_with("LIST g/v1/t0/ cluster 200 "),
            "{left:?}"
        );
        assert!(left[1].starts_with("LIST other/"), "{left:?}");
        count(&tables[1], &Method::GET, "/apis/g/v1/t1", 200);
        let left = lines(&registry);
        assert_eq!(left[1], "LIST g/v1/t1/ cluster 200 1", "it begins anew");
        assert_eq!(
            tables[1].rows.borrow().len(),
            2,
            "the core has forgotten, too"
        );
        assert_eq!(tables[1].resources.borrow().len(), 1);
    }

    /// The resources with a histogram of their own, and all times counted anywhere.
    fn timed(registry: &Registry) -> (Vec<String>, u64) {
        let totals = registry.totals();
        let all = totals.iter().map(|(_, totals)| totals.took.count()).sum();
        let own = totals
            .iter()
            .filter(|(kind, totals)| &*kind.resource != OTHER && totals.took.count() > 0);
        (
            own.map(|(kind, _)| kind.resource.to_string()).collect(),
            all,
        )
    }

    #[test]
    fn few_kinds_have_a_histogram_of_their_own_and_idle_ones_give_theirs_up() {
        let registry = Arc::new(Registry::default());
        let table = Table::new(registry.clone());
        let ask = |i: usize| count(&table, &Method::GET, &format!("/apis/g/v1/t{i}"), 200);
        (0..MAX_TIMED + 2).for_each(ask);
        let (own, all) = timed(&registry);
        assert_eq!(own.len(), MAX_TIMED);
        assert_eq!(all, MAX_TIMED as u64 + 2, "the others' times are not lost");
        assert_eq!(lines(&registry).len(), MAX_TIMED + 2, "all are told apart");
        let late = format!("t{}", MAX_TIMED + 1);
        assert!(!own.contains(&late));
        for _ in 0..=IDLE_SWEEPS {
            registry.sweep();
            (1..MAX_TIMED + 2).for_each(ask);
        }
        registry.sweep();
        ask(MAX_TIMED + 1);
        let (own, _) = timed(&registry);
        assert_eq!(own.len(), MAX_TIMED);
        assert!(!own.contains(&"t0".to_owned()), "it was idle");
        let waiting = [MAX_TIMED, MAX_TIMED + 1].map(|i| own.contains(&format!("t{i}")));
        assert_eq!(waiting.iter().filter(|own| **own).count(), 1, "{waiting:?}");
    }

    #[test]
    fn statuses_beyond_a_few_are_counted_together() {
        let codes = Codes::<3>::default();
        for code in 200..210 {
            codes.count(code, DryRun::No);
        }
        codes.count(201, DryRun::All);
        let mut totals = Totals::new();
        codes.add_to(&mut totals);
        assert_eq!(totals[&(None, DryRun::No)], 8);
        assert_eq!(totals[&(Some(201), DryRun::No)], 1);
        assert_eq!(totals.len(), 4);
    }

    #[test]
    fn a_dry_run_is_one_that_says_all() {
        assert_eq!(DryRun::of(None), DryRun::No);
        assert_eq!(DryRun::of(Some("a=b&dryRun=All")), DryRun::All);
        assert_eq!(DryRun::of(Some("dryRun=Some")), DryRun::Invalid);
        assert_eq!(DryRun::of(Some("dryRun=All&dryRun=x")), DryRun::Invalid);
    }
}
