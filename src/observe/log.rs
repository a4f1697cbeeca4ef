//! Sets logging up, by the `tracing` facade, to standard error.
//!
//! Lines are written by a thread of their own, so that a reader of the log who falls behind holds up
//! no request; when too many wait, further ones are lost and counted. Nothing in an event can begin a
//! line of its own: nobody can forge one.

use std::{
    fmt,
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
};

use metrics::Counter;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{MakeWriter, format::FmtSpan},
    layer::SubscriberExt as _,
};

use super::{names::ACCESS_LOG, own::Own, recorder::is_wild};
use crate::config::{Log, LogFormat, LogLevel};

/// Lines that may wait to be written.
const MAX_WAITING: usize = 8192;

/// Why logging is not set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Somebody else has set it up.
    #[error("logging is set up already")]
    Taken,
    /// The system refuses a thread.
    #[error("cannot start the thread that writes the log")]
    Thread(#[source] io::Error),
}

/// Writes what is still waiting when it is dropped. To be kept to the end of the process.
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

/// Sets logging up for the whole process, by `settings`; lost lines are counted in `own`.
///
/// # Errors
///
/// [`LogError`]; nothing is changed then.
pub fn install(settings: &Log, own: &Own) -> Result<LogGuard, LogError> {
    let (lines, waiting) = sync_channel(MAX_WAITING);
    let subscriber = subscriber(
        settings,
        Lines {
            lines: lines.clone(),
            dropped: own.log_dropped(),
        },
    );
    let writer = std::thread::Builder::new()
        .name("fairgate-log".to_owned())
        .spawn(move || write_lines(&waiting, io::stderr()))
        .map_err(LogError::Thread)?;
    let guard = LogGuard {
        lines: Some(lines),
        writer: Some(writer),
    };
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Taken)?;
    Ok(guard)
}

/// A subscriber that writes what `settings` want, in the form they want.
pub fn subscriber<W>(settings: &Log, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false)
        .with_span_events(FmtSpan::NONE);
    let filter = filter(settings);
    match settings.format {
        LogFormat::Text => Box::new(Registry::default().with(lines.with_filter(filter))),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            let lines = lines.with_span_list(false);
            Box::new(Registry::default().with(lines.with_filter(filter)))
        }
    }
}

/// Libraries are asked for less than the gateway itself, unless everything is wanted.
fn filter(settings: &Log) -> Targets {
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let others = match level {
        LevelFilter::ERROR | LevelFilter::TRACE => level,
        _ => LevelFilter::WARN,
    };
    let access = if settings.access {
        LevelFilter::INFO
    } else {
        LevelFilter::OFF
    };
    Targets::new()
        .with_default(others)
        .with_target("fairgate", level)
        .with_target(ACCESS_LOG, access)
}

/// Hands lines to the thread that writes them; never waits.
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

/// A line in the making; sent when it is dropped.
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
        let line = Message::Line(in_one_line(&self.bytes));
        if let Err(TrySendError::Full(_)) = self.to.lines.try_send(line) {
            self.to.dropped.increment(1);
        }
    }
}

/// A line as it is written: whatever a value holds, it stays one line, and no terminal heeds it.
fn in_one_line(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches('\n');
    let mut line = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push(c),
            c if is_wild(c) => line.push('\u{fffd}'),
            c => line.push(c),
        }
    }
    line.push('\n');
    line.into_bytes()
}

/// Writes lines until the end is told; as many as wait with one flush.
fn write_lines(waiting: &Receiver<Message>, mut out: impl Write) {
    while let Ok(first) = waiting.recv() {
        let mut batch = Vec::new();
        let mut ended = false;
        for message in std::iter::once(first).chain(waiting.try_iter().take(256)) {
            match message {
                Message::Line(line) => batch.extend_from_slice(&line),
                Message::End => {
                    ended = true;
                    break;
                }
            }
        }
        // There is nowhere to tell of a failure.
        let _ = out.write_all(&batch).and_then(|()| out.flush());
        if ended {
            return;
        }
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        if let Some(lines) = self.lines.take() {
            let _ = lines.send(Message::End);
        }
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
