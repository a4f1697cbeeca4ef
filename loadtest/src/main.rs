//! The `fairgate-loadtest` command: load tests of API servers and of proxies in front of them.
#![doc = include_str!("../README.md")]
#![allow(dead_code, reason = "scenarios say more than virtual time uses")]

mod cli;
mod figures;
mod policy;
mod report;
mod scenario;
mod simulate;
mod verdict;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
