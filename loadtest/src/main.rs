//! The `fairgate-loadtest` command: load tests of API servers and of proxies in front of them.
//!
//! `README.md` beside this crate explains commands, scenarios and what is measured.

mod certificate;
mod cli;
mod events;
mod figures;
mod gateway;
mod idle;
mod left_out;
mod load;
mod local;
mod measure;
mod objects;
mod policy;
mod process;
mod report;
mod requirements;
mod scenario;
mod simulate;
mod transport;
mod upstream;
mod verdict;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
