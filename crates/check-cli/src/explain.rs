//! `fairgate explain`: how one request would be classified, and why.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use serde::Serialize;

use super::policy::{LoadedPolicy, PolicyArgs, PolicyOrigin};
use fairgate_core::{
    apf::{
        Flow, SchemaIndex, Seats, Work,
        borrowing::LevelLimits,
        policy::{
            Distinguisher, LevelKind, LevelSpec, LimitResponse, Policy, Queuing, Semantics,
            TenantName,
        },
        shard::Dealer,
        work::{EstimateInput, EstimatorSettings, ObjectStats, WidthCap},
    },
    digest::{RequestDigest, RequestInfo, User, readable},
};
use fairgate_policy_cli::{CommandOutcome, CommandStreams, MisnamedArgs, OutputFormat};

/// The methods of HTTP (RFC 9110, RFC 5789). Servers take others, too, but to explain one is a typing error.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
];

/// Explain how a request would be classified: its attributes, the FlowSchema that matches, and why no
/// earlier one does.
///
/// Says which flow control policy it used, and contacts no server unless --server or --kubeconfig names one. Only the
/// given groups are used: an authenticated user's request is in system:authenticated, too, and a service account's in
/// system:serviceaccounts and system:serviceaccounts:NAMESPACE.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fairgate explain --as alice --as-group system:authenticated \\
      GET /api/v1/namespaces/a/pods
  fairgate explain --config fairgate.yaml --output json \\
      --as system:kube-scheduler --as-group system:authenticated \\
      GET '/api/v1/pods?watch=true&resourceVersion=0'
  fairgate explain --server http://127.0.0.1:9080 --as alice GET /api/v1/pods
  fairgate explain --kubeconfig ~/.kube/config --as alice GET /api/v1/pods

Exit codes: 0 success, 1 failure, 2 wrong usage.")]
pub struct ExplainArgs {
    /// The user name of the request.
    #[arg(long = "as", value_name = "USER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    user: String,
    /// A group of the user; can be repeated.
    #[arg(long = "as-group", value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    _misnamed: MisnamedArgs,
    /// The HTTP method, in upper case.
    #[arg(value_name = "METHOD", value_parser = METHODS)]
    method: String,
    /// The path and query of the request, URL-encoded. Quote it for the shell: it may contain ? and &.
    #[arg(value_name = "PATH?QUERY", value_parser = target)]
    target: String,
    /// The configuration file. The default is the built-in configuration and flow control policy.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    policies: PolicyArgs,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

fn target(text: &str) -> Result<String, String> {
    if text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err("a path begins with /".to_owned())
    }
}

/// A request explained.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    /// By which policy.
    policy: PolicyOrigin,
    request_info: RequestInfoOutput,
    long_running: bool,
    /// Whether it bypasses flow control, so that the rest is hypothetical.
    bypasses: bool,
    flow_schema: String,
    /// The precedence of the schema; low wins.
    matching_precedence: i32,
    /// The rule that matches; empty when none does and the catch-all applies.
    matched: String,
    /// The schemas before it, in matching order.
    not_matched: Vec<NotMatched>,
    priority_level: String,
    exempt: bool,
    /// `Exempt`, `Reject` or `Queue`.
    response: &'static str,
    distinguisher: String,
    /// Whose flow it is; `None` where flows have no weight.
    tenant: Option<TenantOutput>,
    /// The queues dealt to the flow; empty where there are none.
    hand: Vec<u32>,
    /// Whether a running gateway would use other queues, because no hash key is configured.
    hand_is_illustrative: bool,
    work: WorkOutput,
    /// What the estimate depends on.
    #[serde(skip_serializing_if = "Option::is_none")]
    work_depends_on: Option<UnknownCounts>,
}

/// Whose flow it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TenantOutput {
    /// `user`, `serviceAccounts`, `namespace` or `flow`.
    kind: &'static str,
    /// Of the user or namespace; empty for a flow.
    name: String,
    /// What all flows of the tenant weigh together at most, where a flow weighs 1.
    at_most_weight: u32,
    /// The tenant in words.
    #[serde(skip)]
    words: String,
}

/// The attributes of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestInfoOutput {
    is_resource: bool,
    verb: String,
    api_prefix: String,
    group: String,
    version: String,
    namespace: String,
    resource: String,
    subresource: String,
    name: String,
    parts: Vec<String>,
    path: String,
}

