//! The options of a list or watch: the parameters of its query.
//!
//! Decoded as in kube-apiserver, including its quirks, because cost and name depend on whether they
//! decode. Not here: splitting the query (`query`), the selector grammars (`selector`).

use super::{
    query::{ParameterValue, Parameters, truth},
    selector::{self, FieldTerms},
};

/// The options of a list or watch, as far as classification and cost depend on them.
///
/// The default is that of a request without a query. Bytes that are not UTF-8 are replaced in the
/// texts, after the fields that depend on them were computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Whether all options decode; if not, only the watch flag was honoured.
    pub decodes: bool,
    /// Whether `limit` and `timeoutSeconds` decode. The server's work estimator needs only these: a
    /// malformed selector does not make it charge the full width.
    pub numbers_decode: bool,
    /// `limit`; 0 when absent or malformed.
    pub limit: i64,
    /// `resourceVersion`; empty when absent.
    pub resource_version: Box<str>,
    /// `resourceVersionMatch`; empty when absent.
    pub(crate) resource_version_match: Box<str>,
    /// Whether a `continue` token is given.
    pub has_continue: bool,
    /// `sendInitialEvents`, if given.
    pub send_initial_events: Option<bool>,
    /// Raw decoded first value; `None` when absent, and for the `/watch/` path form.
    pub label_selector: Option<Box<str>>,
    /// Raw decoded first value; `None` when absent, and for the `/watch/` path form.
    pub field_selector: Option<Box<str>>,
    /// The value, never empty, that a `spec.nodeName` field selector requires, if all options decode.
    pub node_name: Option<Box<str>>,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self {
            decodes: true,
            numbers_decode: true,
            limit: 0,
            resource_version: Box::default(),
            resource_version_match: Box::default(),
            has_continue: false,
            send_initial_events: None,
            label_selector: None,
            field_selector: None,
            node_name: None,
        }
    }
}

impl ListOptions {
    /// Whether a label or field selector that is not empty is given.
    pub fn has_selector(&self) -> bool {
        let given =
            |selector: &Option<Box<str>>| selector.as_deref().is_some_and(|s| !s.is_empty());
        given(&self.label_selector) || given(&self.field_selector)
    }

    /// Decodes the options, and the name that a `metadata.name` field selector requires if it could
    /// be one and all options decode. Selectors are kept only where `keep_selectors`.
    pub(super) fn decode(
        parameters: &Parameters<'_>,
        keep_selectors: bool,
    ) -> (Self, Option<Box<[u8]>>) {
        let limit = number(parameters.limit.as_deref());
        let numbers_decode =
            limit.is_some() && number(parameters.timeout_seconds.as_deref()).is_some();
        let fields = FieldTerms::parse(parameters.field_selector.as_deref().unwrap_or_default());
        let labels = parameters.label_selector.as_deref().unwrap_or_default();
        // The server decodes all options or none: a malformed limit also hides the names in a sound selector.
        let fields = fields.filter(|_| numbers_decode && selector::is_label_selector(labels));

        let required = |field: &str| {
            fields
                .as_ref()
                .and_then(|f| f.required(field.as_bytes()))
                .filter(|v| !v.is_empty())
        };
        // Only a name that could have been written into the path becomes that of the request, as in kube-apiserver's RequestInfo.
        let name = required("metadata.name").filter(|name| could_be_name(name));
        let string = |value: &ParameterValue<'_>| value.as_deref().map(text);
        let kept = |value: &ParameterValue<'_>| string(value).filter(|_| keep_selectors);
        let options = Self {
            decodes: fields.is_some(),
            numbers_decode,
            limit: limit.unwrap_or_default(),
            resource_version: string(&parameters.resource_version).unwrap_or_default(),
            resource_version_match: string(&parameters.resource_version_match).unwrap_or_default(),
            has_continue: parameters
                .continue_token
                .as_deref()
                .is_some_and(|t| !t.is_empty()),
            send_initial_events: parameters.send_initial_events.as_deref().map(truth),
            label_selector: kept(&parameters.label_selector),
            field_selector: kept(&parameters.field_selector),
            node_name: required("spec.nodeName").map(text),
        };
        (options, name.map(Box::from))
    }
}

