//! `fairgate policy test`: what policies say about requests, without a server.

use std::{io, path::PathBuf};

use clap::ValueEnum;
use serde_json::Value;

use crate::command::{CommandOutcome, CommandStreams, MisnamedArgs};
use crate::{
    bundle::{CompiledBundle, PolicyBundle},
    cases::{self, TestCase},
    documents::{self, FileObject},
    evaluated::{self, TestVerdict},
    expectation::ExpectedResult,
    junit,
    requests::{self, RequestSettings},
    resources::{KnownResources, ResourceOverride},
    results::{TestReport, TestResult, title},
    text,
};
use fairgate_admission::AdmissionOperation;
use fairgate_core::{
    digest::User,
    finding::{Finding, Severity},
};

/// Say what admission policies do about objects, expression by expression, and compare it with what is expected.
///
/// Each object of the files is evaluated as if somebody created it; with --old or --operation, as if somebody updated or
/// deleted it. Policies and bindings may be in the same files. A policy without binding is evaluated as if it had one that
/// denies. Objects are evaluated as they are written: defaults of a server are not filled in.
///
/// With --cases, the requests and what is expected of them are in a file. Without, every object is expected to be
/// allowed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  What do these policies say about these manifests?
    fairgate policy test -f policies/ -f deployment.yaml
  As whom, in which namespace, with which params:
    fairgate policy test -f policies/ -f deployment.yaml \\
      --as alice --as-group system:authenticated \\
      --namespace-object namespace.yaml --params limits.yaml
  An update, and a deletion:
    fairgate policy test -f policies/ -f new.yaml --old old.yaml
    fairgate policy test -f policies/ -f old.yaml --operation DELETE
  What the cluster has now:
    kubectl get deployments -A -o yaml |
      fairgate policy test -f policies/ -f -
  Cases for CI:
    fairgate policy test -f policies/ --cases cases.yaml \\
      --output junit > report.xml

A file of cases:
  policies: [policies/]           # besides those of -f; relative to the file
  params: [limits.yaml]           # files or objects, as object and oldObject
  user: {name: alice, groups: ['system:authenticated']}
  resources: {Goose: geese}       # of kinds whose plural cannot be guessed
  cases:
  - name: too many replicas in production
    object: {file: deployment.yaml, kind: Deployment, name: web}
    oldObject: old.yaml           # then operation is UPDATE; else CREATE
    namespaceLabels: {env: prod}
    authorizer: [{verb: escalate, resource: roles, allowed: true}]
    expect: {policy: replica-limit, message: at most 5, warnings: []}
  - name: few replicas
    object: deployment.yaml
    dryRun: true
    expect: allowed

Exit codes: 0 all cases passed, or all objects are allowed; 1 otherwise, and if no policy matches any of them; 2 wrong usage,
or files that cannot be used.")]
pub(super) struct TestArgs {
    /// Policies, bindings and objects: a file, a directory, or standard input with `-`; can be repeated.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE|DIR|-",
        required_unless_present = "cases"
    )]
    files: Vec<PathBuf>,
    /// The objects as they were before an update: a file or a directory; can be repeated.
    #[arg(long, value_name = "FILE|DIR")]
    old: Vec<PathBuf>,
    /// Objects that the policies take as params; can be repeated.
    #[arg(long, value_name = "FILE|DIR")]
    params: Vec<PathBuf>,
    /// Namespaces, for namespaceSelector and namespaceObject. Others are taken to exist, without labels of their own.
    #[arg(long = "namespace-object", value_name = "FILE|DIR")]
    namespaces: Vec<PathBuf>,
    /// The user who makes the requests. The default is `user` in the group system:authenticated.
    #[arg(long = "as", value_name = "USER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// A group of the user; can be repeated. Groups are exactly those given.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
    #[command(flatten)]
    _misnamed: MisnamedArgs,
    /// What the requests do. The default is UPDATE for objects that --old has, and CREATE for others.
    #[arg(long, value_enum)]
    operation: Option<OperationArg>,
    /// The namespace of objects that name none.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// The resource of a kind, such as Goose=geese or Scale=deployments.apps/scale; can be repeated. Those of
    /// Kubernetes and of custom resource definitions among the files are known; others are guessed.
    #[arg(long = "resource", value_name = "KIND=RESOURCE", value_parser = ResourceOverride::parse)]
    resources: Vec<ResourceOverride>,
    /// Requests with what is expected of them; can be repeated.
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["old", "operation"])]
    cases: Vec<PathBuf>,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: TestFormat,
}

