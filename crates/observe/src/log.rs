//! Logging by the `tracing` facade, to standard error.
//!
//! Lines are written by a thread of their own, so that a slow reader of the log delays no request; when too
//! many lines wait, further ones are dropped and counted. Values of an event cannot start a new line, so no
//! client can forge log lines.

use std::{
    fmt,
    io::{self, Write},
    sync::{
        OnceLock,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use metrics::Counter;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{MakeWriter, format::FmtSpan},
    layer::{Layered, SubscriberExt as _},
    reload,
};

use crate::{
    metrics::{catalogue::ACCESS_LOG, gateway_metrics::GatewayMetrics},
    sanitized::{is_control_like, is_plain},
};

/// The maximum number of lines that wait to be written.
const MAX_WAITING: usize = 8192;
/// How long the writer lets lines gather after the first one. Meanwhile a line costs its sender no system call, which would wake the
/// writer, and usually takes longer than all else about the line.
const GATHERING: Duration = Duration::from_millis(2);
/// How often, and how long each time, [`LogGuard`] waits for the last lines to be written.
const LAST_STEPS: u32 = 400;
const LAST_STEP: Duration = Duration::from_millis(5);

/// What is logged, and how; to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The lowest severity that is logged.
    pub level: LevelFilter,
    /// Whether a line is a JSON object; otherwise it is text for people.
    pub json: bool,
    /// Whether there is a line for every request.
    pub access: bool,
}

/// What is logged, which may change.
type Filter = reload::Layer<Targets, Registry>;
/// How it is written, which may change, too.
type Format = Box<dyn Layer<Layered<Filter, Registry>> + Send + Sync>;

/// Changes the log of a subscriber.
pub(crate) struct LogControl {
    filter: reload::Handle<Targets, Registry>,
    format: reload::Handle<Format, Layered<Filter, Registry>>,
    /// What writes lines, as JSON objects or as text.
    new_format: Box<dyn Fn(bool) -> Format + Send + Sync>,
}

impl LogControl {
    /// Applies other settings to the events that follow.
    pub(crate) fn apply(&self, settings: &LogSettings) {
        // Both fail only if the subscriber is gone.
        let _ = self.format.reload((self.new_format)(settings.json));
        let _ = self.filter.reload(filter(settings));
    }
}

/// That of the process.
static CONTROL: OnceLock<LogControl> = OnceLock::new();

/// Changes the log of the process, unless it has none.
pub fn reconfigure(settings: &LogSettings) {
    if let Some(control) = CONTROL.get() {
        control.apply(settings);
    }
}

/// Why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The process has a subscriber already.
    #[error("logging is set up already")]
    Taken,
    /// The operating system refuses a thread.
    #[error("cannot start the thread that writes the log")]
    Thread(#[source] io::Error),
}

/// Writes the waiting lines when it is dropped, for at most two seconds. To be kept until the process exits.
#[derive(Debug)]
#[must_use = "dropping it ends the log"]
pub struct LogGuard {
    lines: Option<SyncSender<Message>>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    End,
}

/// Sets up logging for the process; dropped lines are counted in `metrics`.
///
/// # Errors
///
/// [`LogError`]; nothing is changed then.
pub fn install(settings: &LogSettings, metrics: &GatewayMetrics) -> Result<LogGuard, LogError> {
    let (lines, waiting) = sync_channel(MAX_WAITING);
    let (subscriber, control) = subscriber(
        settings,
        Lines {
            lines: lines.clone(),
            dropped: metrics.log_dropped(),
        },
    );
    let writer = std::thread::Builder::new()
        .name("fairgate-log".to_owned())
        .spawn(move || write_lines(&waiting, GATHERING, io::stderr()))
        .map_err(LogError::Thread)?;
    let guard = LogGuard {
        lines: Some(lines),
        writer: Some(writer),
    };
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Taken)?;
    // Nobody else has set it: the subscriber was the first one.
    let _ = CONTROL.set(control);
    Ok(guard)
}

/// A subscriber with the level and format of `settings`, and what changes these.
pub(crate) fn subscriber<W>(
    settings: &LogSettings,
    writer: W,
) -> (Box<dyn Subscriber + Send + Sync>, LogControl)
where
    W: for<'w> MakeWriter<'w> + Clone + Send + Sync + 'static,
{
    let new_format = move |json: bool| -> Format {
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(writer.clone())
            .with_ansi(false)
            .with_span_events(FmtSpan::NONE);
        if json {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            Box::new(lines.with_span_list(false))
        } else {
            Box::new(lines)
        }
    };
    // The filter applies to the whole subscriber: an event that it disables costs one load at its callsite.
    let (layer, filter) = reload::Layer::new(filter(settings));
    let (lines, format) = reload::Layer::new(new_format(settings.json));
    let subscriber = Registry::default().with(layer).with(lines);
    let control = LogControl {
        filter,
        format,
        new_format: Box::new(new_format),
    };
    (Box::new(subscriber), control)
}

