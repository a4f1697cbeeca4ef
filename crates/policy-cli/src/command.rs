//! What a command of the command line is given, and how it ends.

use std::io::{Read, Write};

use clap::ValueEnum;

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// The streams a command uses.
pub struct CommandStreams<'a> {
    /// What is piped in.
    pub input: &'a mut dyn Read,
    /// Where results go.
    pub out: &'a mut dyn Write,
    /// Where errors and warnings go.
    pub err: &'a mut dyn Write,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// Nothing is wrong.
    Success,
    /// Something is wrong; it has been reported.
    Failure,
    /// The arguments or the files that were given cannot be used; it has been reported.
    Unusable,
}
