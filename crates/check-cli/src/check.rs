//! `fairgate check`: reports all errors of a configuration and its policies, and the resulting limits.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    budgets,
    in_force::NotRead,
    places,
    policy::{LoadedPolicy, PolicyArgs, PolicyOrigin},
    table,
};
use fairgate_base::clock::Clock;
use fairgate_config::{AdmissionSource, Config};
use fairgate_core::{
    apf::{
        Seats,
        borrowing::LevelLimits,
        policy::{LevelKind, LevelSpec, LimitResponse, Policy, Schema, Semantics, TenantRule},
        work::{EstimatorSettings, ObjectStats, WidthCap},
    },
    digest::RequestInfo,
    finding::{Finding, Severity},
};
use fairgate_policy_cli::{CommandOutcome, CommandStreams, OutputFormat, review, write_finding};

/// Check a configuration and its flow control policy, and show the resulting limits.
///
/// Reports all errors at once, each with file, object, field and remedy, and warns about probable
/// mistakes: an unreachable FlowSchema, a missing priority level, a priority level with fewer seats than
/// its largest request takes, a certificate that has expired. If the configuration is usable, it also says which flow
/// control policy it read, and shows the limits of each priority level in seats.
///
/// With --budgets it also reviews disruption budgets, with --admission admission policies.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fairgate check --config fairgate.yaml
  fairgate check --config fairgate.yaml --policies policies/
  kubectl get flowschemas,prioritylevelconfigurations -o yaml |
      fairgate check --policies -
  fairgate check --server http://127.0.0.1:9080
  fairgate check --kubeconfig ~/.kube/config --context production
  kubectl get poddisruptionbudgets,pods -A -o yaml |
      fairgate check --budgets -
  fairgate check --admission policies/
  kubectl get -o yaml \\
      validatingadmissionpolicies,validatingadmissionpolicybindings |
      fairgate check --admission -

Exit codes: 0 usable, possibly with warnings; 1 not usable; 2 wrong usage.")]
pub struct CheckArgs {
    /// The configuration file. The default is the built-in configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    policies: PolicyArgs,
    /// Review the disruption budgets in a file or in the files of a directory, or from standard input
    /// with `-`: which are invalid, and which keep nodes from being drained.
    ///
    /// YAML or JSON as kubectl prints it, lists included. Pods among them show which budgets select no pod,
    /// or select the same pods; so do Deployments and other workloads of namespaces without pods. Objects
    /// of other kinds are skipped.
    #[arg(long, value_name = "DIR|FILE|-")]
    budgets: Option<PathBuf>,
    /// Review the admission policies and bindings in a file or in the files of a directory, or from standard
    /// input with `-`; can be repeated. The default is admission.policies.files of the configuration.
    ///
    /// Reports what a server would refuse, with the position of errors in expressions; expressions that do
    /// not fit the kinds that they are for; policies and bindings without each other; expressions that may
    /// cost more than they are allowed to; expressions that read what only the server can set, which the gateway
    /// evaluates as the server does with dry runs alone; policies whose failure would stop a cluster. Objects of other
    /// kinds are skipped.
    #[arg(long, value_name = "DIR|FILE|-")]
    admission: Vec<PathBuf>,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// What `check` found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckReport {
    /// Whether there are no errors: a gateway would start with it.
    ok: bool,
    findings: Vec<Finding>,
    /// Which policy was read; `None` if none was, or if its objects are invalid.
    policy: Option<PolicyOrigin>,
    /// What the operator may want to know, and is no problem of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<String>,
    /// What was not judged, because it could not be read here; a hint says why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_judged: Vec<&'static str>,
    /// Files of the given directories that describe no object, and are not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<PathBuf>,
    total_seats: Seats,
    /// Several servers behind the gateway, with their seats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerSeats>,
    /// Empty if the objects are invalid, or if only budgets are checked.
    levels: Vec<LevelSummary>,
    /// What the flows of one tenant weigh together at most; `None` with `Compatible`, where flows have no weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_weight: Option<u32>,
    /// The `FlowSchema`s that name another tenant than the default.
    tenants: Vec<NamedTenant>,
}

/// One of several servers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerSeats {
    server: String,
    seats: Seats,
    /// Whether each address of its name is a server.
    is_resolved: bool,
    /// Whether the seats are its own, and not a part of `flowControl.totalSeats`.
    is_own: bool,
}

impl ServerSeats {
    fn of(config: &fairgate_config::Config) -> Vec<Self> {
        let servers = config.seats_of_servers().map(|(server, seats)| Self {
            server: server.url.authority(),
            seats,
            is_resolved: server.resolve,
            is_own: server.seats.is_some(),
        });
        servers.collect()
    }