/// The operation of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OperationArg {
    #[value(name = "CREATE")]
    Create,
    #[value(name = "UPDATE")]
    Update,
    #[value(name = "DELETE")]
    Delete,
    #[value(name = "CONNECT")]
    Connect,
}

impl OperationArg {
    fn operation(self) -> AdmissionOperation {
        match self {
            Self::Create => AdmissionOperation::Create,
            Self::Update => AdmissionOperation::Update,
            Self::Delete => AdmissionOperation::Delete,
            Self::Connect => AdmissionOperation::Connect,
        }
    }
}

/// The output format of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TestFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// XML that CI systems read.
    Junit,
}

pub(super) fn run(args: &TestArgs, streams: &mut CommandStreams<'_>) -> io::Result<CommandOutcome> {
    let mut findings = Vec::new();
    let inputs = TestFiles::read(args, streams, &mut findings);
    let cases = inputs.cases(args, &mut findings);
    let usable = !findings.iter().any(Finding::is_error);
    let report = match inputs.bundle.compile(&inputs.settings.params) {
        Ok(compiled) if usable => inputs.evaluate(cases, compiled, &mut findings),
        _ => None,
    };
    for finding in &findings {
        text::write_finding(streams.err, finding)?;
    }
    let Some(mut report) = report else {
        let what = match findings.iter().filter(|finding| finding.is_error()).count() {
            1 => "the error above".to_owned(),
            errors => format!("the {errors} errors above"),
        };
        writeln!(streams.err, "nothing was evaluated: correct {what} first")?;
        return Ok(CommandOutcome::Unusable);
    };
    report.findings = findings;
    report.has_cases = !args.cases.is_empty();
    match args.output {
        TestFormat::Text => text::write(streams.out, &report)?,
        TestFormat::Json => {
            serde_json::to_writer_pretty(&mut *streams.out, &report)?;
            writeln!(streams.out)?;
        }
        TestFormat::Junit => junit::write(streams.out, &report)?,
    }
    if !report.is_any_evaluated && args.output != TestFormat::Text {
        writeln!(streams.err, "error: {}", text::NOTHING_EVALUATED)?;
    }
    Ok(if report.ok {
        CommandOutcome::Success
    } else {
        CommandOutcome::Failure
    })
}

/// What the files contain.
struct TestFiles {
    bundle: PolicyBundle,
    /// What is no policy and no binding.
    objects: Vec<FileObject>,
    old_objects: Vec<FileObject>,
    cases: Vec<FileObject>,
    settings: RequestSettings,
    known: KnownResources,
}

