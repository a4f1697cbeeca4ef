//! Files and functions stay short enough to be read at once.
//!
//! Functions are found by their text: `fn`, a name, and the braces of the body. Strings, characters and comments
//! are blanked first, so braces in them do not count.

use std::path::{Path, PathBuf};

use super::{files, nothing_is, read};

/// The most lines of a file.
const FILE_LINES: usize = 600;
/// The most lines of a function, its signature included.
const FUNCTION_LINES: usize = 70;
/// Functions that may be longer, each with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// All Rust files except generated ones.
fn rust_files() -> Vec<PathBuf> {
    let directories = [
        "src", "crates", "loadtest", "tests", "benches", "examples", "fuzz",
    ];
    let all = directories
        .iter()
        .flat_map(|directory| files(directory, "rs"));
    all.filter(|path| {
        !path
            .iter()
            .any(|part| part == "generated" || part == ".cache")
    })
    .collect()
}

/// The code with the contents of strings, characters and comments left out. Lines stay.
fn blanked(code: &str) -> String {
    let mut rest = code;
    let mut out = String::with_capacity(code.len());
    while let Some(first) = rest.chars().next() {
        let follows_word = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string_length(rest),
            'r' if !follows_word => raw_string_length(rest),
            '\'' => character_length(rest),
            _ => 0,
        };
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let lines = rest[..length].matches('\n').count();
            out.extend(std::iter::repeat_n('\n', lines));
            rest = &rest[length..];
        }
    }
    out
}

/// The length of the string at the beginning of `code`.
fn string_length(code: &str) -> usize {
    let mut escaped = true; // The opening quote.
    for (at, c) in code.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The length of the raw string at the beginning of `code`; 0 if there is none.
fn raw_string_length(code: &str) -> usize {
    let hashes = code[1..].chars().take_while(|c| *c == '#').count();
    let begin = hashes + 2;
    if !code[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let length = code[begin..].find(&end);
    length.map_or(code.len(), |length| begin + length + end.len())
}

/// The length of the character literal at the beginning of `code`; 0 for a lifetime.
fn character_length(code: &str) -> usize {
    let mut chars = code.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let rest = &code[at + escaped.len_utf8()..];
            at + escaped.len_utf8() + rest.find('\'').map_or(0, |quote| quote + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// The functions with a body: name, first line and number of lines.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let code = blanked(code);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_keyword = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name: String = code[at + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if !is_keyword || name.is_empty() {
            continue;
        }
        if let Some(length) = function_length(&code[at..]) {
            let line = code[..at].matches('\n').count() + 1;
            let lines = code[at..at + length].matches('\n').count() + 1;
            found.push((name, line, lines));
        }
    }
    found
}

/// The length of the function at the beginning of `code`, to the brace that ends its body; `None` without a body.
fn function_length(code: &str) -> Option<usize> {
    let (mut brackets, mut braces) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[test]
fn functions_are_found_with_their_lines() {
    let code = r##"
// fn comment() {
trait Shape { fn area(&self) -> [u8; 2]; }
fn one(a: &'static str) -> char {
    let text = "} \" {";
    let raw = r#"fn no() { " "#;
    '}'
}
fn two<'a>(escape: fn(&'a str)) { let quote = '\''; let unicode = '\u{7d}'; }
"##;
    let found = functions(code);
    let expected = [("one".to_owned(), 4, 5), ("two".to_owned(), 9, 1)];
    assert_eq!(found, expected);
}

#[test]
fn no_file_has_more_than_600_lines() {
    let mut wrong = Vec::new();
    for path in rust_files() {
        let lines = read(&path).lines().count();
        if lines > FILE_LINES {
            wrong.push(format!("{}: {lines} lines; split it", path.display()));
        }
    }
    nothing_is(&wrong);
}

#[test]
fn no_function_has_more_than_70_lines() {
    let mut wrong = Vec::new();
    let mut exceptions = LONG_FUNCTIONS.to_vec();
    for path in rust_files() {
        for (name, line, lines) in functions(&read(&path)) {
            if lines <= FUNCTION_LINES {
                continue;
            }
            let place = format!("{}::{name}", path.display());
            if let Some(at) = exceptions.iter().position(|(long, _)| *long == place) {
                exceptions.remove(at);
            } else {
                wrong.push(format!("{place}, line {line}: {lines} lines; split it"));
            }
        }
    }
    let unused = exceptions.iter();
    wrong.extend(unused.map(|(place, _)| format!("{place}: is not long; remove the exception")));
    nothing_is(&wrong);
}

#[test]
fn the_listed_directories_exist() {
    let files = rust_files();
    for directory in [
        "src", "crates", "loadtest", "tests", "benches", "examples", "fuzz",
    ] {
        assert!(
            files
                .iter()
                .any(|path| path.starts_with(Path::new(directory)))
        );
    }
}