    fn row(&self) -> [String; 3] {
        let meaning = match (self.is_own, self.is_resolved) {
            (true, false) => "its own",
            (true, true) => "of each address of the name",
            (false, false) => "an equal part of flowControl.totalSeats",
            (false, true) => {
                "an equal part of flowControl.totalSeats, divided among the addresses of the name"
            }
        };
        [
            self.server.clone(),
            self.seats.to_string(),
            meaning.to_owned(),
        ]
    }
}

/// A `FlowSchema` that names another tenant than the default.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NamedTenant {
    flow_schema: String,
    priority_level: String,
    tenant: TenantRule,
}

/// The limits of a priority level in seats.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LevelSummary {
    name: String,
    /// `Exempt`, `Reject` or `Queue`.
    response: &'static str,
    shares: u32,
    nominal_seats: Seats,
    min_seats: Seats,
    max_seats: Seats,
    queues: Option<u32>,
    hand_size: Option<u32>,
    queue_length_limit: Option<u32>,
    /// Seats of the widest request; `None` for exempt levels, which have no limit.
    widest_request_seats: Option<Seats>,
}

/// The hint that policies are not kept.
const NO_STATE: &str = "state.directory is not set: while the policies have errors, the gateway does not start; set it, and the gateway starts with the last good policies";

/// Checks a configuration and its policies, and writes what is wrong and the resulting limits.
///
/// # Errors
///
/// When a stream cannot be written.
pub fn run(args: &CheckArgs, streams: &mut CommandStreams<'_>) -> io::Result<CommandOutcome> {
    let inputs = args.policies.policies.iter().chain(&args.budgets);
    let inputs = inputs.chain(&args.admission);
    if inputs.filter(|from| from.as_os_str() == "-").count() > 1 {
        writeln!(
            streams.err,
            "error: standard input is given for more than one of --policies, --budgets and --admission"
        )?;
        return Ok(CommandOutcome::Unusable);
    }
    let loaded = LoadedPolicy::read(args.config.as_deref(), &args.policies, streams.input);
    let report = CheckReport::of(loaded, args, streams.input);
    match args.output {
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut streams.out, &report)?;
            writeln!(streams.out)?;
        }
        OutputFormat::Text => report.write(streams)?,
    }
    Ok(if report.ok {
        CommandOutcome::Success
    } else {
        CommandOutcome::Failure
    })
}

/// The errors of the flow control policy and of the admission policies in files that the configuration at `config` names: for a start
/// that fails for another reason, so that all mistakes are told at once.
pub fn errors_of_policies(config: &Path) -> Vec<Finding> {
    let reading = Config::read(Some(config));
    let of_config = reading.findings;
    let loaded = LoadedPolicy::read(Some(config), &PolicyArgs::default(), &mut io::empty());
    let mut findings = loaded.findings;
    let admission = &loaded.config.admission;
    if admission.mode.is_some() && !admission.files.is_empty() {
        let (files, fidelity) = (&admission.files, admission.fidelity);
        findings.extend(review(files, &mut io::empty(), fidelity, Severity::Warning));
    }
    findings.retain(|finding| finding.is_error() && !of_config.contains(finding));
    findings
}

/// How a fleet divides the seats.
fn fleet_sums(config: &Config) -> Option<String> {
    let (fleet, total) = (&config.fleet, config.flow_control.total_seats);
    fleet.engine.as_ref()?;
    let follow = u64::from(total).saturating_sub(fleet.reserved());
    Some(format!(
        "fleet: {} gateways × {} seats are kept for gateways that are cut off; the other {follow} of {total} seats follow demand",
        fleet.max_gateways, fleet.isolated_seats,
    ))
}

