//! Content negotiation: `Accept`, `pretty`.
//!
//! As in kube-apiserver, there are two steps. Its router compares media types without parameters, and
//! responds 406 if it has none of them; then its handler reads the clauses with their parameters, in the
//! order of their quality. The router is stricter about wildcards; the handler knows conversions, such as
//! tables.

use fairgate_objects::codec::BodyFormat;

use crate::{query::Query, status_error::StatusError};

/// A media type of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// All media types, the preferred one first.
const MEDIA: [Media; 3] = [Media::Json, Media::Yaml, Media::Protobuf];

/// The names of all media types, in the order in which messages list them.
pub const MEDIA_TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The media types of watches, which the router accepts for lists, too.
pub const STREAM_TYPES: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

impl Media {
    /// The media type as `Accept` and `Content-Type` name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => MEDIA_TYPES[0],
            Self::Yaml => MEDIA_TYPES[1],
            Self::Protobuf => MEDIA_TYPES[2],
        }
    }

    /// The format of bodies of this type.
    pub fn format(self) -> BodyFormat {
        match self {
            Self::Json => BodyFormat::Json,
            Self::Yaml => BodyFormat::Yaml,
            Self::Protobuf => BodyFormat::Protobuf,
        }
    }

    /// The media type with this name.
    pub fn named(name: &str) -> Option<Self> {
        MEDIA.into_iter().find(|media| media.name() == name)
    }
}

/// A form that objects are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// A table, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// The metadata of one object.
    Partial(&'static str),
    /// The metadata of a list of objects.
    PartialList(&'static str),
}

/// The negotiated format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The media type.
    pub media: Media,
    /// The form that objects are converted to; `None`: none.
    pub form: Option<Representation>,
    /// Whether JSON is indented.
    pub pretty: bool,
}

impl Output {
    /// The format of errors if the negotiation failed.
    pub const JSON: Self = Self {
        media: Media::Json,
        form: None,
        pretty: false,
    };
}

/// The longest `Accept` that is looked through. Clients send less than a thousand bytes, and may send as many as a head has: hundreds of
/// thousands of clauses, which are sorted, would take longer than others can wait for the thread. A longer one accepts nothing.
pub const LONGEST_ACCEPT: usize = 16 << 10;

/// What a path can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produces {
    /// Documents that cannot be converted: discovery.
    Documents,
    /// Objects.
    Objects,
    /// Lists of objects, and watches.
    Collections,
}

/// One clause of an `Accept` header.
#[derive(Clone, Debug, PartialEq)]
struct Clause<'a> {
    ty: &'a str,
    subtype: &'a str,
    quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

/// Negotiates the format of the response. `accept` is the header, empty if absent.
///
/// # Errors
///
/// 406.
pub fn output(
    accept: &str,
    produces: Produces,
    query: &Query,
    user_agent: &str,
) -> Result<Output, StatusError> {
    if !routed(accept, produces) {
        return Err(no_route(produces));
    }
    first_accepted(accept, produces, query, user_agent, |_, _| true)
}

/// [`output`] for a custom resource, which is not behind the router, and which no object in protobuf describes. As in kube-apiserver, a
/// clause that only protobuf meets is skipped, so that `application/vnd.kubernetes.protobuf,application/json` agrees on JSON.
///
/// # Errors
///
/// 406.
pub fn custom_output(accept: &str, query: &Query, user_agent: &str) -> Result<Output, StatusError> {
    let can_write = |media, form: Option<_>| media != Media::Protobuf || form.is_some();
    first_accepted(accept, Produces::Objects, query, user_agent, can_write)
}

/// The format of the first clause that can be met, with a media type and a form that `can_write` allows.
fn first_accepted(
    accept: &str,
    produces: Produces,
    query: &Query,
    user_agent: &str,
    can_write: impl Fn(Media, Option<Representation>) -> bool,
) -> Result<Output, StatusError> {
    let human = is_pretty(query, user_agent);
    if accept.is_empty() {
        return Ok(Output {
            pretty: human,
            ..Output::JSON
        });
    }
    if accept.len() > LONGEST_ACCEPT {
        return Err(none_accepted());
    }
    for clause in clauses(accept) {
        for media in MEDIA {
            if let Some((form, pretty)) = clause.accepts(media, produces)
                && can_write(media, form)
            {
                return Ok(Output {
                    media,
                    form,
                    pretty: human || pretty,
                });
            }
        }
    }
    Err(none_accepted())
}

