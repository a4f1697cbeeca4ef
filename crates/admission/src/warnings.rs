//! `Warning` headers.
//!
//! Source: Kubernetes `apiserver/pkg/endpoints/filters/warning.go` and `apimachinery/pkg/util/net`.

use std::{collections::HashSet, fmt::Write as _};

/// The maximum number of characters of all warnings of a response. If they have more, each warning is cut.
const MAX_TOTAL: usize = 4096;

/// The number of characters to which a warning is then cut.
const MAX_CUT: usize = 256;

/// The values of the `Warning` headers for these texts, in order.
///
/// Each text counts once. If all together have more than 4096 characters, each is cut to 256 and those after the
/// first 4096 are left out. A text with a control character makes no header.
pub fn warning_headers<'t>(texts: impl IntoIterator<Item = &'t str>) -> Vec<String> {
    let mut recorder = WarningRecorder::default();
    for text in texts {
        recorder.add(text);
    }
    recorder.headers
}

#[derive(Default)]
struct WarningRecorder<'t> {
    /// The texts in [`recorded`](Self::recorded), of which any number may make no header.
    seen: HashSet<&'t str>,
    recorded: Vec<&'t str>,
    headers: Vec<String>,
    /// Characters of the headers' texts.
    written: usize,
    is_cutting: bool,
}

impl<'t> WarningRecorder<'t> {
    fn add(&mut self, text: &'t str) {
        let is_full = self.is_cutting && self.written >= MAX_TOTAL;
        if text.is_empty() || is_full || !self.seen.insert(text) {
            return;
        }
        self.recorded.push(text);
        let shown = if self.is_cutting { cut(text) } else { text };
        let Some(value) = header(shown) else {
            return;
        };
        let length = shown.chars().count();
        if self.is_cutting || self.written + length <= MAX_TOTAL {
            self.written += length;
            self.headers.push(value);
            return;
        }
        self.is_cutting = true;
        let texts = self.recorded.iter().map(|text| cut(text));
        let headers: Vec<_> = texts
            .filter_map(|text| Some((text.chars().count(), header(text)?)))
            .collect();
        self.written = headers.iter().map(|(length, _)| length).sum();
        self.headers = headers.into_iter().map(|(_, value)| value).collect();
    }
}

/// The first 256 characters.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_CUT);
    end.map_or(text, |(at, _)| &text[..at])
}

/// The value of a header; none for a text that cannot be in one.
fn header(text: &str) -> Option<String> {
    if text.chars().any(char::is_control) {
        return None;
    }
    let mut value = String::from("299 - \"");
    for c in text.chars() {
        let escape = if matches!(c, '"' | '\\') { "\\" } else { "" };
        write!(value, "{escape}{c}").ok()?;
    }
    value.push('"');
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_quoted_and_counts_once() {
        let headers = warning_headers(["a \"b\" \\", "a \"b\" \\", "", "two\nlines"]);
        assert_eq!(headers, [r#"299 - "a \"b\" \\""#]);
    }

    /// Comparing each with each would take longer than anybody waits for a test.
    #[test]
    fn many_texts_that_make_no_header_are_compared_in_linear_time() {
        let texts: Vec<_> = (0..500_000).map(|number| format!("{number}\t")).collect();
        assert!(warning_headers(texts.iter().map(String::as_str)).is_empty());
    }

    #[test]
    fn long_texts_are_cut_once_they_are_too_much_together() {
        let texts: Vec<_> = (10..40)
            .map(|number| format!("{number}{}", "é".repeat(400)))
            .collect();
        let few = warning_headers(texts.iter().take(10).map(String::as_str));
        assert!(few.iter().all(|value| value.chars().count() == 402 + 8));
        let many = warning_headers(texts.iter().map(String::as_str));
        assert_eq!(many.len(), MAX_TOTAL / MAX_CUT);
        assert!(
            many.iter()
                .all(|value| value.chars().count() == MAX_CUT + 8)
        );
    }
}