impl CheckReport {
    /// Checks all that `args` name. `loaded` is what they name as policy.
    fn of(loaded: LoadedPolicy, args: &CheckArgs, input: &mut dyn Read) -> Self {
        let is_about_others = args.budgets.is_some() || !args.admission.is_empty();
        let is_about_others = is_about_others && args.config.is_none() && !args.policies.is_given();
        let policy = loaded.policy.as_ref().filter(|_| !is_about_others);
        let admission = match args.admission.as_slice() {
            // One that does not exist has been reported with the configuration.
            [] => {
                let files = loaded.config.admission.files.iter();
                files.filter(|path| path.exists()).cloned().collect()
            }
            given => given.to_vec(),
        };
        let mut report = Self {
            ok: true,
            hints: Vec::new(),
            not_judged: Vec::new(),
            policy: loaded.origin.filter(|_| policy.is_some()),
            skipped: Vec::new(),
            total_seats: policy.map_or(loaded.config.flow_control.total_seats, |policy| {
                policy.settings().total_seats
            }),
            servers: if is_about_others {
                Vec::new()
            } else {
                ServerSeats::of(&loaded.config)
            },
            levels: policy.map(level_summaries).unwrap_or_default(),
            tenant_weight: policy.and_then(tenant_weight),
            tenants: policy.map(named_tenants).unwrap_or_default(),
            findings: if is_about_others {
                // They would be about the built-in objects, which the operator has not written.
                Vec::new()
            } else {
                let now = Clock::system().unix_seconds();
                let refused = loaded.config.refused_certificates(now);
                loaded.findings.into_iter().chain(refused).collect()
            },
        };
        let is_admission_given = !args.admission.is_empty();
        report.look_at(&loaded.config, loaded.not_read.as_ref(), is_admission_given);
        if !is_about_others {
            report.look_at_places(&loaded.config, args.config.as_deref());
        }
        for path in &admission {
            let skipped = fairgate_manifest::kustomize_files(path).unwrap_or_default();
            report.skipped.extend(skipped);
        }
        if !admission.is_empty() {
            let fidelity = loaded.config.admission.fidelity;
            // A gateway may have no policies yet; who asks for a review of some has named the wrong file, or a command in a pipe has failed.
            let nothing = if args.admission.is_empty() {
                Severity::Warning
            } else {
                Severity::Error
            };
            let found = review(&admission, input, fidelity, nothing);
            report.findings.extend(found);
        }
        if let Some(from) = &args.budgets {
            let found = budgets::review(from, input);
            report.findings.extend(found);
        }
        report.ok = !report.findings.iter().any(Finding::is_error);
        report
    }

    /// Adds what follows from the configuration, and why its policy was not read.
    fn look_at(&mut self, config: &Config, not_read: Option<&NotRead>, is_admission_given: bool) {
        if config.has_policies_to_keep() && config.state_directory.is_none() {
            self.hints.push(NO_STATE.to_owned());
        }
        self.hints.extend(fleet_sums(config));
        if let Some(NotRead {
            from,
            message,
            remedy,
        }) = not_read
        {
            let hint = format!("{from}: {message}; the policy was not checked: {remedy}");
            self.hints.push(hint);
            self.not_judged.push("the flow control policy");
        }
        let admission = &config.admission;
        let place = match admission.source {
            AdmissionSource::Files => return,
            AdmissionSource::Hosted => "in the gateway's own store",
            AdmissionSource::Upstream => "in the API server",
        };
        if admission.mode.is_some() && !is_admission_given {
            self.hints.push(format!(
                "admission.policies.source: the admission policies are {place}, which was not asked: run kubectl get -o yaml \
                 validatingadmissionpolicies,validatingadmissionpolicybindings | fairgate check --admission -"
            ));
            self.not_judged.push("the admission policies");
        }
    }

    /// Adds what is wrong with the places of what the gateway keeps.
    fn look_at_places(&mut self, config: &Config, file: Option<&Path>) {
        let file = file.map(|path| path.display().to_string());
        let file = file.as_deref().unwrap_or("the built-in configuration");
        let problems = places::problems(config, file);
        self.findings.extend(problems.findings);
        self.hints.extend(problems.hints);
    }

    fn write(&self, streams: &mut CommandStreams<'_>) -> io::Result<()> {
        for path in &self.skipped {
            writeln!(
                streams.err,
                "note: {}: skipped: it is for kustomize",
                path.display()
            )?;
        }
        for finding in &self.findings {
            write_finding(streams.err, finding)?;
        }
        for hint in &self.hints {
            writeln!(streams.err, "hint: {hint}")?;
        }
        let errors = self.findings.iter().filter(|f| f.is_error()).count();
        let warnings = self.findings.len() - errors;
        let verdict = if self.ok { "usable" } else { "not usable" };
        let except = match self.not_judged.as_slice() {
            [] => String::new(),
            _ if !self.ok => String::new(),
            [one] => format!(", except {one}, which was not judged"),
            more => format!(", except {}, which were not judged", more.join(" and ")),
        };
        writeln!(
            streams.err,
            "{verdict}{except}: {errors} {}, {warnings} {}",
            plural(errors, "error"),
            plural(warnings, "warning"),
        )?;
        // The limits of an unusable configuration would be computed from defaults, not from its values.
        if !self.ok || self.levels.is_empty() {
            return Ok(());
        }
        if let Some(policy) = &self.policy {
            writeln!(streams.out, "Policy: {}\n", policy.sentence())?;
        }
        let seats = self.total_seats;
        if !self.servers.is_empty() {
            writeln!(
                streams.out,
                "API servers, and what each may execute in seats:\n"
            )?;
            let rows: Vec<_> = self.servers.iter().map(ServerSeats::row).collect();
            table::write(streams.out, ["SERVER", "SEATS", "WHICH ARE"], &rows)?;
            writeln!(
                streams.out,
                "\nThe limits below are for all of them; they fall and rise as servers go and return.\n"
            )?;
        }
        writeln!(
            streams.out,
            "Limits of each priority level in seats, of {seats} in total:\n"
        )?;
        let rows: Vec<_> = self.levels.iter().map(LevelSummary::row).collect();
        let heads = [
            "LEVEL", "RESPONSE", "SHARES", "NOMINAL", "MIN", "MAX", "QUEUES", "HAND", "LENGTH",
            "WIDEST",
        ];
        table::write(streams.out, heads, &rows)?;
        writeln!(
            streams.out,
            "\nMIN: limit while all lendable seats are lent. MAX: limit while it borrows all it may.\n\
             LENGTH: requests per queue. WIDEST: seats of the largest possible request."
        )?;
        self.write_tenants(streams.out)
    }

