//! Percent-decoding, and the query parameters that matter here.
//!
//! Follows the rules of Go's `net/url`, which differ from those of most libraries: only `&`
//! separates, a pair with a raw `;` or a bad escape is dropped by itself, and the first pair of a
//! key counts. One pass, no map; what holds no escape is borrowed.
//!
//! Not here: what the values mean (`options`, [`parse_duration`]).

use std::borrow::Cow;

use super::error::InfoError;
use fairgate_gotext::parse_duration;

/// The most parameters that Go reads: it ignores the whole query if there are more. Servers of different age disagree on that.
const MAX_READ: usize = 10_000;

/// The most parameters that a client's query may have. What the gateway adds, such as `dryRun=All`, must not make a server ignore all
/// of them.
pub const MAX_PARAMETERS: usize = MAX_READ - 100;

/// The first decoded value of each parameter that verbs, list options and deadlines depend on.
#[derive(Debug, Default)]
pub(super) struct Parameters<'a> {
    pub(super) watch: ParameterValue<'a>,
    pub(super) limit: ParameterValue<'a>,
    pub(super) timeout_seconds: ParameterValue<'a>,
    pub(super) label_selector: ParameterValue<'a>,
    pub(super) field_selector: ParameterValue<'a>,
    pub(super) resource_version: ParameterValue<'a>,
    pub(super) resource_version_match: ParameterValue<'a>,
    pub(super) continue_token: ParameterValue<'a>,
    pub(super) send_initial_events: ParameterValue<'a>,
    pub(super) timeout: ParameterValue<'a>,
}

/// A parameter's first value, if any; empty for a key without one.
pub(super) type ParameterValue<'a> = Option<Cow<'a, [u8]>>;

impl<'a> Parameters<'a> {
    /// Reads a raw query.
    pub(super) fn parse(query: &'a [u8]) -> Result<Self, InfoError> {
        let mut parameters = Self::default();
        for (index, pair) in query.split(|&b| b == b'&').enumerate() {
            // Empty pairs count, too: Go counts separators before it reads any pair.
            if index == MAX_PARAMETERS {
                return Err(InfoError::TooManyParameters);
            }
            parameters.add(pair);
        }
        Ok(parameters)
    }

    fn add(&mut self, pair: &'a [u8]) {
        if pair.contains(&b';') {
            return;
        }
        let (key, value) = match pair.iter().position(|&b| b == b'=') {
            Some(cut) => (&pair[..cut], &pair[cut + 1..]),
            None => (pair, &[][..]),
        };
        let Some(key) = decode_form(key) else { return };
        let Some(slot @ None) = self.slot(&key) else {
            return;
        };
        // A malformed value leaves the slot empty for a later pair of this key, because Go drops such a pair.
        *slot = decode_form(value);
    }

    fn slot(&mut self, key: &[u8]) -> Option<&mut ParameterValue<'a>> {
        Some(match key {
            b"watch" => &mut self.watch,
            b"limit" => &mut self.limit,
            b"timeoutSeconds" => &mut self.timeout_seconds,
            b"labelSelector" => &mut self.label_selector,
            b"fieldSelector" => &mut self.field_selector,
            b"resourceVersion" => &mut self.resource_version,
            b"resourceVersionMatch" => &mut self.resource_version_match,
            b"continue" => &mut self.continue_token,
            b"sendInitialEvents" => &mut self.send_initial_events,
            b"timeout" => &mut self.timeout,
            _ => return None,
        })
    }

    /// Whether `watch` is given and not false.
    pub(super) fn wants_watch(&self) -> bool {
        self.watch.as_deref().is_some_and(truth)
    }

    /// The client's deadline, or what is wrong with it; an empty one counts as absent.
    pub(super) fn deadline(&self) -> Option<Result<std::time::Duration, Box<str>>> {
        let text = self.timeout.as_deref()?;
        (!text.is_empty()).then(|| parse_duration(text))
    }
}

/// Whether a flag's value means yes: all but `0` and `false` do, the empty one too.
pub(super) fn truth(value: &[u8]) -> bool {
    value != b"0" && !value.eq_ignore_ascii_case(b"false")
}

/// Decodes a path: `%XX` becomes a byte, `+` stays. `None` for a malformed escape.
pub(super) fn decode_path(raw: &[u8]) -> Option<Box<[u8]>> {
    if raw.contains(&b'%') {
        unescape(raw, false).map(Vec::into_boxed_slice)
    } else {
        Some(raw.into())
    }
}

/// The decoded pairs of a raw query, in order; at most 10 000, which are all that Go reads. Pairs that do not decode are left out, and bytes
/// that are not UTF-8 are replaced.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let text = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
    query.split('&').take(MAX_READ).filter_map(move |pair| {
        let (key, value) = decode_pair(pair)?;
        Some((text(key), text(value)))
    })
}

