//! `fairgate policy report`: what the audit log of admission policies says, counted.

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use serde::Serialize;

use crate::command::{CommandOutcome, CommandStreams, OutputFormat};
use fairgate_admission::audit::{AuditCheck, AuditEntry};

/// The longest line that is read, in bytes. The gateway writes no longer ones.
const MAX_LINE: u64 = 1 << 20;

/// The most groups that are kept in memory; rarer ones are then dropped.
const MAX_KEPT: usize = 50_000;

/// The most fields that are kept for a group.
const MAX_FIELDS: usize = 50;

/// The most characters of an example that are shown as text.
const MAX_EXAMPLE: usize = 120;

/// Count what policies found on live traffic: by policy, user and namespace, with an example, since when.
///
/// Reads the audit log that fairgate writes with admission.audit.file, and the older files beside it (FILE.1, FILE.2, …).
/// Lines that cannot be read, such as a last one that is still being written, are counted and skipped.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fairgate policy report /var/log/fairgate/admission.jsonl
  Only by policy, the five most frequent:
    fairgate policy report --by policy --top 5 admission.jsonl
  Who would be denied if policy replica-limit were enforced?
    fairgate policy report --policy replica-limit --by user,namespace \\
      admission.jsonl
  From a container that logs to standard output:
    kubectl logs deploy/fairgate | fairgate policy report -

Exit codes: 0 success; 1 a file cannot be read; 2 wrong usage.")]
pub(super) struct ReportArgs {
    /// Files of the audit log, or standard input with `-`.
    #[arg(value_name = "FILE|-", required = true)]
    files: Vec<PathBuf>,
    /// What entries are grouped by.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [GroupBy::Policy, GroupBy::User, GroupBy::Namespace])]
    by: Vec<GroupBy>,
    /// Only this policy.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// The most groups that are shown; the most frequent ones come first.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// What entries are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GroupBy {
    /// Policy, binding and action, or the reason why a request could not be evaluated.
    Policy,
    /// The user who made the requests.
    User,
    /// The namespace of the objects.
    Namespace,
}

/// Entries that are counted together. Fields that entries are not grouped by are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportKey {
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<String>,
    /// `deny`, `warn`, `audit`, or `allow` for an error that is ignored; `notJudged` or `failed` for a request that could not
    /// be evaluated.
    action: String,
    /// Why it could not be evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

/// What is known of a group.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportGroup {
    #[serde(flatten)]
    key: ReportKey,
    count: u64,
    first_seen: String,
    last_seen: String,
    /// The last message, and what it was about.
    example: String,
    /// Such as `CREATE deployments.apps shop/web`.
    example_request: String,
    /// Fields that the policy reads and a server may have set in some of the objects: its verdicts may be other ones.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    set_by_server: BTreeSet<String>,
}

/// The result.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditReport {
    /// Entries that were read.
    entries: u64,
    unreadable_lines: u64,
    /// Requests by what became of them.
    denied: u64,
    #[serde(rename = "notJudged")]
    not_evaluated: u64,
    first_seen: String,
    last_seen: String,
    /// How many groups there are besides those below.
    further_groups: usize,
    /// If it is not 0, there were too many groups: rare ones are missing, and counts may be too low by this.
    counts_may_lack: u64,
    groups: Vec<ReportGroup>,
}

pub(super) fn run(
    args: &ReportArgs,
    streams: &mut CommandStreams<'_>,
) -> io::Result<CommandOutcome> {
    let mut counting = AuditCounting::new(args);
    let mut outcome = CommandOutcome::Success;
    for path in files(&args.files) {
        let read = if path.as_os_str() == "-" {
            counting.read(&mut BufReader::new(&mut *streams.input))
        } else {
            File::open(&path).and_then(|file| counting.read(&mut BufReader::new(file)))
        };
        if let Err(error) = read {
            writeln!(streams.err, "{}: cannot be read: {error}", path.display())?;
            outcome = CommandOutcome::Failure;
        }
    }
    let report = counting.report(args.top as usize);
    match args.output {
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut *streams.out, &report)?;
            writeln!(streams.out)?;
        }
        OutputFormat::Text => report.write(streams)?,
    }
    Ok(outcome)
}

/// The files, each after the older ones beside it.
fn files(given: &[PathBuf]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for path in given {
        let older = (1..).map(|number| older(path, number));
        let older: Vec<PathBuf> = older.take_while(|path| path.is_file()).collect();
        let with_older = older.into_iter().rev().chain([path.clone()]);
        for path in with_older {
            if !all.contains(&path) {
                all.push(path);
            }
        }
    }
    all
}

