//! Reads a scenario file: every key with its notation, range and default.

use std::{collections::BTreeSet, path::Path, time::Duration};

use serde_json::{Map, Value};

use super::{
    ArrivalProcess, ClientSpec, ConnectionSpec, EventKind, EventServer, Expectation, GatewaySpec,
    LoadSpec, ObjectSpec, OpenLoad, RetryBehavior, Scenario, ScenarioEvent, ServiceRule,
    ServiceSpread, ServiceTime, UpstreamSpec,
    fields::{Fields, ScenarioReader},
    name_of, policy_objects,
    request::request,
    values::{self, InvalidKey},
};
use fairgate_core::{
    apf::{Semantics, objects::Bootstrap},
    finding::Finding,
};
use fairgate_manifest::{read_bounded, yaml};
use fairgate_upstream::dial::HttpVersion;

const API_VERSION: &str = "fairgate.dev/v1alpha1";
const KIND: &str = "Scenario";

/// The most servers: each is a process.
const MAX_SERVERS: u32 = 9;
/// The most users of one client.
const MAX_USERS: u32 = 10_000;

/// The result of reading a scenario.
#[derive(Debug)]
pub(crate) struct ScenarioReading {
    /// With defaults in the place of invalid values: if there are findings, it must not be run.
    pub(crate) scenario: Scenario,
    pub(crate) findings: Vec<Finding>,
    /// The keys that the file has, with `[]` in place of the indices of items.
    pub(crate) keys: BTreeSet<String>,
}

#[cfg(test)]
impl ScenarioReading {
    /// The scenario, if nothing is wrong with it.
    ///
    /// # Errors
    ///
    /// All findings.
    pub(crate) fn usable(self) -> Result<Scenario, Vec<Finding>> {
        if self.findings.is_empty() {
            Ok(self.scenario)
        } else {
            Err(self.findings)
        }
    }
}

/// Reads the scenario at `path`. Never fails; mistakes are in the result.
pub(crate) fn read(path: &Path) -> ScenarioReading {
    let file = path.display().to_string();
    match read_bounded(path) {
        Ok(text) => parse(&file, &name_of(path), &text),
        Err(error) => {
            let mut reader = ScenarioReader::new(file);
            reader.error(
                "",
                format!("cannot be read: {error}"),
                "check the path and its permissions",
            );
            finish(reader, &name_of(path), Map::new())
        }
    }
}

/// Reads the scenario `name` in `text`, known as `file` in messages.
pub(crate) fn parse(file: &str, name: &str, text: &[u8]) -> ScenarioReading {
    let mut reader = ScenarioReader::new(file);
    let documents = match yaml::documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            reader.error("", error.to_string(), "correct the syntax of the file");
            return finish(reader, name, Map::new());
        }
    };
    reader.lines = yaml::lines(text).unwrap_or_default();
    let mut documents = documents.into_iter();
    match (documents.next(), documents.next()) {
        (Some(Value::Object(entries)), None) => {
            let reading = finish(reader, name, entries);
            return reading;
        }
        (_, Some(_)) => reader.error(
            "",
            "the file has several documents",
            "put each scenario into a file of its own",
        ),
        _ => reader.error(
            "",
            "the file has no object",
            format!("begin it with apiVersion: {API_VERSION} and kind: {KIND}"),
        ),
    }
    finish(reader, name, Map::new())
}

/// Every key that a scenario may have, with `[]` in place of the indices of items.
#[cfg(test)]
pub(crate) fn known_keys() -> BTreeSet<String> {
    // Each kind of load and event, so that all optional sections are read.
    let text = include_str!("every_key.yaml");
    let mut reader = ScenarioReader::new("every_key.yaml");
    let documents = yaml::documents(text.as_bytes()).unwrap_or_default();
    let Some(Value::Object(entries)) = documents.into_iter().next() else {
        return BTreeSet::new();
    };
    reader.mapping(String::new(), entries, |fields| {
        scenario(fields, "every_key")
    });
    reader.known
}

fn finish(mut reader: ScenarioReader, name: &str, entries: Map<String, Value>) -> ScenarioReading {
    let unreadable = reader.has_findings();
    let scenario = reader.mapping(String::new(), entries, |fields| scenario(fields, name));
    if unreadable {
        // Without the content of the file, further findings would be misleading.
        reader.keep_first();
    } else {
        check(&mut reader, &scenario);
    }
    let keys = reader.lines.keys();
    let keys = keys
        .map(|path| super::fields::without_numbers(path))
        .collect();
    ScenarioReading {
        scenario,
        findings: reader.into_findings(),
        keys,
    }
}

