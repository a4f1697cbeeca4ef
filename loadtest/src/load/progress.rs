//! Live progress on a terminal: one line that is written again and again.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use super::recorder::LoadRecorder;
use crate::figures::real;

/// The greatest width of a line. Longer ones are cut, also to the width of the terminal, because a line that wraps cannot be
/// overwritten.
const WIDTH: usize = 118;

/// The line. Without a terminal nothing is written but the headings.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    terminal: bool,
    what: String,
}

impl ProgressLine {
    /// How often it is written.
    pub(crate) const PERIOD: Duration = Duration::from_millis(500);

    /// On standard error.
    pub(crate) fn new() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
            what: String::new(),
        }
    }

    /// Says what is measured from now on.
    pub(crate) fn heading(&mut self, what: impl Into<String>) {
        self.what = what.into();
        if !self.terminal {
            // A failure to show progress is ignored.
            let _ = writeln!(io::stderr(), "measuring {}", self.what);
        }
    }

    /// Shows the progress of a slice.
    pub(crate) fn show<'r>(
        &self,
        elapsed: Duration,
        whole: Duration,
        measured: Duration,
        recorders: impl Iterator<Item = &'r LoadRecorder>,
    ) {
        if !self.terminal {
            return;
        }
        let line = self.line(elapsed, whole, measured, recorders);
        let line: String = line.chars().take(columns()).collect();
        let _ = write!(io::stderr(), "\r\x1b[2K{line}");
        let _ = io::stderr().flush();
    }

    /// What is measured, how long already, and for each client successes a second, the p99 so far, and failures.
    fn line<'r>(
        &self,
        elapsed: Duration,
        whole: Duration,
        measured: Duration,
        recorders: impl Iterator<Item = &'r LoadRecorder>,
    ) -> String {
        let (elapsed, whole) = (elapsed.as_secs_f64(), whole.as_secs_f64());
        let mut line = format!("{} {elapsed:.0}/{whole:.0} s", self.what);
        if measured.is_zero() {
            line += ", warm-up";
            return line.chars().take(WIDTH).collect();
        }
        for recorder in recorders {
            let (ok, p99, refused, errors) = recorder.progress();
            let rate = real(ok) / measured.as_secs_f64().max(0.5);
            let p99 = match ok {
                0 => "-".to_owned(),
                _ => format!("{:.0} ms", p99 * 1000.0),
            };
            let _ = write!(line, " | {} {rate:.0}/s p99 {p99}", recorder.name());
            if refused + errors > 0 {
                let _ = write!(line, " 429 {refused} err {errors}");
            }
        }
        line.chars().take(WIDTH).collect()
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[2K");
            let _ = io::stderr().flush();
        }
    }
}

/// The columns of the terminal but the last, after which it may begin a new line; the greatest width if it does not say.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    columns.checked_sub(1).unwrap_or(WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recorder::RequestOutcome;

    #[test]
    fn the_line_names_the_part_of_the_run_and_each_client() {
        let (one, other) = (Duration::from_secs(2), Duration::from_secs(10));
        let recorder = LoadRecorder::new("mouse", 1, other);
        for _ in 0..100 {
            let outcome = RequestOutcome::Ok { work: 1.0 };
            recorder.record(0, one, Duration::from_millis(20), outcome);
        }
        recorder.record(0, one, one, RequestOutcome::Refused);
        let progress = ProgressLine {
            terminal: true,
            what: "fairgate, round 1".to_owned(),
        };
        let line = |recorders: &[LoadRecorder]| progress.line(one, other, one, recorders.iter());
        assert_eq!(
            line(std::slice::from_ref(&recorder)),
            "fairgate, round 1 2/10 s | mouse 50/s p99 20 ms 429 1 err 0"
        );
        let silent = [LoadRecorder::new("cat", 1, other)];
        assert_eq!(line(&silent), "fairgate, round 1 2/10 s | cat 0/s p99 -");
        assert_eq!(
            progress.line(one, other, Duration::ZERO, silent.iter()),
            "fairgate, round 1 2/10 s, warm-up"
        );
        let many: Vec<_> = (0..20)
            .map(|_| LoadRecorder::new("mouse", 1, other))
            .collect();
        assert_eq!(line(&many).chars().count(), WIDTH);
    }
}
