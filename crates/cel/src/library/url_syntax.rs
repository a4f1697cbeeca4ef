//! URLs as Go's `net/url` parses and prints them.
//!
//! Source: Go `net/url`, release 1.26, with its defaults: at most 10 000 parameters in a query, one colon in the
//! host of `http` and `https`. Escaped bytes that are not UTF-8 become U+FFFD here.

use std::fmt::Write;
use std::net::IpAddr;

use fairgate_gotext::{Quoted, QuotedBytes};

use super::addresses::parse_addr;

/// The maximum number of parameters of a query. A query with more counts as empty.
const MOST_PARAMETERS: usize = 10_000;

/// A parsed URL.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedUrl {
    pub(super) scheme: String,
    opaque: String,
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    pub(super) host: String,
    /// The path as it was written, with its escapes.
    path: String,
    query: String,
    /// Whether the URL ends in `?`, with an empty query.
    force_query: bool,
    fragment: String,
    omit_host: bool,
}

/// A part of a URL. Each allows other bytes without an escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

impl UrlPart {
    fn allows(self, byte: u8) -> bool {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            return true;
        }
        match self {
            Self::Path => b"$&+,/:;=@".contains(&byte),
            Self::Host | Self::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
            Self::User => b"$&+,;=".contains(&byte),
            Self::Query => false,
            Self::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
        }
    }

    fn escape(self, bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len());
        for byte in bytes {
            if self.allows(*byte) {
                out.push(char::from(*byte));
            } else {
                write!(out, "%{byte:02X}").expect("writing to a string does not fail");
            }
        }
        out
    }

    fn unescape(self, text: &str) -> Result<Vec<u8>, String> {
        let bytes = text.as_bytes();
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            at += 1;
            if byte == b'+' && self == Self::Query {
                out.push(b' ');
            } else if byte != b'%' {
                if matches!(self, Self::Host | Self::Zone) && byte < 0x80 && !self.allows(byte) {
                    let byte = QuotedBytes(&[byte]);
                    return Err(format!("invalid character {byte} in host name"));
                }
                out.push(byte);
            } else {
                let escape = &bytes[at - 1..bytes.len().min(at + 2)];
                let value = self
                    .escaped(escape)
                    .ok_or_else(|| format!("invalid URL escape {}", QuotedBytes(escape)))?;
                out.push(value);
                at += 2;
            }
        }
        Ok(out)
    }

    /// The byte that `escape` (`%` and two digits) stands for; `None` if it is invalid or not allowed in this part.
    fn escaped(self, escape: &[u8]) -> Option<u8> {
        let [_, high, low] = escape else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let value = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
        let percent = value == b'%';
        match self {
            Self::Host if value < 0x80 && !percent => None,
            Self::Zone if !percent && value != b' ' && !Self::Host.allows(value) => None,
            _ => Some(value),
        }
    }

    /// Whether a text needs no further escapes in this part. Escapes in it are assumed to be valid.
    fn is_encoded(self, text: &str) -> bool {
        let sub_delimiters = b"!$&'()*+,;=:@[]%";
        text.bytes()
            .all(|byte| sub_delimiters.contains(&byte) || self.allows(byte))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn failed(text: &str, why: &str) -> String {
    format!("parse {}: {why}", Quoted(text))
}

/// Go's `ParseRequestURI`: checks that a text is an absolute URI or an absolute path, as in a request line.
///
/// # Errors
///
/// Go's error message.
pub(super) fn check_request_uri(text: &str) -> Result<(), String> {
    parse_parts(text, true)
        .map(drop)
        .map_err(|why| failed(text, &why))
}

impl ParsedUrl {
    /// The bytes of all parts.
    pub(super) fn text_len(&self) -> usize {
        let user = self.user.as_ref();
        let user = user.map_or(0, |(name, password)| {
            name.len() + password.as_ref().map_or(0, Vec::len)
        });
        let head = self.scheme.len() + self.opaque.len() + user + self.host.len();
        head + self.path.len() + self.query.len() + self.fragment.len()
    }

    /// Parses a URL as Kubernetes does: with Go's `ParseRequestURI`, then with `Parse`.
    ///
    /// # Errors
    ///
    /// Go's error message.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        check_request_uri(text)?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = parse_parts(before, false).map_err(|why| failed(before, &why))?;
        let unescaped = UrlPart::Fragment.unescape(fragment);
        let unescaped = unescaped.map_err(|why| failed(text, &why))?;
        url.fragment = if UrlPart::Fragment.is_encoded(fragment) {
            fragment.to_owned()
        } else {
            UrlPart::Fragment.escape(&unescaped)
        };
        Ok(url)
    }

    pub(super) fn escaped_path(&self) -> String {
        if UrlPart::Path.is_encoded(&self.path) {
            return self.path.clone();
        }
        UrlPart::Path.escape(&UrlPart::Path.unescape(&self.path).unwrap_or_default())
    }

    /// Host and port; the port may be empty. The host is without the brackets of an IPv6 address.
    pub(super) fn host_and_port(&self) -> (&str, &str) {
        let mut host = &*self.host;
        let mut port = "";
        if let Some(colon) = host.rfind(':')
            && is_optional_port(&host[colon..])
        {
            (host, port) = (&host[..colon], &host[colon + 1..]);
        }
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        (inner.unwrap_or(host), port)
    }

    /// The values of the query's parameters by name, in the order of the query. Invalid parameters are left out.
    pub(super) fn parameters(&self) -> Vec<(String, Vec<String>)> {
        let mut all: Vec<(String, Vec<String>)> = Vec::new();
        if self.query.matches('&').count() >= MOST_PARAMETERS {
            return all;
        }
        let mut places = std::collections::HashMap::new();
        for part in self.query.split('&') {
            // Go takes a semicolon for a mistake, since some servers read it as a separator.
            if part.is_empty() || part.contains(';') {
                continue;
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let unescape = |text| UrlPart::Query.unescape(text).map(|bytes| lossy(&bytes));
            let (Ok(name), Ok(value)) = (unescape(name), unescape(value)) else {
                continue;
            };
            let place = *places.entry(name.clone()).or_insert_with(|| {
                all.push((name, Vec::new()));
                all.len() - 1
            });
            all[place].1.push(value);
        }
        all
    }

    /// The URL as Go prints it.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if self.opaque.is_empty() {
            self.push_hierarchy(&mut out);
        } else {
            out.push_str(&self.opaque);
        }
        if self.force_query || !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            out.push_str(&self.fragment);
        }
        out
    }

    fn push_hierarchy(&self, out: &mut String) {
        let (scheme, host) = (!self.scheme.is_empty(), !self.host.is_empty());
        let some = scheme || host || self.user.is_some();
        let omitted = self.omit_host && !host && self.user.is_none();
        if some && !omitted {
            if host || !self.path.is_empty() || self.user.is_some() {
                out.push_str("//");
            }
            if let Some((name, password)) = &self.user {
                out.push_str(&UrlPart::User.escape(name));
                if let Some(password) = password {
                    out.push(':');
                    out.push_str(&UrlPart::User.escape(password));
                }
                out.push('@');
            }
            out.push_str(&UrlPart::Host.escape(self.host.as_bytes()));
        }
        let path = self.escaped_path();
        if !path.is_empty() && !path.starts_with('/') && host {
            out.push('/');
        }
        if out.is_empty()
            && path
                .split('/')
                .next()
                .is_some_and(|first| first.contains(':'))
        {
            // Otherwise what is before the colon would be read as a scheme.
            out.push_str("./");
        }
        out.push_str(&path);
    }
}