fn scenario(fields: &mut Fields<'_>, name: &str) -> Scenario {
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        fields.required(key, (), expected, |value| match value.as_str() {
            Some(text) if text == expected => Ok(()),
            _ => Err(InvalidKey::new(
                format!("{value} is not a known value"),
                format!("write {key}: {expected}"),
            )),
        });
    }
    Scenario {
        name: name.to_owned(),
        title: fields.required("title", String::new(), "a few words", values::text),
        about: fields.get("about", String::new(), values::text),
        seed: fields.get("seed", 1, values::seed),
        warm_up: fields.get("warmUp", Duration::from_secs(2), values::duration),
        duration: fields.get("duration", Duration::from_secs(10), values::some_time),
        gateway: fields.section("gateway", gateway),
        policy: fields.raw_list("policy"),
        clients: fields.each("clients", client),
        upstream: fields.section("upstream", upstream),
        events: fields.each("events", event),
        expect: expectations(fields),
    }
}

fn gateway(fields: &mut Fields<'_>) -> GatewaySpec {
    let semantics = [
        ("Improved", Semantics::Improved),
        ("Compatible", Semantics::Compatible),
    ];
    let bootstrap = [
        ("mandatory", Bootstrap::Mandatory),
        ("suggested", Bootstrap::Suggested),
    ];
    GatewaySpec {
        total_seats: fields.get("totalSeats", 600, values::count_from(1)),
        semantics: fields.get(
            "semantics",
            Semantics::Improved,
            values::keyword(&semantics),
        ),
        bootstrap: fields.get(
            "bootstrap",
            Bootstrap::Mandatory,
            values::keyword(&bootstrap),
        ),
        tls: fields.get("tls", false, values::flag),
        request_timeout: fields.get("requestTimeout", Duration::from_secs(60), values::some_time),
    }
}

fn client(fields: &mut Fields<'_>) -> ClientSpec {
    let retry = [
        ("honour", RetryBehavior::Honour),
        ("ignore", RetryBehavior::Ignore),
        ("never", RetryBehavior::Never),
    ];
    ClientSpec {
        name: fields.required("name", String::new(), "elephant", name),
        users: fields.get("users", 1, |value| match values::count_from(1)(value)? {
            users if users <= MAX_USERS => Ok(users),
            _ => Err(InvalidKey::new(
                "too many users",
                format!("write at most {MAX_USERS}"),
            )),
        }),
        groups: fields.get("groups", Vec::new(), values::texts),
        load: fields.section("load", load),
        requests: fields.each("requests", request),
        connection: fields.section("connection", connection),
        retry: fields.get("retryAfter", RetryBehavior::Honour, values::keyword(&retry)),
        starts: fields.get("starts", Duration::ZERO, values::duration),
        stops: fields.get("stops", None, |value| values::some_time(value).map(Some)),
    }
}

/// A name that can be part of a user name, a file name and an expectation.
fn name(value: &Value) -> Result<String, InvalidKey> {
    let text = values::text(value)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text == "all" || !text.chars().all(fits) {
        let problem = format!("{text:?} cannot be a name");
        return Err(InvalidKey::new(
            problem,
            "write letters, digits and hyphens, and not \"all\"",
        ));
    }
    Ok(text)
}

fn load(fields: &mut Fields<'_>) -> LoadSpec {
    let (closed, open) = (fields.has("closed"), fields.has("open"));
    if closed == open {
        let path = fields.path.clone();
        let problem = if closed {
            "it has two loads"
        } else {
            "load is missing"
        };
        let remedy = "write either closed: {threads: 10} or open: {rate: 20}";
        fields.reader.error(&path, problem, remedy);
    }
    let closed_loop = fields.section("closed", |fields| LoadSpec::Closed {
        threads: fields.get("threads", 1, values::count_from(1)),
        think: fields.get("think", Duration::ZERO, values::duration),
    });
    let open_loop = fields.section("open", |fields| open_load(fields, open));
    if open {
        LoadSpec::Open(open_loop)
    } else {
        closed_loop
    }
}