fn none_accepted() -> StatusError {
    StatusError::not_acceptable(format!(
        "only the following media types are accepted: {}",
        MEDIA_TYPES.join(", ")
    ))
}

/// Whether the router accepts the request: the exact name of a type, or `*/*`.
fn routed(accept: &str, produces: Produces) -> bool {
    if accept.is_empty() {
        return true;
    }
    // The handler refuses those that are too long.
    let is_long = accept.len() > LONGEST_ACCEPT;
    is_long
        || accept.split(',').any(|clause| {
            let name = clause.split(';').next().unwrap_or_default().trim();
            name == "*/*"
                || Media::named(name).is_some()
                || (produces == Produces::Collections && STREAM_TYPES.contains(&name))
        })
}

fn no_route(produces: Produces) -> StatusError {
    let mut types = MEDIA_TYPES.to_vec();
    if produces == Produces::Collections {
        types.extend(STREAM_TYPES);
    }
    StatusError::not_acceptable(format!(
        "406: Not Acceptable\n\nAvailable representations: {}",
        types.join(", ")
    ))
    .with_details(serde_json::json!({}))
}

/// The clauses of `accept`, by quality. Malformed clauses are ignored.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(clause).collect();
    clauses.sort_by(|a, b| {
        let wild = |clause: &Clause<'_>| (clause.ty == "*", clause.subtype == "*");
        b.quality
            .total_cmp(&a.quality)
            .then_with(|| wild(a).cmp(&wild(b)))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.trim().split(';');
    let name = parts.next()?.trim();
    let (ty, subtype) = match name.split_once('/') {
        None if name == "*" => ("*", "*"),
        Some((ty, subtype)) if !subtype.is_empty() && !subtype.contains('/') => (ty, subtype),
        _ => return None,
    };
    let mut clause = Clause {
        ty: ty.trim(),
        subtype: subtype.trim(),
        quality: 1.0,
        parameters: Vec::new(),
    };
    for part in parts {
        let Some((key, value)) = part.split_once('=') else {
            continue;
        };
        if value.is_empty() || value.contains('=') {
            continue;
        }
        if key.trim() == "q" {
            // As goautoneg, which ignores the error of Go's `ParseFloat`.
            clause.quality = value.trim().parse().unwrap_or(0.0);
        } else {
            clause.parameters.push((key.trim(), value.trim()));
        }
    }
    Some(clause)
}

impl Clause<'_> {
    /// If `media` satisfies the clause: the form, and whether to indent.
    fn accepts(&self, media: Media, produces: Produces) -> Option<(Option<Representation>, bool)> {
        let (ty, subtype) = media.name().split_once('/')?;
        let fits =
            (self.ty == ty || self.ty == "*") && (self.subtype == subtype || self.subtype == "*");
        if !fits || (self.ty == "*" && self.subtype != "*") {
            return None;
        }
        if self
            .parameter("stream")
            .is_some_and(|value| value != "watch")
            || self.parameter("sv").is_some_and(|value| value != "v1")
            || (self.parameter("stream").is_some() && media == Media::Yaml)
        {
            return None;
        }
        let pretty = self.parameter("pretty") == Some("1");
        if ["as", "g", "v"]
            .iter()
            .all(|key| self.parameter(key).is_none())
        {
            return Some((None, pretty));
        }
        Some((Some(self.form(media, produces)?), pretty))
    }

    /// The requested form; `None` if it is not supported.
    fn form(&self, media: Media, produces: Produces) -> Option<Representation> {
        let [kind, group, version] = ["as", "g", "v"].map(|key| self.parameter(key));
        if produces == Produces::Documents || group != Some("meta.k8s.io") {
            return None;
        }
        let version = match version {
            Some("v1") => "v1",
            Some("v1beta1") => "v1beta1",
            _ => return None,
        };
        match kind {
            Some("Table") if media != Media::Protobuf => Some(Representation::Table(version)),
            Some("PartialObjectMetadata") => Some(Representation::Partial(version)),
            Some("PartialObjectMetadataList") => Some(Representation::PartialList(version)),
            _ => None,
        }
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        self.parameters
            .iter()
            // goautoneg keeps parameters in a map, so the last of a name counts.
            .rev()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }
}