impl TestFiles {
    fn read(
        args: &TestArgs,
        streams: &mut CommandStreams<'_>,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let mut read = |paths: &[PathBuf], findings: &mut Vec<Finding>| {
            documents::read(paths, streams.input, findings)
        };
        let objects = read(&args.files, findings);
        let old_objects = read(&args.old, findings);
        let params = read(&args.params, findings);
        let namespaces = read(&args.namespaces, findings);
        let mut cases = Vec::new();
        for path in &args.cases {
            cases.extend(documents::read_documents(path, &mut io::empty(), findings));
        }
        let further = cases::policies(&cases, findings);
        let mut bundle = PolicyBundle::default();
        let mut objects = bundle.take(objects, findings);
        let further = read(&further, findings);
        objects.extend(bundle.take(further, findings));
        let mut known = KnownResources::new(args.resources.clone());
        for some in [&objects, &old_objects, &params] {
            known.learn(some);
        }
        let values = |objects: Vec<FileObject>| -> Vec<Value> {
            objects.into_iter().map(|object| object.value).collect()
        };
        Self {
            bundle,
            objects,
            old_objects,
            cases,
            settings: RequestSettings {
                operation: args.operation.map(OperationArg::operation),
                namespace: args.namespace.clone(),
                name: String::new(),
                user: user(args),
                dry_run: false,
                options: Value::Null,
                namespaces: values(namespaces),
                params: values(params),
                checks: Vec::new(),
            },
            known,
        }
    }

    /// The cases of the files, or the objects as cases.
    fn cases(&self, args: &TestArgs, findings: &mut Vec<Finding>) -> Vec<TestCase> {
        for binding in &self.bundle.bindings {
            let name = binding.text(&["spec", "policyName"]);
            if self.bundle.policy(name).is_none() {
                let message = format!("there is no policy {name:?} among the files");
                let remedy = "until there is one, the binding does nothing";
                findings.push(binding.warning("spec.policyName", message, remedy));
            }
        }
        if self.bundle.policies.is_empty() && !findings.iter().any(Finding::is_error) {
            let remedy = "give files with ValidatingAdmissionPolicies";
            findings.push(missing("-f", "there is no policy", remedy));
        }
        if !args.cases.is_empty() {
            return cases::read(&self.cases, &self.settings, &self.known, findings);
        }
        if self.objects.is_empty() && !findings.iter().any(Finding::is_error) {
            let remedy = "give files with objects, or --cases";
            findings.push(missing(
                "-f",
                "there is no object besides policies and bindings",
                remedy,
            ));
        }
        let mut used = vec![false; self.old_objects.len()];
        let mut cases = Vec::new();
        for object in &self.objects {
            let identity = |one: &FileObject| {
                let (group, _) = one.group_version();
                [group, one.kind(), one.namespace(), one.name()].map(str::to_owned)
            };
            let mut old = self.old_objects.iter();
            let old = old.position(|old| identity(old) == identity(object));
            if let Some(at) = old {
                used[at] = true;
            }
            let old = old.map(|at| &self.old_objects[at]);
            let request = requests::request(object, old, &self.settings, &self.known, findings);
            cases.extend(request.map(|request| TestCase {
                name: String::new(),
                origin: object.origin(""),
                request,
                expected: ExpectedResult::of(TestVerdict::Allowed),
                known: self.known.clone(),
            }));
        }
        for (old, _) in self.old_objects.iter().zip(used).filter(|(_, used)| !used) {
            let remedy = "give the updated object with -f";
            findings.push(old.error("", "no object updates it", remedy));
        }
        cases
    }

    fn evaluate(
        &self,
        cases: Vec<TestCase>,
        mut compiled: CompiledBundle,
        findings: &mut Vec<Finding>,
    ) -> Option<TestReport> {
        let mut results = Vec::new();
        let mut params = self.settings.params.clone();
        for case in cases {
            if case.request.params != params && !compiled.assumed.is_empty() {
                // The assumed bindings depend on the params.
                params.clone_from(&case.request.params);
                compiled = self.bundle.compile(&params).ok()?;
            }
            match evaluated::evaluate(&case.request, &self.bundle, &compiled, &case.known) {
                Ok(request) => results.push(TestResult {
                    name: match &*case.name {
                        "" => title(&request),
                        name => name.to_owned(),
                    },
                    origin: case.origin,
                    expected: case.expected.verdict,
                    surprises: case.expected.surprises(&request),
                    request,
                }),
                Err(problem) => {
                    findings.push(missing(&case.origin, &problem, "correct the value"));
                }
            }
        }
        if findings.iter().any(Finding::is_error) {
            return None;
        }
        let is_any_evaluated = results.iter().any(TestResult::is_evaluated);
        Some(TestReport {
            ok: is_any_evaluated && results.iter().all(|result| result.surprises.is_empty()),
            is_any_evaluated,
            has_cases: false,
            policies_without_binding: compiled.assumed,
            results,
            findings: Vec::new(),
        })
    }
}

fn user(args: &TestArgs) -> User {
    match &args.user {
        Some(name) => User::new(name, &args.groups),
        None => User::new("user", [User::AUTHENTICATED]),
    }
}

fn missing(origin: &str, message: &str, remedy: &str) -> Finding {
    Finding::without_object(Severity::Error, origin, message, remedy)
}