/// A schema that does not match, and why.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotMatched {
    flow_schema: String,
    matching_precedence: i32,
    /// One for each of its rules.
    reasons: Vec<String>,
}

/// The estimated work of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkOutput {
    initial_seats: Seats,
    final_seats: Seats,
    additional_latency_seconds: f64,
}

/// What only a running gateway knows about a request's work.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UnknownCounts {
    /// What is unknown.
    counts: &'static str,
    /// The seats it takes at most.
    at_most_seats: Seats,
}

/// Says which FlowSchema a request matches, and why.
///
/// # Errors
///
/// When a stream cannot be written.
pub fn run(args: &ExplainArgs, streams: &mut CommandStreams<'_>) -> io::Result<CommandOutcome> {
    let loaded = LoadedPolicy::read(args.config.as_deref(), &args.policies, streams.input);
    for finding in loaded.findings.iter().filter(|f| f.is_error()) {
        writeln!(streams.err, "{finding}")?;
    }
    if let Some(why) = &loaded.not_read {
        writeln!(streams.err, "{}", why.clone().into_finding())?;
        return Ok(CommandOutcome::Failure);
    }
    let (true, Some(policy), Some(origin)) =
        (loaded.has_intended_policy(), &loaded.policy, &loaded.origin)
    else {
        writeln!(
            streams.err,
            "fairgate: the flow control policy cannot be used; correct the errors above"
        )?;
        return Ok(CommandOutcome::Failure);
    };
    let info = match RequestInfo::from_target(&args.method, &args.target) {
        Ok(info) => info,
        Err(error) => {
            writeln!(
                streams.err,
                "fairgate: the request is malformed and would be rejected: {error}"
            )?;
            return Ok(CommandOutcome::Failure);
        }
    };
    let user = Arc::new(User::new(&args.user, &args.groups));
    let has_hash_key = loaded.config.flow_control.hash_key.is_some();
    let digest = RequestDigest { info, user };
    let explanation = explain((policy, origin), &digest, has_hash_key);
    match args.output {
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut streams.out, &explanation)?;
            writeln!(streams.out)?;
        }
        OutputFormat::Text => explanation.write(args, streams.out)?,
    }
    Ok(CommandOutcome::Success)
}

fn explain(
    (policy, origin): (&Policy, &PolicyOrigin),
    digest: &RequestDigest,
    has_hash_key: bool,
) -> Explanation {
    let info = &digest.info;
    let flow = policy.classify(digest);
    let (schema, level) = (policy.schema(flow.schema), policy.level(flow.level));
    let cap = {
        let share_sum = LevelLimits::share_sum(policy.levels());
        LevelLimits::of(level, policy.settings().total_seats, share_sum).width_cap(&level.kind)
    };
    let (work, unknowns) = estimate(policy, info, cap);
    let hand = hand(level, flow);
    Explanation {
        policy: origin.clone(),
        request_info: RequestInfoOutput::of(info),
        long_running: info.is_long_running(),
        bypasses: info.is_long_running() && !info.is_watch(),
        flow_schema: schema.name.to_string(),
        matching_precedence: schema.precedence,
        matched: policy
            .explain(flow.schema, digest)
            .map_or_else(|_| String::new(), |matched| matched.to_string()),
        not_matched: not_matched(policy, digest, flow.schema),
        priority_level: level.name.to_string(),
        exempt: level.kind == LevelKind::Exempt,
        response: response(level),
        distinguisher: distinguisher(schema.distinguisher, level, digest),
        tenant: TenantOutput::of(policy, digest, flow),
        hand_is_illustrative: !hand.is_empty() && !has_hash_key,
        hand,
        work,
        work_depends_on: unknowns,
    }
}

/// The schemas before `matched`, or all others if it is the catch-all, and why they do not match.
fn not_matched(policy: &Policy, digest: &RequestDigest, matched: SchemaIndex) -> Vec<NotMatched> {
    let all = (0..).map(SchemaIndex).zip(policy.schemas());
    let before = all
        .filter(|(index, _)| *index != matched)
        .map_while(|(index, schema)| {
            let reasons = policy.explain(index, digest).err()?;
            Some(NotMatched {
                flow_schema: schema.name.to_string(),
                matching_precedence: schema.precedence,
                reasons: reasons.iter().map(ToString::to_string).collect(),
            })
        });
    // The catch-all takes what no schema matches, although its own rules do not match either: then all schemas were
    // tried.
    let is_last_resort = policy.explain(matched, digest).is_err();
    let count = if is_last_resort {
        policy.schemas().len()
    } else {
        matched.0 as usize
    };
    before.take(count).collect()
}