fn older(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Counts entries.
struct AuditCounting<'a> {
    args: &'a ReportArgs,
    totals: AuditReport,
    groups: HashMap<ReportKey, ReportGroup>,
    max_kept: usize,
}

impl<'a> AuditCounting<'a> {
    fn new(args: &'a ReportArgs) -> Self {
        Self {
            args,
            totals: AuditReport::default(),
            groups: HashMap::new(),
            max_kept: MAX_KEPT,
        }
    }

    fn read(&mut self, input: &mut dyn BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        while read_line(input, &mut line)? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice::<AuditEntry>(&line) {
                Ok(entry) if !entry.time.is_empty() && !entry.decision.is_empty() => {
                    self.count(&entry);
                }
                _ => self.totals.unreadable_lines += 1,
            }
        }
        Ok(())
    }

    fn count(&mut self, entry: &AuditEntry) {
        let wanted = self.args.policy.as_deref();
        let mut is_wanted = wanted.is_none();
        for check in &entry.policies {
            if wanted.is_none_or(|wanted| wanted == check.policy) {
                is_wanted = true;
                self.count_check(entry, check);
            }
        }
        if !is_wanted {
            return;
        }
        if !entry.failure.is_empty() {
            self.count_failure(entry);
        }
        let totals = &mut self.totals;
        totals.entries += 1;
        match &*entry.decision {
            "denied" => totals.denied += 1,
            "notJudged" | "failed" => totals.not_evaluated += 1,
            _ => {}
        }
        // RFC 3339 in one time zone sorts as text.
        if totals.first_seen.is_empty() || entry.time < totals.first_seen {
            totals.first_seen.clone_from(&entry.time);
        }
        if entry.time > totals.last_seen {
            totals.last_seen.clone_from(&entry.time);
        }
    }

    fn count_check(&mut self, entry: &AuditEntry, check: &AuditCheck) {
        let key = ReportKey {
            policy: self.by(GroupBy::Policy, &check.policy),
            binding: self.by(GroupBy::Policy, &check.binding),
            action: check.action.clone(),
            ..self.key_of(entry)
        };
        let fields = entry.set_by_server.get(&check.policy);
        self.count_in(key, entry, &check.message, fields.map_or(&[], |all| all));
    }

    fn count_failure(&mut self, entry: &AuditEntry) {
        let key = ReportKey {
            action: entry.decision.clone(),
            reason: self.by(GroupBy::Policy, &entry.failure),
            ..self.key_of(entry)
        };
        self.count_in(key, entry, &entry.failure, &[]);
    }

    fn by(&self, what: GroupBy, text: &str) -> Option<String> {
        self.args.by.contains(&what).then(|| text.to_owned())
    }

    /// The group of an entry by what it is about.
    fn key_of(&self, entry: &AuditEntry) -> ReportKey {
        ReportKey {
            namespace: self.by(GroupBy::Namespace, &entry.request.namespace),
            user: self.by(GroupBy::User, &entry.request.user),
            ..ReportKey::default()
        }
    }

    fn count_in(
        &mut self,
        key: ReportKey,
        entry: &AuditEntry,
        message: &str,
        set_by_server: &[String],
    ) {
        let group = self
            .groups
            .entry(key)
            .or_insert_with_key(|key| ReportGroup {
                key: key.clone(),
                count: 0,
                first_seen: entry.time.clone(),
                last_seen: String::new(),
                example: String::new(),
                example_request: String::new(),
                set_by_server: BTreeSet::new(),
            });
        group.count += 1;
        for field in set_by_server {
            if group.set_by_server.len() < MAX_FIELDS && !group.set_by_server.contains(field) {
                group.set_by_server.insert(field.clone());
            }
        }
        if entry.time < group.first_seen {
            group.first_seen.clone_from(&entry.time);
        }
        if entry.time >= group.last_seen {
            group.last_seen.clone_from(&entry.time);
            message.clone_into(&mut group.example);
            group.example_request = request(entry);
        }
        if self.groups.len() > self.max_kept {
            self.drop_rare();
        }
    }

    /// Drops the rarer half of the groups.
    fn drop_rare(&mut self) {
        let mut counts: Vec<u64> = self.groups.values().map(|group| group.count).collect();
        let middle = counts.len() / 2;
        let (_, limit, _) = counts.select_nth_unstable(middle);
        let limit = *limit;
        let mut left = self.max_kept / 2;
        self.groups.retain(|_, group| {
            let is_kept = group.count > limit || (group.count == limit && left > 0);
            left = left.saturating_sub(usize::from(is_kept));
            is_kept
        });
        self.totals.counts_may_lack += limit;
    }

    fn report(self, top: usize) -> AuditReport {
        let mut groups: Vec<ReportGroup> = self.groups.into_values().collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        AuditReport {
            further_groups: groups.len().saturating_sub(top),
            groups: groups.into_iter().take(top).collect(),
            ..self.totals
        }
    }
}

