//! The `fairgate` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    fairgate::cli::main()
}