/// A base-10 signed 64-bit number; 0 when absent, `None` when malformed.
fn number(value: Option<&[u8]>) -> Option<i64> {
    match value {
        None => Some(0),
        // Rust accepts exactly what Go's `ParseInt` does in base 10, a leading `+` among it.
        Some(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
    }
}

/// Whether a path segment may be this name.
fn could_be_name(name: &[u8]) -> bool {
    name != b"." && name != b".." && !name.iter().any(|&b| b == b'/' || b == b'%')
}

fn text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(query: &str) -> (ListOptions, Option<String>) {
        let parameters = Parameters::parse(query.as_bytes()).expect("few parameters");
        let (options, name) = ListOptions::decode(&parameters, true);
        (
            options,
            name.map(|n| String::from_utf8_lossy(&n).into_owned()),
        )
    }

    #[test]
    fn every_option_is_read() {
        let (options, name) = decode(
            "limit=500&resourceVersion=12&resourceVersionMatch=Exact&continue=abc&\
             sendInitialEvents=true&labelSelector=app%3Dweb&\
             fieldSelector=spec.nodeName%3Dn1,metadata.name%3Dp",
        );
        assert_eq!(
            options,
            ListOptions {
                decodes: true,
                numbers_decode: true,
                limit: 500,
                resource_version: "12".into(),
                resource_version_match: "Exact".into(),
                has_continue: true,
                send_initial_events: Some(true),
                label_selector: Some("app=web".into()),
                field_selector: Some("spec.nodeName=n1,metadata.name=p".into()),
                node_name: Some("n1".into()),
            }
        );
        assert_eq!(name.as_deref(), Some("p"));
    }

    #[test]
    fn a_query_without_options_means_the_defaults() {
        assert_eq!(decode("pretty=true"), (ListOptions::default(), None));
        assert_eq!(
            decode("continue=&resourceVersion="),
            (ListOptions::default(), None)
        );
    }

    #[test]
    fn numbers_are_signed_64_bit_and_never_blank() {
        let good = [
            "0",
            "-1",
            "+7",
            "007",
            "9223372036854775807",
            "-9223372036854775808",
        ];
        for number in good {
            for key in ["limit", "timeoutSeconds"] {
                let (options, _) = decode(&format!("{key}={}", number.replace('+', "%2B")));
                assert!(options.decodes && options.numbers_decode, "{key}={number}");
            }
        }
        for number in [
            "",
            "+",
            "-",
            "abc",
            "1_0",
            "0x1",
            "1.0",
            "%201",
            "9223372036854775808",
            "%FF",
        ] {
            for key in ["limit", "timeoutSeconds"] {
                let (options, name) =
                    decode(&format!("{key}={number}&fieldSelector=metadata.name=x"));
                assert!(
                    !options.decodes && !options.numbers_decode,
                    "{key}={number}"
                );
                assert_eq!((options.limit, name), (0, None), "{key}={number}");
            }
        }
        assert_eq!(decode("limit=-3").0.limit, -3);
    }

    #[test]
    fn a_malformed_selector_fails_the_options_but_not_the_numbers() {
        for query in [
            "labelSelector=a,",
            "fieldSelector=oops",
            "labelSelector=a%3D-",
        ] {
            let (options, name) = decode(&format!("{query}&limit=3&fieldSelector=metadata.name=x"));
            assert!(!options.decodes && options.numbers_decode, "{query}");
            assert_eq!(
                (options.limit, name, options.has_selector()),
                (3, None, true),
                "{query}"
            );
        }
    }

    #[test]
    fn a_node_name_is_kept_only_when_it_is_not_empty_and_all_options_decode() {
        let node = |query: &str| decode(query).0.node_name.map(String::from);
        assert_eq!(node("fieldSelector=spec.nodeName=n1"), Some("n1".into()));
        assert_eq!(node("fieldSelector=spec.nodeName==n1"), Some("n1".into()));
        assert_eq!(node("fieldSelector=spec.nodeName!=n1"), None);
        assert_eq!(node("fieldSelector=spec.nodeName="), None);
        assert_eq!(node("fieldSelector=spec.nodeName=n1&limit=x"), None);
        assert_eq!(node("fieldSelector=spec.nodeName=n1,oops"), None);
        assert_eq!(node(""), None);
    }

    #[test]
    fn a_value_that_cannot_be_a_path_segment_is_not_a_name() {
        let name = |selector: &str| decode(&format!("fieldSelector=metadata.name={selector}")).1;
        assert_eq!(name("a.b"), Some("a.b".into()));
        assert_eq!(name("..."), Some("...".into()));
        assert_eq!(name("a%5C%2Cb"), Some("a,b".into()));
        for bad in ["", ".", "..", "a%2Fb", "%2F", "a%25b"] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_empty_selector_is_no_selector() {
        assert!(!decode("labelSelector=&fieldSelector").0.has_selector());
        assert!(decode("labelSelector=a").0.has_selector());
        assert!(decode("fieldSelector=a=b").0.has_selector());
    }
}