/// What a request does: `CREATE deployments.apps shop/web`.
fn request(entry: &AuditEntry) -> String {
    let of = &entry.request;
    let mut shown = format!("{} {}", entry.operation, of.resource);
    for (before, part) in [
        (".", &of.group),
        ("/", &of.subresource),
        (" ", &of.namespace),
    ] {
        if !part.is_empty() {
            shown.push_str(before);
            shown.push_str(part);
        }
    }
    if !of.name.is_empty() {
        shown.push(if of.namespace.is_empty() { ' ' } else { '/' });
        shown.push_str(&of.name);
    }
    shown
}

/// Reads a line without its end into `line`; of one that is too long, only the beginning. `false` at the end of the
/// input.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut is_first = true;
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(!is_first);
        }
        is_first = false;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(buffer.len());
        let room = usize::try_from(MAX_LINE).unwrap_or(usize::MAX) - line.len();
        line.extend_from_slice(&buffer[..taken.min(room)]);
        let used = taken + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

impl AuditReport {
    fn write(&self, streams: &mut CommandStreams<'_>) -> io::Result<()> {
        let out = &mut *streams.out;
        if self.entries == 0 {
            writeln!(out, "no entries")?;
        } else {
            writeln!(
                out,
                "{} entries from {} to {}: {} denied, {} not evaluated",
                self.entries, self.first_seen, self.last_seen, self.denied, self.not_evaluated
            )?;
        }
        for group in &self.groups {
            writeln!(out, "\n{:>7} x {}", group.count, group.key.shown())?;
            writeln!(out, "          {} to {}", group.first_seen, group.last_seen)?;
            let words: Vec<&str> = group.example.split_whitespace().collect();
            let example: String = words.join(" ").chars().take(MAX_EXAMPLE).collect();
            writeln!(out, "          {}: {example}", group.example_request)?;
            if !group.set_by_server.is_empty() {
                let fields: Vec<&str> = group.set_by_server.iter().map(|one| &**one).collect();
                writeln!(
                    out,
                    "          a server may decide otherwise: it sets {}",
                    fields.join(", ")
                )?;
            }
        }
        if self.further_groups > 0 {
            writeln!(
                out,
                "\n{} further groups; --top shows more",
                self.further_groups
            )?;
        }
        if self.counts_may_lack > 0 {
            writeln!(
                streams.err,
                "more than {MAX_KEPT} groups: rare ones are missing, and counts may be too low by {}; group by less (--by)",
                self.counts_may_lack
            )?;
        }
        if self.unreadable_lines > 0 {
            writeln!(
                streams.err,
                "{} lines could not be read",
                self.unreadable_lines
            )?;
        }
        Ok(())
    }
}

