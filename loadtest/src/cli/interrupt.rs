//! What a signal does to a measurement: it ends, with everything that was started for it.

use std::io;

use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

use super::Failure;

/// Runs `measuring` until it ends, or until SIGINT or SIGTERM. Then it is dropped: processes are killed, and temporary files
/// removed.
///
/// # Errors
///
/// Those of `measuring`, and the signal, with the exit code that shells give it.
pub(super) fn until_signal<T, E: Into<Failure>>(
    runtime: &Runtime,
    measuring: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    runtime.block_on(async {
        let [mut interrupt, mut terminate] = signals().map_err(|error| Failure {
            code: 3,
            message: format!("cannot wait for signals: {error}"),
        })?;
        tokio::select! {
            measured = measuring => measured.map_err(Into::into),
            _ = interrupt.recv() => Err(ended_by(SignalKind::interrupt())),
            _ = terminate.recv() => Err(ended_by(SignalKind::terminate())),
        }
    })
}

fn signals() -> io::Result<[tokio::signal::unix::Signal; 2]> {
    Ok([
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ])
}

fn ended_by(signal: SignalKind) -> Failure {
    let number = u8::try_from(signal.as_raw_value()).unwrap_or(0);
    Failure {
        code: 128 + number,
        message: "interrupted; nothing is reported".to_owned(),
    }
}