/// Whether JSON is indented: on request, and for browsers, curl and Wget.
pub fn is_pretty(query: &Query, user_agent: &str) -> bool {
    match query.text("pretty") {
        "" => ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|human| user_agent.starts_with(human)),
        // What Go's `ParseBool` takes for true; everything else, mistakes included, is false.
        value => ["1", "t", "T", "TRUE", "true", "True"].contains(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(accept: &str, produces: Produces) -> Option<(Media, Option<Representation>)> {
        output(accept, produces, &Query::default(), "")
            .ok()
            .map(|output| (output.media, output.form))
    }

    #[test]
    fn an_accept_that_is_longer_than_any_accepts_nothing() {
        let clauses = |length: usize| "a/b,".repeat(length / 4 - 1) + "*/*,";
        let [longest, longer] = [LONGEST_ACCEPT, LONGEST_ACCEPT + 4].map(clauses);
        let query = Query::default();
        assert!(output(&longest, Produces::Objects, &query, "").is_ok());
        assert!(custom_output(&longest, &query, "").is_ok());
        for refused in [
            output(&longer, Produces::Objects, &query, ""),
            custom_output(&longer, &query, ""),
        ] {
            assert_eq!(refused.unwrap_err().code, 406);
        }
    }

    #[test]
    fn the_first_clause_that_can_be_met_wins() {
        use Media as M;
        use Representation as F;
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let cases = [
            ("", Some((M::Json, None))),
            ("*/*", Some((M::Json, None))),
            (table, Some((M::Json, Some(F::Table("v1"))))),
            (
                "application/json;as=Nope;v=v1;g=meta.k8s.io,application/json",
                Some((M::Json, None)),
            ),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Some((M::Protobuf, None)),
            ),
            (
                "application/yaml;q=0.5,application/json;q=0.4",
                Some((M::Yaml, None)),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Some((M::Protobuf, Some(F::Partial("v1")))),
            ),
            ("application/cbor", None),
            ("application/*", None),
            ("text/html", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(agreed(accept, Produces::Objects), expected, "{accept}");
        }
        assert_eq!(agreed(table, Produces::Documents), Some((M::Json, None)));
    }

    #[test]
    fn a_custom_resource_skips_clauses_that_only_protobuf_meets() {
        use Media as M;
        let partial =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let cases = [
            ("application/vnd.kubernetes.protobuf", None),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some((M::Json, None)),
            ),
            (
                "application/json;q=0.5,application/vnd.kubernetes.protobuf",
                Some((M::Json, None)),
            ),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Some((M::Json, None)),
            ),
            (
                "application/vnd.kubernetes.protobuf,application/yaml",
                Some((M::Yaml, None)),
            ),
            ("application/*", Some((M::Json, None))),
            (
                partial,
                Some((M::Protobuf, Some(Representation::Partial("v1")))),
            ),
            ("text/html", None),
        ];
        for (accept, expected) in cases {
            let output = custom_output(accept, &Query::default(), "");
            let agreed = output.ok().map(|output| (output.media, output.form));
            assert_eq!(agreed, expected, "{accept}");
        }
    }

    #[test]
    fn browsers_and_command_line_tools_get_indented_json() {
        let pretty = |query: &str, agent: &str| {
            output("", Produces::Objects, &Query::parse(query), agent)
                .unwrap()
                .pretty
        };
        assert!(pretty("", "curl/8.5"));
        assert!(!pretty("pretty=false", "curl/8.5"));
        assert!(pretty("pretty=true", "kubectl"));
        assert!(!pretty("pretty=yes", "kubectl"));
    }
}