impl ReportKey {
    fn shown(&self) -> String {
        let mut shown = self.action.clone();
        let parts = [
            (" by policy ", &self.policy),
            (", binding ", &self.binding),
            (": ", &self.reason),
            (", namespace ", &self.namespace),
            (", user ", &self.user),
        ];
        for (words, part) in parts {
            if let Some(part) = part
                && !part.is_empty()
            {
                shown.push_str(words);
                shown.push_str(part);
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use fairgate_admission::RecordedRequest;

    use super::*;

    fn args(by: &[GroupBy]) -> ReportArgs {
        ReportArgs {
            files: Vec::new(),
            by: by.to_vec(),
            policy: None,
            top: 20,
            output: OutputFormat::Text,
        }
    }

    fn line(second: u32, user: &str) -> String {
        let check = AuditCheck {
            policy: "p".to_owned(),
            binding: "b".to_owned(),
            action: "deny".to_owned(),
            message: format!("message {second}"),
            ..AuditCheck::default()
        };
        let entry = AuditEntry {
            time: format!("2026-01-01T00:00:{second:02}.000Z"),
            decision: "denied".to_owned(),
            operation: "CREATE".to_owned(),
            request: RecordedRequest {
                resource: "pods".to_owned(),
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                user: user.to_owned(),
                ..RecordedRequest::default()
            },
            set_by_server: [("p".to_owned(), vec![format!("spec.field{second}")])].into(),
            policies: vec![check],
            ..AuditEntry::default()
        };
        String::from_utf8(entry.line()).unwrap()
    }

    #[test]
    fn entries_are_grouped_and_a_cut_line_is_counted() {
        let args = args(&[GroupBy::Policy, GroupBy::User]);
        let mut counting = AuditCounting::new(&args);
        let mut text = [line(5, "a"), line(3, "a"), line(9, "b"), "\n".to_owned()].concat();
        text.push_str("{\"valid\": \"json of another kind\"}\n");
        text.push_str(&line(10, "c")[..40]);
        counting.read(&mut text.as_bytes()).unwrap();
        let report = counting.report(1);
        assert_eq!((report.entries, report.unreadable_lines), (3, 2));
        assert_eq!((report.denied, report.further_groups), (3, 1));
        assert_eq!(report.first_seen, "2026-01-01T00:00:03.000Z");
        assert_eq!(report.last_seen, "2026-01-01T00:00:09.000Z");
        let first = &report.groups[0];
        assert_eq!((first.count, first.key.user.as_deref()), (2, Some("a")));
        assert_eq!(first.key.namespace, None);
        assert_eq!(first.first_seen, "2026-01-01T00:00:03.000Z");
        assert_eq!(first.example, "message 5");
        assert_eq!(first.example_request, "CREATE pods shop/web");
        let set: Vec<_> = first.set_by_server.iter().collect();
        assert_eq!(set, ["spec.field3", "spec.field5"]);
    }

    #[test]
    fn requests_that_could_not_be_evaluated_are_grouped_by_reason() {
        let failed = |second: u32, failure: &str, decision: &str| {
            let mut entry: AuditEntry = serde_json::from_str(&line(second, "a")).unwrap();
            entry.policies.clear();
            entry.failure = failure.to_owned();
            entry.decision = decision.to_owned();
            String::from_utf8(entry.line()).unwrap()
        };
        let text = [
            failed(1, "the body is too large", "notJudged"),
            failed(2, "the upstream answered its dry run with 500", "failed"),
            failed(3, "the body is too large", "notJudged"),
        ]
        .concat();
        let args = args(&[GroupBy::Policy, GroupBy::User]);
        let mut counting = AuditCounting::new(&args);
        counting.read(&mut text.as_bytes()).unwrap();
        let report = counting.report(9);
        assert_eq!((report.entries, report.not_evaluated), (3, 3));
        let groups: Vec<_> = report
            .groups
            .iter()
            .map(|group| (group.count, group.key.shown()))
            .collect();
        let wanted = [
            (2, "notJudged: the body is too large, user a"),
            (
                1,
                "failed: the upstream answered its dry run with 500, user a",
            ),
        ];
        assert_eq!(groups, wanted.map(|(count, text)| (count, text.to_owned())));
    }

    #[test]
    fn memory_is_bounded_and_frequent_groups_stay() {
        let args = args(&[GroupBy::User]);
        let mut counting = AuditCounting::new(&args);
        counting.max_kept = 100;
        for number in 0..1000 {
            let rare = line(1, &format!("rare-{number}"));
            counting.read(&mut rare.as_bytes()).unwrap();
            if number % 10 == 0 {
                counting.read(&mut line(2, "frequent").as_bytes()).unwrap();
            }
            assert!(counting.groups.len() <= 100);
        }
        let report = counting.report(1);
        let first = &report.groups[0];
        assert_eq!(first.key.user.as_deref(), Some("frequent"));
        assert!(report.counts_may_lack > 0);
        assert!(first.count + report.counts_may_lack >= 100, "{first:?}");
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_without_keeping_it() {
        let args = args(&[GroupBy::Policy]);
        let mut counting = AuditCounting::new(&args);
        let long = "x".repeat(3 << 20);
        let text = format!("{long}\n{}", line(1, "a"));
        counting.read(&mut BufReader::new(text.as_bytes())).unwrap();
        let report = counting.report(9);
        assert_eq!((report.entries, report.unreadable_lines), (1, 1));
    }
}