fn queuing(level: &LevelSpec) -> Option<Queuing> {
    match level.kind {
        LevelKind::Limited {
            response: LimitResponse::Queue(queuing),
            ..
        } => Some(queuing),
        LevelKind::Limited { .. } | LevelKind::Exempt => None,
    }
}

fn response(level: &LevelSpec) -> &'static str {
    match (&level.kind, queuing(level)) {
        (LevelKind::Exempt, _) => "Exempt",
        (_, Some(_)) => "Queue",
        (_, None) => "Reject",
    }
}

/// The queues of the flow, in the order in which they were dealt.
fn hand(level: &LevelSpec, flow: Flow) -> Vec<u32> {
    queuing(level)
        .and_then(|queuing| Dealer::new(queuing.queues, queuing.hand_size).ok())
        .map(|dealer| dealer.deal(flow.hash).as_slice().to_vec())
        .unwrap_or_default()
}

/// The flow distinguisher; empty where all flows of the schema share one queue.
fn distinguisher(by: Option<Distinguisher>, level: &LevelSpec, digest: &RequestDigest) -> String {
    if queuing(level).is_none_or(|queuing| queuing.queues < 2) {
        return String::new();
    }
    match by {
        None => String::new(),
        Some(Distinguisher::ByUser) => digest.user.name.clone(),
        Some(Distinguisher::ByNamespace) => readable(digest.info.namespace()).into_owned(),
    }
}

/// The estimate without object and watcher counts, and what it could be with them.
fn estimate(
    policy: &Policy,
    info: &RequestInfo,
    cap: WidthCap,
) -> (WorkOutput, Option<UnknownCounts>) {
    let estimator = EstimatorSettings {
        semantics: policy.settings().semantics,
        ..EstimatorSettings::default()
    };
    let known = estimator.estimate(info, ObjectStats::Untracked, 0, cap);
    let at_most = estimator.estimate(info, ObjectStats::Unknown, u32::MAX, cap);
    let counts = match estimator.input(info) {
        EstimateInput::Objects => "number and size of the objects",
        EstimateInput::Watchers => "number of watchers",
        EstimateInput::Nothing => return (WorkOutput::of(known), None),
    };
    let unknowns = (at_most != known).then_some(UnknownCounts {
        counts,
        at_most_seats: at_most.max_seats(),
    });
    (WorkOutput::of(known), unknowns)
}

impl RequestInfoOutput {
    fn of(info: &RequestInfo) -> Self {
        let text = |part: &[u8]| readable(part).into_owned();
        Self {
            is_resource: info.is_resource,
            verb: info.verb.as_str().to_owned(),
            api_prefix: text(info.api_prefix()),
            group: text(info.group()),
            version: text(info.version()),
            namespace: text(info.namespace()),
            resource: text(info.resource()),
            subresource: text(info.subresource()),
            name: text(info.name()),
            parts: info.parts().map(text).collect(),
            path: text(info.path()),
        }
    }

    /// One line such as `list pods, version v1, namespace a`, without empty parts.
    fn sentence(&self) -> String {
        if !self.is_resource {
            return format!("{} the path {}, which is no resource", self.verb, self.path);
        }
        let mut sentence = format!("{} {}", self.verb, self.resource);
        for (before, part) in [
            ("/", &self.subresource),
            (", API group ", &self.group),
            (", version ", &self.version),
            (", namespace ", &self.namespace),
            (", name ", &self.name),
        ] {
            if !part.is_empty() {
                sentence += before;
                sentence += part;
            }
        }
        sentence
    }
}

