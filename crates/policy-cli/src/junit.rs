//! Results of tests as `JUnit` XML, which CI systems show.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use crate::results::{TestReport, TestResult};

/// Writes the results: one test suite, with a test case for each request.
pub(super) fn write(out: &mut dyn Write, report: &TestReport) -> io::Result<()> {
    let tests = report.results.len();
    let failures = report
        .results
        .iter()
        .filter(|result| !result.surprises.is_empty())
        .count();
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        out,
        r#"<testsuites tests="{tests}" failures="{failures}" errors="0">"#
    )?;
    writeln!(
        out,
        r#"  <testsuite name="fairgate policy test" tests="{tests}" failures="{failures}" errors="0" skipped="0">"#
    )?;
    for result in &report.results {
        write_case(out, result)?;
    }
    writeln!(out, "  </testsuite>")?;
    writeln!(out, "</testsuites>")
}

fn write_case(out: &mut dyn Write, result: &TestResult) -> io::Result<()> {
    let file = result.origin.split(", line ").next().unwrap_or_default();
    let (name, file) = (escaped(&result.name), escaped(file));
    write!(out, r#"    <testcase name="{name}" classname="{file}""#)?;
    if result.surprises.is_empty() {
        return writeln!(out, "/>");
    }
    let first = result
        .surprises
        .first()
        .map_or("", |surprise| surprise.lines().next().unwrap_or(""));
    let all = format!("{}\n{}", result.origin, result.surprises.join("\n"));
    writeln!(out, ">")?;
    writeln!(
        out,
        r#"      <failure message="{}" type="surprise">{}</failure>"#,
        escaped(first),
        escaped(&all)
    )?;
    writeln!(out, "    </testcase>")
}

/// The text, escaped for an attribute or an element. Characters that XML does not allow become U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_have_no_forbidden_characters() {
        let text = "a <b> & \"c\"\n\u{1b}[0m\u{0}é";
        let expected = "a &lt;b&gt; &amp; &quot;c&quot;&#10;\u{fffd}[0m\u{fffd}é";
        assert_eq!(escaped(text), expected);
    }
}
