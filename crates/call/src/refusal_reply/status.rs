//! The `Status` object with which a Kubernetes API reports a failure.
//!
//! It is encoded by hand, because tests of clients compare bytes: the field order is the API server's, on one
//! line, with a final newline, and `<`, `>`, `&` escaped as its encoder does.

use std::fmt::Write as _;

/// The reason whose `Status` always has details, which are empty for a path.
const FORBIDDEN: &str = "Forbidden";

/// A `Status` of a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status<'a> {
    /// The `message`: a text for people.
    pub(crate) message: &'a str,
    /// The `reason`: one word, for programs.
    pub(crate) reason: &'a str,
    /// Seconds after which to retry; 0 for none.
    pub(crate) retry_after: u32,
    /// The HTTP status.
    pub(crate) code: u16,
}

impl Status<'_> {
    /// The object as JSON.
    pub(crate) fn to_json(self) -> String {
        let mut out = String::with_capacity(192 + self.message.len());
        out.push_str(r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure""#);
        if !self.message.is_empty() {
            out.push_str(r#","message":"#);
            push_string(&mut out, self.message);
        }
        if !self.reason.is_empty() {
            out.push_str(r#","reason":"#);
            push_string(&mut out, self.reason);
        }
        if self.retry_after > 0 {
            let _ = write!(
                out,
                r#","details":{{"retryAfterSeconds":{}}}"#,
                self.retry_after
            );
        } else if self.reason == FORBIDDEN {
            out.push_str(r#","details":{}"#);
        }
        let _ = writeln!(out, r#","code":{}}}"#, self.code);
        out
    }
}

/// Appends `text` as a JSON string, escaped as Go's encoder does.
fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_the_order_of_the_api_server() {
        let status = Status {
            message: "a \"b\" <c>\n",
            reason: "TooManyRequests",
            retry_after: 3,
            code: 429,
        };
        assert_eq!(
            status.to_json(),
            concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"a \"b\" \u003cc\u003e\n","reason":"TooManyRequests","#,
                r#""details":{"retryAfterSeconds":3},"code":429}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_denial_has_details() {
        let status = Status {
            message: "no",
            reason: "Forbidden",
            retry_after: 0,
            code: 403,
        };
        let end = "\"reason\":\"Forbidden\",\"details\":{},\"code\":403}\n";
        assert!(status.to_json().ends_with(end));
    }

    #[test]
    fn empty_fields_are_left_out() {
        let status = Status {
            message: "",
            reason: "",
            retry_after: 0,
            code: 502,
        };
        assert!(
            status
                .to_json()
                .ends_with("\"status\":\"Failure\",\"code\":502}\n")
        );
        assert!(serde_json::from_str::<serde_json::Value>(&status.to_json()).is_ok());
    }
}