    fn write_tenants(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(weight) = self.tenant_weight else {
            return Ok(());
        };
        writeln!(
            out,
            "\nThe flows of one tenant (a user, or the service accounts of a namespace) weigh at most {weight} together."
        )?;
        if self.tenants.is_empty() {
            return Ok(());
        }
        writeln!(out, "FlowSchemas that name another tenant:\n")?;
        let row = |named: &NamedTenant| {
            let tenant = named.tenant.as_str().to_owned();
            [
                named.flow_schema.clone(),
                named.priority_level.clone(),
                tenant,
            ]
        };
        let rows: Vec<_> = self.tenants.iter().map(row).collect();
        table::write(out, ["FLOWSCHEMA", "LEVEL", "TENANT"], &rows)
    }
}

impl LevelSummary {
    fn of(level: &LevelSpec, total_seats: Seats, share_sum: u64) -> Self {
        let limits = LevelLimits::of(level, total_seats, share_sum);
        let queuing = match level.kind {
            LevelKind::Limited {
                response: LimitResponse::Queue(queuing),
                ..
            } => Some(queuing),
            LevelKind::Limited { .. } | LevelKind::Exempt => None,
        };
        let is_exempt = level.kind == LevelKind::Exempt;
        Self {
            name: level.name.to_string(),
            response: match level.kind {
                LevelKind::Exempt => "Exempt",
                LevelKind::Limited {
                    response: LimitResponse::Reject,
                    ..
                } => "Reject",
                LevelKind::Limited { .. } => "Queue",
            },
            shares: level.shares,
            nominal_seats: limits.nominal,
            min_seats: limits.min,
            max_seats: limits.max,
            queues: queuing.map(|queuing| queuing.queues),
            hand_size: queuing.map(|queuing| queuing.hand_size),
            queue_length_limit: queuing.map(|queuing| queuing.queue_length_limit),
            widest_request_seats: (!is_exempt)
                .then(|| widest_request(limits.width_cap(&level.kind))),
        }
    }

    fn row(&self) -> [String; 10] {
        let or_dash = |number: Option<u32>| number.map_or("-".to_owned(), |n| n.to_string());
        [
            self.name.clone(),
            self.response.to_owned(),
            self.shares.to_string(),
            self.nominal_seats.to_string(),
            self.min_seats.to_string(),
            self.max_seats.to_string(),
            or_dash(self.queues),
            or_dash(self.hand_size),
            or_dash(self.queue_length_limit),
            or_dash(self.widest_request_seats),
        ]
    }
}

fn level_summaries(policy: &Policy) -> Vec<LevelSummary> {
    let total_seats = policy.settings().total_seats;
    let share_sum = LevelLimits::share_sum(policy.levels());
    let summary = |level| LevelSummary::of(level, total_seats, share_sum);
    policy.levels().iter().map(summary).collect()
}

fn tenant_weight(policy: &Policy) -> Option<u32> {
    let settings = policy.settings();
    (settings.semantics == Semantics::Improved).then_some(settings.tenant_weight)
}

fn named_tenants(policy: &Policy) -> Vec<NamedTenant> {
    let schemas = policy.schemas().iter();
    let named = schemas.filter(|schema| schema.tenant != TenantRule::Default);
    let tenant = |schema: &Schema| NamedTenant {
        flow_schema: schema.name.to_string(),
        priority_level: policy.level(schema.level).name.to_string(),
        tenant: schema.tenant,
    };
    named.map(tenant).collect()
}

/// The seats of the widest possible request under `cap`: a list of very many objects.
fn widest_request(cap: WidthCap) -> Seats {
    const LIST: &str = "/api/v1/pods?resourceVersion=1&resourceVersionMatch=Exact";
    RequestInfo::from_target("GET", LIST).map_or(1, |list| {
        let work = EstimatorSettings::default().estimate(&list, ObjectStats::Unknown, 0, cap);
        work.max_seats()
    })
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}