/// Whether a pair of a raw query is a parameter of one of these names, encoded or not. One that a server leaves out is none.
pub fn is_parameter(pair: &str, names: &[&str]) -> bool {
    decode_pair(pair).is_some_and(|(key, _)| names.iter().any(|name| *name.as_bytes() == *key))
}

/// The decoded key and value.
type DecodedPair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

fn decode_pair(pair: &str) -> Option<DecodedPair<'_>> {
    if pair.contains(';') || pair.is_empty() {
        return None;
    }
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    Some((decode_form(key.as_bytes())?, decode_form(value.as_bytes())?))
}

/// Decodes a key or value of a query: `%XX` becomes a byte, `+` a space.
fn decode_form(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    if raw.iter().any(|&b| b == b'%' || b == b'+') {
        unescape(raw, true).map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(raw))
    }
}

fn unescape(raw: &[u8], plus_is_space: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'%' => hex(*bytes.next()?)? << 4 | hex(*bytes.next()?)?,
            b'+' if plus_is_space => b' ',
            _ => byte,
        });
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_limit(query: &str) -> Option<String> {
        let parameters = Parameters::parse(query.as_bytes()).expect("few parameters");
        parameters
            .limit
            .map(|v| String::from_utf8_lossy(&v).into_owned())
    }

    #[test]
    fn queries_split_and_decode_by_go_rules() {
        let cases = [
            ("limit=5", Some("5")),
            ("limit", Some("")),
            ("limit=", Some("")),
            ("limit=a=b", Some("a=b")),
            ("=5", None),
            ("Limit=5", None),
            ("&&limit=5&", Some("5")),
            ("limit=1&limit=2", Some("1")),
            ("limit=&limit=2", Some("")),
            ("a=1;limit=5", None),
            ("limit=5;x&limit=6", Some("6")),
            ("limit=5%3Bx", Some("5;x")),
            ("limit=%zz&limit=6", Some("6")),
            ("limit=%&limit=6", Some("6")),
            ("limit=5%4&limit=6", Some("6")),
            ("lim%6&limit=6", Some("6")),
            ("limi%74=6", Some("6")),
            ("limit%3D6", None),
            ("limit=a+b%2B%20c", Some("a b+ c")),
            ("lim+it=5", None),
            ("limit=%e2%82%AC", Some("\u{20ac}")),
            ("limit=?x#y", Some("?x#y")),
        ];
        for (query, expected) in cases {
            assert_eq!(first_limit(query).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn a_query_has_room_for_parameters_of_the_gateway() {
        let most = format!("{}limit=5", "&".repeat(MAX_PARAMETERS - 1));
        let more = format!(
            "{most}{}&dryRun=All",
            "&a=b".repeat(MAX_READ - MAX_PARAMETERS - 1)
        );
        assert_eq!(more.split('&').count(), 10_000);
        assert!(query_pairs(&more).any(|(key, _)| key == "dryRun"));
        assert_eq!(first_limit(&most).as_deref(), Some("5"));
        let over = "&".repeat(MAX_PARAMETERS);
        let over = Parameters::parse(over.as_bytes()).err();
        assert_eq!(over, Some(InfoError::TooManyParameters));
    }

    #[test]
    fn names_of_parameters_are_decoded() {
        for pair in ["a", "a=", "a=b=c", "%61=1", "b=2"] {
            assert!(is_parameter(pair, &["a", "b"]), "{pair}");
        }
        for pair in ["", "=", "c", "a;b", "a=1;", "%a", "a=%", "%41=1", " a=1"] {
            assert!(!is_parameter(pair, &["a", "b"]), "{pair}");
        }
    }

    #[test]
    fn a_flag_is_true_unless_it_says_0_or_false() {
        for no in ["0", "false", "FALSE", "False", "fAlSe"] {
            assert!(!truth(no.as_bytes()), "{no}");
        }
        for yes in ["", "1", "true", "no", "f", "00", " 0", "false "] {
            assert!(truth(yes.as_bytes()), "{yes:?}");
        }
    }

    #[test]
    fn a_path_decodes_once_and_keeps_its_plus_signs() {
        let decoded = |raw: &str| decode_path(raw.as_bytes()).map(Vec::from);
        assert_eq!(decoded("/a+b%2f%41"), Some(b"/a+b/A".to_vec()));
        assert_eq!(decoded("/%2541"), Some(b"/%41".to_vec()));
        assert_eq!(decoded("/%ff%00"), Some(b"/\xff\x00".to_vec()));
        for bad in ["%", "/%", "/%4", "/%4g", "/%%41", "/%u0041", "/%-1"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
