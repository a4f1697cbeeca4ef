//! Health checks, in the form of Kubernetes' `/livez`, `/readyz` and `/healthz`.

use std::{fmt, fmt::Write as _};

/// Returns the failure, if any. Must not block.
pub(crate) type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A health endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// `/livez`: fails when a restart would help.
    Live,
    /// `/readyz`: fails when no client should be sent here.
    Ready,
    /// `/healthz`: the deprecated name of `/livez`.
    Health,
}

impl Probe {
    /// Parses a path: the endpoint, and the single check that it names, if any.
    pub(crate) fn of(path: &str) -> Option<(Self, Option<&str>)> {
        // A target such as `example.com:80` has an empty path.
        let path = path.strip_prefix('/')?;
        let (probe, check) = match path.split_once('/') {
            Some((probe, check)) => (probe, Some(check).filter(|check| !check.is_empty())),
            None => (path, None),
        };
        let probe = match probe {
            "livez" => Self::Live,
            "readyz" => Self::Ready,
            "healthz" => Self::Health,
            _ => return None,
        };
        Some((probe, check))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Live => "livez",
            Self::Ready => "readyz",
            Self::Health => "healthz",
        }
    }
}

/// Returns a degradation that does not fail the check. Must not block.
pub(crate) type Note = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The checks of all endpoints, in the order they were added.
#[derive(Default)]
pub struct HealthChecks {
    checks: Vec<Named>,
    notes: Vec<(&'static str, Note)>,
}

struct Named {
    name: &'static str,
    only_ready: bool,
    check: Check,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeResult {
    /// Whether all checks passed.
    pub(crate) ok: bool,
    /// The body of the response.
    pub(crate) text: String,
}

impl HealthChecks {
    /// No checks but `ping`, which always succeeds.
    pub fn new() -> Self {
        Self::default().both("ping", || Ok(()))
    }

    /// Adds a check to all endpoints.
    #[must_use]
    pub fn both(
        self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.add(name, false, Box::new(check))
    }

    /// Adds a check to `/readyz` only.
    #[must_use]
    pub fn ready(
        self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.add(name, true, Box::new(check))
    }

    /// Adds a note to `/readyz?verbose`, which still passes: a gateway with an outdated policy is better
    /// than none.
    #[must_use]
    pub fn note(
        mut self,
        name: &'static str,
        note: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.notes.push((name, Box::new(note)));
        self
    }

    fn add(mut self, name: &'static str, only_ready: bool, check: Check) -> Self {
        self.checks.push(Named {
            name,
            only_ready,
            check,
        });
        self
    }

    /// Runs all checks of `probe`. `query` may contain `verbose`, and `exclude=` a check. Without `reasons`
    /// the causes of failures are withheld: not every client that may probe may see them.
    pub(crate) fn run(&self, probe: Probe, query: &str, reasons: bool) -> ProbeResult {
        let verbose = query
            .split('&')
            .any(|pair| pair == "verbose" || pair.starts_with("verbose="));
        let excluded = |name| {
            query
                .split('&')
                .any(|pair| pair.strip_prefix("exclude=") == Some(name))
        };
        let mut ok = true;
        let mut text = String::new();
        for check in self.of(probe) {
            let name = check.name;
            let _ = if excluded(name) {
                writeln!(text, "[+]{name} excluded: ok")
            } else {
                match (check.check)() {
                    Ok(()) => writeln!(text, "[+]{name} ok"),
                    Err(why) => {
                        ok = false;
                        writeln!(text, "[-]{name} failed: {}", cause(&why, reasons))
                    }
                }
            };
        }
        if probe == Probe::Ready {
            self.write_notes(&mut text, reasons);
        }
        if ok && !verbose {
            return ProbeResult {
                ok,
                text: "ok".to_owned(),
            };
        }
        let verdict = if ok { "passed" } else { "failed" };
        let _ = writeln!(text, "{} check {verdict}", probe.name());
        ProbeResult { ok, text }
    }

    fn write_notes(&self, text: &mut String, reasons: bool) {
        for (name, note) in &self.notes {
            let _ = match note() {
                None => writeln!(text, "[+]{name} ok"),
                Some(what) => writeln!(text, "[!]{name}: {}", cause(&what, reasons)),
            };
        }
    }