fn parse_parts(text: &str, request: bool) -> Result<ParsedUrl, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut url = ParsedUrl::default();
    if text == "*" {
        url.path.push('*');
        return Ok(url);
    }
    let (scheme, mut rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    if rest.ends_with('?') && rest.matches('?').count() == 1 {
        url.force_query = true;
        rest = &rest[..rest.len() - 1];
    } else if let Some((before, query)) = rest.split_once('?') {
        query.clone_into(&mut url.query);
        rest = before;
    }
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest
            .split('/')
            .next()
            .is_some_and(|first| first.contains(':'))
        {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_scheme = !url.scheme.is_empty();
    let authority = rest.strip_prefix("//");
    match authority.filter(|_| has_scheme || !request && !rest.starts_with("///")) {
        Some(authority) => {
            let end = authority.find('/').unwrap_or(authority.len());
            rest = &authority[end..];
            parse_authority(&mut url, &authority[..end])?;
        }
        None => url.omit_host = has_scheme && rest.starts_with('/'),
    }
    UrlPart::Path.unescape(rest)?;
    rest.clone_into(&mut url.path);
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_authority(url: &mut ParsedUrl, authority: &str) -> Result<(), String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    url.host = parse_host(&url.scheme, host)?;
    let Some(user) = user else { return Ok(()) };
    let right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(right) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = match user.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (user, None),
    };
    let name = UrlPart::User.unescape(name)?;
    let password = password.map(|of| UrlPart::User.unescape(of)).transpose()?;
    url.user = Some((name, password));
    Ok(())
}

fn is_optional_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn check_port(text: &str) -> Result<(), String> {
    if is_optional_port(text) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", Quoted(text)))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return parse_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    let strict = matches!(scheme, "http" | "https");
    let colon = if strict {
        host.find(':')
    } else {
        host.rfind(':')
    };
    if let Some(colon) = colon {
        check_port(&host[colon..])?;
    }
    UrlPart::Host.unescape(host).map(|host| lossy(&host))
}

/// Parses an IPv6 address in brackets, with or without a port.
fn parse_literal(host: &str) -> Result<String, String> {
    let Some(end) = host.rfind(']') else {
        return Err("missing ']' in host".to_owned());
    };
    let (name, port) = (&host[1..end], &host[end + 1..]);
    check_port(port)?;
    let unescaped = match name.find("%25") {
        // The percent sign of a zone is escaped itself (RFC 6874).
        Some(zone) => {
            let mut unescaped = UrlPart::Host.unescape(&name[..zone])?;
            unescaped.extend(UrlPart::Zone.unescape(&name[zone..])?);
            unescaped
        }
        None => UrlPart::Host.unescape(name)?,
    };
    let name = lossy(&unescaped);
    match parse_addr(&name) {
        Err(why) => Err(format!("invalid host: {why}")),
        Ok((IpAddr::V4(_), _)) => Err("invalid IP-literal".to_owned()),
        Ok(_) => Ok(format!("[{name}]{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_printed_as_in_go() {
        let text = |of: &str| ParsedUrl::parse(of).map(|url| url.text()).unwrap();
        assert_eq!(
            text("https://example.com/a b?x#c d"),
            "https://example.com/a%20b?x#c%20d"
        );
        assert_eq!(text("http://?a"), "http:?a");
        assert_eq!(text("///path"), "///path");
        assert_eq!(text("https://u%20s:p@h/é"), "https://u%20s:p@h/%C3%A9");
    }

    #[test]
    fn the_parameters_of_a_query_are_bounded() {
        let query = |count: usize| format!("/?{}", vec!["a"; count].join("&"));
        let count = |of: &str| ParsedUrl::parse(of).unwrap().parameters().len();
        assert_eq!(count(&query(MOST_PARAMETERS)), 1);
        assert_eq!(count(&query(MOST_PARAMETERS + 1)), 0);
    }
}
