//! What a command of the command line is given, and how it ends.

use std::io::{Read, Write};

use clap::{ValueEnum, builder::UnknownArgumentValueParser};

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// What people write in place of `--as` and `--as-group`: refused with a hint. What clap guesses from the letters means something else
/// (`--server`), and in kubectl `--user` is an entry of the kubeconfig.
#[derive(Debug, clap::Args)]
pub struct MisnamedArgs {
    #[arg(long = "user", hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--as"))]
    _user: Option<String>,
    #[arg(long = "group", hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--as-group"))]
    _group: Option<String>,
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[arg(long = "as")]
        user: Option<String>,
        #[arg(long = "as-group")]
        groups: Vec<String>,
        #[arg(long)]
        server: Option<String>,
        #[command(flatten)]
        _misnamed: MisnamedArgs,
    }

    #[test]
    fn the_right_names_are_taken() {
        let rest = ["--as", "a", "--as-group", "b", "--server", "c"];
        let command = Command::try_parse_from(["command"].iter().chain(&rest)).unwrap();
        assert_eq!(command.user.as_deref(), Some("a"));
        assert_eq!(command.groups, ["b"]);
        assert_eq!(command.server.as_deref(), Some("c"));
    }

    #[test]
    fn who_writes_user_or_group_is_told_of_as_and_as_group() {
        for (wrong, right) in [("--user", "--as"), ("--group", "--as-group")] {
            let error = Command::try_parse_from(["command", wrong, "a"]).unwrap_err();
            let text = error.to_string();
            let hint = format!("a similar argument exists: '{right}'");
            assert!(text.contains(&hint) && error.exit_code() == 2, "{text}");
        }
    }
}