impl TenantOutput {
    fn of(policy: &Policy, digest: &RequestDigest, flow: Flow) -> Option<Self> {
        let settings = policy.settings();
        let is_improved = settings.semantics == Semantics::Improved;
        queuing(policy.level(flow.level)).filter(|_| is_improved)?;
        let tenant = policy.tenant(flow.schema, digest);
        Some(Self {
            kind: tenant.kind(),
            name: tenant.name(),
            at_most_weight: match tenant {
                TenantName::Flow => 1,
                _ => settings.tenant_weight,
            },
            words: tenant.to_string(),
        })
    }
}

impl WorkOutput {
    fn of(work: Work) -> Self {
        Self {
            initial_seats: work.initial_seats,
            final_seats: work.final_seats,
            additional_latency_seconds: work.additional_latency.as_secs_f64(),
        }
    }

    fn sentence(&self) -> String {
        let Self {
            initial_seats,
            final_seats,
            additional_latency_seconds,
        } = self;
        let noun = if *initial_seats == 1 { "seat" } else { "seats" };
        let lingering = match final_seats {
            0 => String::new(),
            seats => format!(", then {seats} for {additional_latency_seconds} s more"),
        };
        format!("{initial_seats} {noun}{lingering}")
    }
}

impl Explanation {
    fn write(&self, args: &ExplainArgs, out: &mut dyn Write) -> io::Result<()> {
        let groups = match args.groups.as_slice() {
            [] => "in no group".to_owned(),
            groups => format!("in {}", groups.join(", ")),
        };
        let matched = match self.matched.as_str() {
            "" => "no FlowSchema matches, so the catch-all applies",
            matched => matched,
        };
        let running = match (self.bypasses, self.long_running) {
            (true, _) => {
                "long-running: bypasses flow control; the rest is what would apply otherwise"
            }
            (_, true) => "long-running: holds its seats until the watch is initialised",
            (_, false) => "holds its seats until the response ends",
        };
        let (schema, precedence) = (&self.flow_schema, self.matching_precedence);
        for (head, text) in [
            ("Policy", self.policy.sentence()),
            ("Request", format!("{} {}", args.method, args.target)),
            ("User", format!("{}, {groups}", args.user)),
            ("Read as", self.request_info.sentence()),
            ("", running.to_owned()),
            ("FlowSchema", format!("{schema} (precedence {precedence})")),
            ("", matched.to_owned()),
            (
                "Level",
                format!("{} ({})", self.priority_level, self.response),
            ),
            ("Flow", self.flow_sentence()),
            ("Tenant", self.tenant_sentence()),
            ("Queues", self.hand_sentence()),
            ("Work", self.work_sentence()),
        ] {
            writeln!(out, "{head:<11} {text}")?;
        }
        if !self.not_matched.is_empty() {
            writeln!(out, "\nFlowSchemas tried earlier, which do not match:")?;
        }
        for earlier in &self.not_matched {
            writeln!(
                out,
                "  {} (precedence {})",
                earlier.flow_schema, earlier.matching_precedence
            )?;
            for reason in &earlier.reasons {
                writeln!(out, "    {reason}")?;
            }
        }
        Ok(())
    }

    fn flow_sentence(&self) -> String {
        match self.distinguisher.as_str() {
            "" => format!("all of {}", self.flow_schema),
            distinguisher => format!("{distinguisher:?} of {}", self.flow_schema),
        }
    }

    fn tenant_sentence(&self) -> String {
        match &self.tenant {
            None => "none: flows have no weight here".to_owned(),
            Some(TenantOutput {
                kind: "flow",
                words,
                ..
            }) => words.clone(),
            Some(TenantOutput {
                words,
                at_most_weight,
                ..
            }) => format!("{words}, whose flows weigh at most {at_most_weight} together"),
        }
    }

    fn hand_sentence(&self) -> String {
        if self.hand.is_empty() {
            return "none".to_owned();
        }
        let cards: Vec<_> = self.hand.iter().map(u32::to_string).collect();
        let note = if self.hand_is_illustrative {
            " (illustrative: without flowControl.hashKey every process deals its own)"
        } else {
            ""
        };
        format!("one of {}{note}", cards.join(", "))
    }

    fn work_sentence(&self) -> String {
        let known = self.work.sentence();
        match &self.work_depends_on {
            None => known,
            Some(UnknownCounts {
                counts,
                at_most_seats,
            }) => format!(
                "{known} at least, {at_most_seats} at most: depends on the {counts}, which \
                 only a running gateway knows"
            ),
        }
    }
}