/// Libraries log less than the gateway itself, except at level `trace`.
fn filter(settings: &LogSettings) -> Targets {
    let level = settings.level;
    let others = match level {
        LevelFilter::ERROR | LevelFilter::TRACE => level,
        _ => LevelFilter::WARN,
    };
    let access = if settings.access {
        LevelFilter::INFO
    } else {
        LevelFilter::OFF
    };
    // Their warnings are also returned as errors, which the gateway logs once.
    let logged_anyway = match level {
        LevelFilter::TRACE => level,
        _ => LevelFilter::ERROR,
    };
    Targets::new()
        .with_default(others)
        .with_target("h2", logged_anyway)
        .with_target("kube_client", logged_anyway)
        .with_target("kube_runtime", logged_anyway)
        .with_target("fairgate", level)
        .with_target(ACCESS_LOG, access)
}

/// Sends lines to the thread that writes them; never blocks.
#[derive(Clone)]
struct Lines {
    lines: SyncSender<Message>,
    dropped: Counter,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Line<'w>;

    fn make_writer(&'w self) -> Line<'w> {
        Line {
            bytes: Vec::with_capacity(512),
            to: self,
        }
    }
}

/// A line being written; sent when it is dropped.
struct Line<'w> {
    bytes: Vec<u8>,
    to: &'w Lines,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let line = Message::Line(in_one_line(std::mem::take(&mut self.bytes)));
        if let Err(TrySendError::Full(_)) = self.to.lines.try_send(line) {
            self.to.dropped.increment(1);
        }
    }
}

/// Escapes a line: whatever its values contain, it stays one line without terminal control sequences.
fn in_one_line(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().rposition(|&byte| byte != b'\n');
    bytes.truncate(end.map_or(0, |last| last + 1));
    if is_plain(&bytes) {
        bytes.push(b'\n');
        return bytes;
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut line = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push(c),
            c if is_control_like(c) => line.push('\u{fffd}'),
            c => line.push(c),
        }
    }
    line.push('\n');
    line.into_bytes()
}

/// Writes lines until [`Message::End`], all that wait with one flush.
fn write_lines(waiting: &Receiver<Message>, gathering: Duration, mut out: impl Write) {
    while let Ok(first) = waiting.recv() {
        if matches!(first, Message::Line(_)) {
            std::thread::sleep(gathering);
        }
        let mut batch = Vec::new();
        let mut ended = false;
        for message in std::iter::once(first).chain(waiting.try_iter().take(MAX_WAITING)) {
            match message {
                Message::Line(line) => batch.extend_from_slice(&line),
                Message::End => {
                    ended = true;
                    break;
                }
            }
        }
        // There is nowhere to log a failure.
        let _ = out.write_all(&batch).and_then(|()| out.flush());
        if ended {
            return;
        }
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let (Some(lines), Some(writer)) = (self.lines.take(), self.writer.take()) else {
            return;
        };
        // The reader of the log may have stopped reading; the process exits all the same.
        let mut sent = false;
        for _ in 0..LAST_STEPS {
            sent = sent || lines.try_send(Message::End).is_ok();
            if writer.is_finished() {
                break;
            }
            std::thread::sleep(LAST_STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::Exposition;
    use fairgate_core::time::Time;

    #[test]
    fn lines_that_cannot_wait_are_lost_and_counted() {
        let metrics = GatewayMetrics::new();
        let (lines, waiting) = sync_channel(2);
        let to = Lines {
            lines: lines.clone(),
            dropped: metrics.log_dropped(),
        };
        for line in ["one\n", "two\nlines\n", "three\n"] {
            to.make_writer().write_all(line.as_bytes()).unwrap();
        }
        drop((to, lines));
        let mut written = Vec::new();
        write_lines(&waiting, Duration::ZERO, &mut written);
        assert_eq!(written, b"one\ntwo\\nlines\n");
        let dropped = "\nfairgate_log_lines_dropped_total 1\n";
        let mut text = Exposition::default();
        metrics.write(&mut text, Time::ZERO);
        assert!(text.finish().contains(dropped));
    }

    #[test]
    fn the_log_is_flushed_before_the_exit() {
        let (lines, waiting) = sync_channel(9);
        lines.send(Message::Line(b"last\n".to_vec())).unwrap();
        lines.send(Message::End).unwrap();
        lines.send(Message::Line(b"never\n".to_vec())).unwrap();
        let mut written = Vec::new();
        write_lines(&waiting, Duration::ZERO, &mut written);
        assert_eq!(written, b"last\n");
    }

    #[test]
    fn whatever_a_line_contains_it_is_one_line_of_text() {
        for (bytes, expected) in [
            (&b"a b~\n"[..], "a b~\n"),
            (b"a b~", "a b~\n"),
            (b"\n", "\n"),
            (b"", "\n"),
            (b"a\nb\n\n", "a\\nb\n"),
            (b"a\tb", "a\tb\n"),
            (b"a\x1b[1mb\x7f", "a\u{fffd}[1mb\u{fffd}\n"),
            (b"\xc3\xa9\xff", "\u{e9}\u{fffd}\n"),
            ("\u{202e}x".as_bytes(), "\u{fffd}x\n"),
        ] {
            let line = in_one_line(bytes.to_vec());
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }
}