    /// Runs one check; `None` if `probe` has no check of this name.
    pub(crate) fn run_one(&self, probe: Probe, name: &str, reasons: bool) -> Option<ProbeResult> {
        let Some(check) = self.of(probe).find(|check| check.name == name) else {
            return self.run_note(probe, name, reasons);
        };
        Some(match (check.check)() {
            Ok(()) => ProbeResult {
                ok: true,
                text: "ok".to_owned(),
            },
            Err(why) => ProbeResult {
                ok: false,
                text: format!("{name} failed: {}\n", cause(&why, reasons)),
            },
        })
    }

    fn run_note(&self, probe: Probe, name: &str, reasons: bool) -> Option<ProbeResult> {
        let mut notes = self.notes.iter().filter(|_| probe == Probe::Ready);
        let (_, note) = notes.find(|(found, _)| *found == name)?;
        let text = match note() {
            None => "ok".to_owned(),
            Some(what) => format!("{name}: {}\n", cause(&what, reasons)),
        };
        Some(ProbeResult { ok: true, text })
    }

    fn of(&self, probe: Probe) -> impl Iterator<Item = &Named> {
        self.checks
            .iter()
            .filter(move |check| probe == Probe::Ready || !check.only_ready)
    }
}

/// The cause, unless it is withheld.
fn cause(why: &str, reasons: bool) -> &str {
    if reasons { why } else { "reason withheld" }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.checks.iter().map(|check| check.name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> HealthChecks {
        HealthChecks::new()
            .both("listener", || Ok(()))
            .ready("shutdown", || Err("process is shutting down".to_owned()))
    }

    #[test]
    fn probes_answer_as_those_of_kubernetes() {
        let checks = checks();
        let live = checks.run(Probe::Live, "", true);
        assert_eq!((live.ok, &*live.text), (true, "ok"));
        assert_eq!(
            checks.run(Probe::Health, "verbose", true).text,
            "[+]ping ok\n[+]listener ok\nhealthz check passed\n"
        );
        let ready = checks.run(Probe::Ready, "", true);
        assert!(!ready.ok);
        assert_eq!(
            ready.text,
            "[+]ping ok\n[+]listener ok\n[-]shutdown failed: process is shutting down\n\
             readyz check failed\n"
        );
        let excluded = checks.run(Probe::Ready, "verbose&exclude=shutdown", true);
        assert!(excluded.ok);
        assert!(excluded.text.contains("[+]shutdown excluded: ok\n"));
    }

    #[test]
    fn informational_checks_fail_nothing() {
        let checks = HealthChecks::new()
            .note("store", || Some("gone".to_owned()))
            .note("source", || None);
        let ready = checks.run(Probe::Ready, "verbose", true);
        assert!(ready.ok);
        assert_eq!(
            ready.text,
            "[+]ping ok\n[!]store: gone\n[+]source ok\nreadyz check passed\n"
        );
        assert_eq!(checks.run(Probe::Ready, "", true).text, "ok");
        assert!(
            !checks
                .run(Probe::Live, "verbose", true)
                .text
                .contains("store")
        );
    }

    #[test]
    fn causes_of_failures_are_shown_to_operators_only() {
        let checks = checks().note("store", || Some("gone".to_owned()));
        assert_eq!(
            checks.run(Probe::Ready, "", false).text,
            "[+]ping ok\n[+]listener ok\n[-]shutdown failed: reason withheld\n\
             [!]store: reason withheld\nreadyz check failed\n"
        );
        let note = checks.run_one(Probe::Ready, "store", true).unwrap();
        assert_eq!((note.ok, note.text.as_str()), (true, "store: gone\n"));
        assert_eq!(checks.run_one(Probe::Live, "store", true), None);
        let one = checks.run_one(Probe::Ready, "shutdown", false).unwrap();
        assert_eq!(one.text, "shutdown failed: reason withheld\n");
    }

    #[test]
    fn a_single_check_has_a_path_of_its_own() {
        assert_eq!(Probe::of("/livez"), Some((Probe::Live, None)));
        assert_eq!(
            Probe::of("/readyz/ping"),
            Some((Probe::Ready, Some("ping")))
        );
        assert_eq!(Probe::of("/healthz/"), Some((Probe::Health, None)));
        assert_eq!(Probe::of("/livezz"), None);
        assert_eq!(Probe::of(""), None);
        let checks = checks();
        assert!(
            checks
                .run_one(Probe::Live, "ping", true)
                .is_some_and(|f| f.ok)
        );
        assert_eq!(checks.run_one(Probe::Live, "shutdown", true), None);
        assert!(
            checks
                .run_one(Probe::Ready, "shutdown", true)
                .is_some_and(|f| !f.ok)
        );
    }
}