fn open_load(fields: &mut Fields<'_>, present: bool) -> OpenLoad {
    let arrivals = [
        ("constant", ArrivalProcess::Constant),
        ("poisson", ArrivalProcess::Poisson),
    ];
    let has_burst = fields.has("burst");
    let rate = if present && !has_burst {
        fields.required("rate", 1.0, "20", values::rate)
    } else {
        fields.get("rate", 0.0, values::rate)
    };
    let has_ramp = fields.has("ramp");
    let ramp = fields.section("ramp", |fields| {
        let to = fields.get("to", rate, values::rate);
        (
            to,
            fields.get("over", Duration::from_secs(10), values::some_time),
        )
    });
    let burst = fields.section("burst", |fields| {
        let size = fields.get("size", 10, values::count_from(1));
        (
            size,
            fields.get("every", Duration::from_secs(1), values::some_time),
        )
    });
    OpenLoad {
        rate,
        arrivals: fields.get(
            "arrivals",
            ArrivalProcess::Poisson,
            values::keyword(&arrivals),
        ),
        ramp: has_ramp.then_some(ramp),
        burst: has_burst.then_some(burst),
    }
}

fn connection(fields: &mut Fields<'_>) -> ConnectionSpec {
    let protocols = [("http1", HttpVersion::Http1), ("http2", HttpVersion::Http2)];
    ConnectionSpec {
        protocol: fields.get("protocol", HttpVersion::Http1, values::keyword(&protocols)),
        connections: fields.get("connections", None, |value| {
            values::count_from(1)(value).map(Some)
        }),
        streams: fields.get("streams", 100, values::count_from(1)),
        reconnect: fields.get("reconnect", Duration::ZERO, values::duration),
    }
}

fn upstream(fields: &mut Fields<'_>) -> UpstreamSpec {
    UpstreamSpec {
        servers: fields.get("servers", 1, values::count_from(1)),
        capacity: fields.get("capacity", 10, values::count_from(1)),
        degradation: fields.get("degradation", 0.1, values::factor),
        max_in_flight: fields.get("maxInFlight", 0, values::count_from(0)),
        service: fields.section("service", service),
        rules: fields.each("rules", |fields| ServiceRule {
            verbs: fields.get("verbs", Vec::new(), values::texts),
            resources: fields.get("resources", Vec::new(), values::texts),
            service: fields.section("service", service),
        }),
        objects: fields.each("objects", |fields| ObjectSpec {
            resource: fields.required("resource", String::new(), "pods", values::text),
            count: fields.get("count", 100, values::count_from(0)),
            bytes: fields.get("bytes", 1000, values::size),
        }),
        watch_events: fields.section("watches", |fields| {
            fields.get("eventsPerSecond", 0.0, values::factor)
        }),
    }
}

fn service(fields: &mut Fields<'_>) -> ServiceTime {
    let shapes = [
        ("constant", ServiceSpread::Constant),
        ("exponential", ServiceSpread::Exponential),
        ("bimodal", ServiceSpread::Bimodal),
    ];
    ServiceTime {
        mean: fields.get("mean", Duration::from_millis(50), values::duration),
        distribution: fields.get(
            "distribution",
            ServiceSpread::Exponential,
            values::keyword(&shapes),
        ),
        per_object: fields.get("perObject", Duration::ZERO, values::duration),
    }
}

fn event(fields: &mut Fields<'_>) -> ScenarioEvent {
    let at = fields.required("at", Duration::ZERO, "5s", values::duration);
    let kinds = ["policy", "slowdown", "upstream", "gateway"];
    let given = kinds.iter().filter(|kind| fields.has(kind)).count();
    if given != 1 {
        let path = fields.path.clone();
        let problem = format!("it has {given} of {}", kinds.join(", "));
        fields
            .reader
            .error(&path, problem, "write exactly one of them");
    }
    let has_server = fields.has("server");
    if has_server && !fields.has("slowdown") && !fields.has("upstream") {
        let path = format!("{}.server", fields.path);
        fields.reader.error(
            &path,
            "it has an effect with slowdown and upstream only",
            "remove it",
        );
    }
    let server = fields.get("server", 1, values::count_from(1));
    let server = if has_server {
        EventServer::Numbered(server)
    } else {
        EventServer::All
    };
    let has_slowdown = fields.has("slowdown");
    let slowdown = fields.get("slowdown", 1.0, values::factor);
    let policy = fields.raw_list("policy");
    let down = fields.get(
        "upstream",
        None,
        values::keyword(&[("down", Some(true)), ("up", Some(false))]),
    );
    let restart = fields.get("gateway", false, values::keyword(&[("restart", true)]));
    let what = match (has_slowdown, down, restart) {
        (true, ..) => EventKind::Slowdown(slowdown, server),
        (_, Some(down), _) => EventKind::UpstreamDown(down, server),
        (.., true) => EventKind::RestartGateway,
        _ => EventKind::Policy(policy),
    };
    ScenarioEvent { at, what }
}

