//! What policies found about requests: counted, and written to the audit log by a thread of its own.
//!
//! Records are handed over by a bounded queue. When it is full, further ones are dropped and counted: a slow disk delays
//! no request.

use std::{
    fmt,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;

use fairgate_admission::{AdmissionRecord, AdmissionRecorder, audit::AuditEntry};
use fairgate_base::clock::Clock;
use fairgate_config::AdmissionAuditConfig;
use fairgate_observe::{AdmissionMetrics, GatewayMetrics, RotatedFile, catalogue};

/// The most records that wait.
const MAX_WAITING: usize = 4096;
/// The most records that are written at once.
const MAX_BATCH: usize = 256;
/// How often, and how long each time, [`AdmissionLog`] waits for the last records to be written.
const LAST_STEPS: u32 = 400;
const LAST_STEP: Duration = Duration::from_millis(5);

/// Why the audit log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionLogError {
    /// The file cannot be opened.
    #[error(
        "the audit log of admission policies cannot be opened: {path}; check admission.audit.file", path = path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The operating system refuses a thread.
    #[error("cannot start the thread that writes the audit log of admission policies")]
    Thread(#[source] io::Error),
}

#[derive(Debug)]
enum LogMessage {
    Record(Box<AdmissionRecord>, SystemTime),
    End,
}

/// Takes records on the data cores.
struct QueuedRecorder {
    queue: SyncSender<LogMessage>,
    clock: Clock,
    dropped: Arc<AtomicU64>,
}

impl fmt::Debug for QueuedRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedRecorder").finish_non_exhaustive()
    }
}

impl AdmissionRecorder for QueuedRecorder {
    fn record(&self, record: AdmissionRecord) {
        let message = LogMessage::Record(Box::new(record), self.clock.wall());
        if self.queue.try_send(message).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread that counts and writes records. When this is dropped, it writes those that wait, for at most two seconds.
#[derive(Debug)]
#[must_use = "dropping it ends the audit log"]
pub struct AdmissionLog {
    recorder: Arc<QueuedRecorder>,
    writer: Option<JoinHandle<()>>,
}

impl AdmissionLog {
    /// Opens the audit log, if one is configured, and starts the thread.
    ///
    /// # Errors
    ///
    /// [`AdmissionLogError`].
    pub fn start(
        settings: &AdmissionAuditConfig,
        clock: &Clock,
        metrics: &Arc<GatewayMetrics>,
    ) -> Result<Self, AdmissionLogError> {
        let file = match &settings.file {
            None => LogFile::None,
            Some(path) if path == Path::new("-") => LogFile::Stdout,
            Some(path) => {
                let opened = RotatedFile::open(path.clone(), settings.max_size, settings.max_files);
                LogFile::File(opened.map_err(|source| AdmissionLogError::File {
                    path: path.clone(),
                    source,
                })?)
            }
        };
        let (queue, waiting) = sync_channel(MAX_WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        metrics.observe_counter(&catalogue::ADMISSION_AUDIT_DROPPED, move || {
            counted.load(Ordering::Relaxed)
        });
        let mut writer = LogWriter {
            file,
            metrics: AdmissionMetrics::new(metrics),
            dropped: Arc::clone(&dropped),
            is_failing: false,
        };
        let thread = thread::Builder::new()
            .name("fairgate-audit".to_owned())
            .spawn(move || writer.run(&waiting))
            .map_err(AdmissionLogError::Thread)?;
        let recorder = QueuedRecorder {
            queue,
            clock: clock.clone(),
            dropped,
        };
        Ok(Self {
            recorder: Arc::new(recorder),
            writer: Some(thread),
        })
    }

    /// Who takes the records.
    pub fn recorder(&self) -> Arc<dyn AdmissionRecorder> {
        Arc::clone(&self.recorder) as Arc<dyn AdmissionRecorder>
    }
}

impl Drop for AdmissionLog {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        let mut is_told = false;
        for _ in 0..LAST_STEPS {
            is_told = is_told || self.recorder.queue.try_send(LogMessage::End).is_ok();
            if writer.is_finished() {
                // A panic of the thread has been reported by the panic hook.
                let _ = writer.join();
                return;
            }
            thread::sleep(LAST_STEP);
        }
    }
}

enum LogFile {
    /// Records are only counted.
    None,
    Stdout,
    File(RotatedFile),
}

impl LogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines).and_then(|()| out.flush())
            }
            Self::File(file) => file.write(lines),
        }
    }
}

struct LogWriter {
    file: LogFile,
    metrics: AdmissionMetrics,
    dropped: Arc<AtomicU64>,
    /// Whether the last write failed, which has been logged.
    is_failing: bool,
}

impl LogWriter {
    fn run(&mut self, waiting: &Receiver<LogMessage>) {
        while let Ok(first) = waiting.recv() {
            let mut lines = Vec::new();
            let mut count = 0;
            let mut is_last = false;
            for message in std::iter::once(first).chain(waiting.try_iter().take(MAX_BATCH)) {
                let LogMessage::Record(record, time) = message else {
                    is_last = true;
                    break;
                };
                self.metrics.count(&record);
                if !matches!(self.file, LogFile::None)
                    && let Some(entry) = AuditEntry::of(*record, shown(time))
                {
                    lines.extend_from_slice(&entry.line());
                    count += 1;
                }
            }
            if count > 0 {
                self.write(&lines, count);
            }
            if is_last {
                return;
            }
        }
    }

    fn write(&mut self, lines: &[u8], count: u64) {
        let written = self.file.write(lines);
        if let Err(error) = &written {
            self.dropped.fetch_add(count, Ordering::Relaxed);
            if !self.is_failing {
                tracing::error!(
                    %error,
                    "the audit log of admission policies cannot be written; its lines are dropped until it can"
                );
            }
        } else if self.is_failing {
            tracing::info!("the audit log of admission policies can be written again");
        }
        self.is_failing = written.is_err();
    }
}

/// A time as RFC 3339 in milliseconds.
fn shown(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}
