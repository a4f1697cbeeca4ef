//! The warnings of policies and those of the upstream, in one response.

use fairgate_admission::warning_headers;
use http::{HeaderMap, HeaderValue, header::WARNING};

/// Adds warnings of policies to the headers of a response, after those that it has: kube-apiserver warns of unknown and
/// deprecated fields before it asks policies. Its limits apply to all of them together.
pub(crate) fn merge(headers: &mut HeaderMap, own: &[String]) {
    if own.is_empty() {
        return;
    }
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for value in headers.get_all(WARNING) {
        match text_of(value) {
            Some(text) => texts.push(text),
            None => others.push(value.clone()),
        }
    }
    headers.remove(WARNING);
    texts.extend_from_slice(own);
    for value in warning_headers(texts.iter().map(String::as_str)) {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.append(WARNING, value);
        }
    }
    for value in others {
        headers.append(WARNING, value);
    }
}

/// Adds warnings about the body of a request to the headers of its response, before those that it has.
pub(crate) fn put_first(headers: &mut HeaderMap, first: &[String]) {
    if first.is_empty() {
        return;
    }
    let others: Vec<HeaderValue> = headers.get_all(WARNING).iter().cloned().collect();
    headers.remove(WARNING);
    let mut texts = first.to_vec();
    for value in &others {
        texts.extend(text_of(value));
    }
    merge(headers, &texts);
    for value in others {
        if text_of(&value).is_none() {
            headers.append(WARNING, value);
        }
    }
}

/// The text of a warning as kube-apiserver writes it: `299 - "text"`.
fn text_of(value: &HeaderValue) -> Option<String> {
    let value = std::str::from_utf8(value.as_bytes()).ok()?;
    let quoted = value.strip_prefix("299 - \"")?.strip_suffix('"')?;
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(chars.next()?),
            '"' => return None,
            c => text.push(c),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(own: &[&str], upstream: &[&'static str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for value in upstream {
            headers.append(WARNING, HeaderValue::from_static(value));
        }
        let own: Vec<String> = own.iter().map(|text| (*text).to_owned()).collect();
        merge(&mut headers, &own);
        let all = headers.get_all(WARNING).iter();
        all.map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn own_warnings_come_last_and_each_text_once() {
        assert_eq!(
            merged(
                &["a \"b\"", "c"],
                &[r#"299 - "d""#, r#"299 - "c""#, "199 x \"y\""]
            ),
            [
                r#"299 - "d""#,
                r#"299 - "c""#,
                r#"299 - "a \"b\"""#,
                "199 x \"y\""
            ]
        );
    }

    #[test]
    fn the_limits_count_all_warnings_together() {
        let long = "x".repeat(4000);
        let all = merged(
            &[&long],
            &[concat!(
                "299 - \"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
                "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\""
            )],
        );
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].len(), 256 + 8);
    }

    #[test]
    fn without_own_warnings_nothing_changes() {
        let many = ["299 - \"a\"", "299 - \"a\"", "garbage"];
        assert_eq!(merged(&[], &many), many);
    }
}