fn expectations(fields: &mut Fields<'_>) -> Vec<Expectation> {
    let lines = fields.get("expect", Vec::new(), values::texts);
    let path = fields.at("expect");
    let mut all = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        match Expectation::parse(line) {
            Ok(expectation) => all.push(expectation),
            Err((problem, remedy)) => {
                fields
                    .reader
                    .error(&format!("{path}[{index}]"), problem, remedy);
            }
        }
    }
    all
}

/// Rules that involve several keys.
fn check(reader: &mut ScenarioReader, scenario: &Scenario) {
    if scenario.clients.is_empty() {
        reader.error(
            "clients",
            "nobody sends anything",
            "add a client with name, load and requests",
        );
    }
    let mut names = BTreeSet::new();
    for (index, client) in scenario.clients.iter().enumerate() {
        let path = format!("clients[{index}]");
        if !client.name.is_empty() && !names.insert(&client.name) {
            let problem = format!("another client is called {:?}, too", client.name);
            reader.error(
                &format!("{path}.name"),
                problem,
                "give each client a name of its own",
            );
        }
        if client.requests.is_empty() {
            reader.error(
                &path,
                "requests is missing",
                "add requests: with a verb and a path",
            );
        }
        let late = client.starts >= scenario.whole()
            || client.stops.is_some_and(|stops| stops <= client.starts);
        if late {
            reader.error(
                &path,
                "it never sends anything",
                "let starts be before stops and before the end",
            );
        }
    }
    check_servers(reader, scenario);
    check_events(reader, scenario);
    check_expectations(reader, scenario, &names);
    check_policy(reader, scenario, &scenario.policy, "policy");
}

fn check_servers(reader: &mut ScenarioReader, scenario: &Scenario) {
    let servers = scenario.upstream.servers;
    if servers > MAX_SERVERS {
        let problem = format!("{servers} servers are too many for one machine");
        let remedy = format!("write a number up to {MAX_SERVERS}");
        reader.error("upstream.servers", problem, remedy);
    } else if !scenario.upstream.capacity.is_multiple_of(servers) {
        reader.error(
            "upstream.capacity",
            format!("it cannot be divided equally among {servers} servers"),
            "write a multiple of upstream.servers",
        );
    }
}

fn check_events(reader: &mut ScenarioReader, scenario: &Scenario) {
    for (index, event) in scenario.events.iter().enumerate() {
        if event.at >= scenario.duration {
            let path = format!("events[{index}].at");
            reader.error(
                &path,
                "it is after the end",
                "choose a time before the duration is over",
            );
        }
        let server = match event.what {
            EventKind::Slowdown(_, server) | EventKind::UpstreamDown(_, server) => server,
            EventKind::Policy(_) | EventKind::RestartGateway => EventServer::All,
        };
        let servers = scenario.upstream.servers;
        if matches!(server, EventServer::Numbered(number) if number > servers) {
            reader.error(
                &format!("events[{index}].server"),
                format!("there is no such server: upstream.servers is {servers}"),
                "write a number from 1 to upstream.servers",
            );
        }
        if let EventKind::Policy(objects) = &event.what {
            check_policy(
                reader,
                scenario,
                objects,
                &format!("events[{index}].policy"),
            );
        }
    }
}

fn check_expectations(reader: &mut ScenarioReader, scenario: &Scenario, names: &BTreeSet<&String>) {
    for (index, expectation) in scenario.expect.iter().enumerate() {
        if let Some(who) = expectation.who.as_ref().filter(|who| !names.contains(who)) {
            let known: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            let problem = format!("no client is called {who:?}");
            reader.error(
                &format!("expect[{index}]"),
                problem,
                format!("write all or one of {}", known.join(", ")),
            );
        }
    }
    if scenario.expect.is_empty() && !reader.has_findings_below("expect") {
        reader.error(
            "expect",
            "nothing is expected",
            "add a line such as \"mouse.p99 <= 5 x alone\"",
        );
    }
}

/// Reports what is wrong with policy objects at `path`.
fn check_policy(reader: &mut ScenarioReader, scenario: &Scenario, objects: &[Value], path: &str) {
    let Err(findings) = policy_objects::compile(scenario, objects) else {
        return;
    };
    for finding in findings {
        // The origin is the number of the object; see `policy_objects::compile`.
        let place = format!("{path}[{}]", finding.origin);
        let subject = format!("{} {:?}: {}", finding.kind, finding.name, finding.field);
        reader.error(
            &place,
            format!("{subject}: {}", finding.message),
            finding.remedy,
        );
    }
}
