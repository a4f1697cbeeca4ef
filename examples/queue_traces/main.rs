//! Random traces of events, and how a queue set with the semantics `Compatible` handles them.
//!
//! `tests/cluster/queueset` plays the same events through kube-apiserver's own queue set and compares
//! what is written here after each event: outcome, order of dispatch, and the whole visible state.
//!
//! ```console
//! $ queue_traces generate SEED FIRST COUNT    # traces FIRST to FIRST + COUNT - 1 of SEED, a line of JSON each
//! $ queue_traces play                         # plays traces from stdin again; of their events only `at` and `event` are read
//! ```
//!
//! Not here: the semantics `Improved`, and the comparison itself.

mod generator;
mod player;
mod trace;

use std::{
    io::{self, BufRead, BufWriter, Write},
    process::ExitCode,
};

use generator::Generator;
use player::Player;
use trace::Trace;

/// Plays the events of a trace again.
fn again(mut trace: Trace) -> Trace {
    let mut player = Player::new(&trace);
    for mut step in std::mem::take(&mut trace.steps) {
        let Some(outcome) = player.play(step.at, step.event) else {
            break;
        };
        step.outcome = Some(outcome);
        trace.steps.push(step);
    }
    trace
}

fn write(out: &mut impl Write, trace: &Trace) -> io::Result<()> {
    serde_json::to_writer(&mut *out, trace)?;
    out.write_all(b"\n")
}

fn run(arguments: &[String]) -> io::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    match arguments {
        [command, seed, first, count] if command == "generate" => {
            let number = |text: &String| text.parse::<u64>().map_err(io::Error::other);
            let (seed, first, count) = (number(seed)?, number(first)?, number(count)?);
            for trace in first..first.saturating_add(count) {
                write(&mut out, &Generator::trace(seed, trace))?;
            }
        }
        [command] if command == "play" => {
            for line in io::stdin().lock().lines() {
                write(&mut out, &again(serde_json::from_str(&line?)?))?;
                out.flush()?;
            }
        }
        _ => return Ok(false),
    }
    out.flush()?;
    Ok(true)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("usage: queue_traces generate SEED FIRST COUNT | queue_traces play");
            ExitCode::from(2)
        }
        // The reader of the traces has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queue_traces: {error}");
            ExitCode::FAILURE
        }
    }
}
