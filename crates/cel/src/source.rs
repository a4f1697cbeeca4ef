//! Errors in expressions: their positions, and how they are printed with the line and a caret below it.

use std::fmt;

/// The maximum number of errors that are kept. Further errors are only counted.
const MAX_ISSUES: usize = 100;

/// The maximum length, in bytes, of a line that is printed with an error. Longer lines are left out.
const MAX_SNIPPET: usize = 16_384;

/// A position in an expression, in code points from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodePosition(Option<u32>);

impl CodePosition {
    /// The position of errors in the expression as a whole; printed as `-1:0`.
    pub const NONE: Self = Self(None);

    /// The position `offset` code points after the start.
    pub fn at(offset: u32) -> Self {
        Self(Some(offset))
    }
}

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelIssue {
    /// The position of the error.
    pub position: CodePosition,
    /// The message, without the position.
    pub message: String,
}

/// The errors in an expression, in the order of their positions.
///
/// Prints as the original prints them:
///
/// ```text
/// ERROR: <input>:1:5: undeclared reference to 'x' (in container '')
///  | 1 + x
///  | ....^
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelIssues {
    issues: Vec<CelIssue>,
    /// The number of errors, including those that are not kept.
    count: usize,
    source: String,
}

impl CelIssues {
    /// An empty list of errors in `source`.
    pub(crate) fn new(source: &str) -> Self {
        Self {
            issues: Vec::new(),
            count: 0,
            source: source.to_owned(),
        }
    }

    pub(crate) fn report(&mut self, position: CodePosition, message: impl Into<String>) {
        self.count += 1;
        if self.issues.len() < MAX_ISSUES {
            let message = message.into();
            self.issues.push(CelIssue { position, message });
        }
    }

    /// The errors that are kept: at most 100.
    pub fn issues(&self) -> &[CelIssue] {
        &self.issues
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn sort(&mut self) {
        self.issues.sort_by_key(|issue| issue.position);
    }
}

impl fmt::Display for CelIssues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<&str> = self.source.split('\n').collect();
        for (at, issue) in self.issues.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            print(f, issue, &lines)?;
        }
        if self.count > self.issues.len() {
            let more = self.count - self.issues.len();
            write!(f, "\n{more} more errors were truncated")?;
        }
        Ok(())
    }
}

impl std::error::Error for CelIssues {}

/// Line and column, from 0, of an offset in code points.
fn line_and_column(lines: &[&str], offset: u32) -> (usize, usize) {
    let mut left = offset as usize;
    for (number, line) in lines.iter().enumerate() {
        let length = line.chars().count();
        if left <= length || number + 1 == lines.len() {
            return (number, left);
        }
        left -= length + 1;
    }
    (0, left)
}

fn print(f: &mut fmt::Formatter<'_>, issue: &CelIssue, lines: &[&str]) -> fmt::Result {
    let Some(offset) = issue.position.0 else {
        return write!(f, "ERROR: <input>:-1:0: {}", issue.message);
    };
    let (line, column) = line_and_column(lines, offset);
    write!(
        f,
        "ERROR: <input>:{}:{}: {}",
        line + 1,
        column + 1,
        issue.message
    )?;
    let snippet = lines[line].replace('\t', " ");
    if snippet.len() > MAX_SNIPPET {
        return Ok(());
    }
    write!(f, "\n | {snippet}\n | ")?;
    let mut characters = snippet.chars();
    for character in characters.by_ref().take(column) {
        f.write_str(if character.is_ascii() {
            "."
        } else {
            "\u{ff0e}"
        })?;
    }
    let wide = characters.next().is_some_and(|next| !next.is_ascii());
    f.write_str(if wide { "\u{ff3e}" } else { "^" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(source: &str, offset: u32) -> String {
        let mut issues = CelIssues::new(source);
        issues.report(CodePosition::at(offset), "wrong");
        issues.to_string()
    }

    #[test]
    fn an_error_is_shown_with_its_line_and_a_caret() {
        let text = printed("1 + x", 4);
        assert_eq!(text, "ERROR: <input>:1:5: wrong\n | 1 + x\n | ....^");
        let text = printed("1 +\n\tx", 5);
        assert_eq!(text, "ERROR: <input>:2:2: wrong\n |  x\n | .^");
        let text = printed("'é' + é", 6);
        assert_eq!(
            text,
            "ERROR: <input>:1:7: wrong\n | 'é' + é\n | .\u{ff0e}....\u{ff3e}"
        );
    }

    #[test]
    fn an_error_in_the_whole_expression_has_no_line() {
        let mut issues = CelIssues::new("x");
        issues.report(CodePosition::NONE, "too long");
        assert_eq!(issues.to_string(), "ERROR: <input>:-1:0: too long");
    }

    #[test]
    fn a_hundred_errors_are_shown_and_the_others_counted() {
        let mut issues = CelIssues::new("x");
        for _ in 0..103 {
            issues.report(CodePosition::at(0), "wrong");
        }
        assert_eq!(issues.issues().len(), 100);
        assert!(
            issues
                .to_string()
                .ends_with("\n3 more errors were truncated")
        );
    }
}
