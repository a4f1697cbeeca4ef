//! URLs: `url`, `isURL` and the parts of a URL.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/urls.go` and `cost.go`.

use std::any::Any;

use super::go_text::{fixed, tenth, text};
use super::opaque_types::{opaque, unconvertible};
use super::url_syntax::{ParsedUrl, check_request_uri};
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::types::CelType;
use crate::value::{CelError, CelMap, CelOpaque, CelResult, CelValue, CelWork};

/// The name of the CEL type of URLs.
const URL: &str = "kubernetes.URL";

/// The functions of URLs.
#[derive(Clone, Copy, Debug)]
pub struct UrlLibrary;

/// A URL.
#[derive(Debug)]
struct UrlValue(ParsedUrl);

impl CelOpaque for UrlValue {
    fn type_name(&self) -> &str {
        URL
    }

    fn go_type(&self) -> &'static str {
        "cel.URL"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn CelOpaque) -> Option<bool> {
        let other = other.as_any().downcast_ref::<Self>()?;
        Some(self.print() == other.print())
    }

    /// Parts are copied or decoded character by character.
    fn work(&self) -> u64 {
        self.0.text_len() as u64
    }

    fn conversion_error(&self) -> Option<String> {
        Some(unconvertible("*url.URL", self))
    }

    fn print(&self) -> String {
        self.0.text()
    }
}

type Part = fn(&ParsedUrl) -> String;

impl CelLibrary for UrlLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        let of = || CelType::object(URL);
        to.function(
            CelFunctionDecl::new("url")
                .cost(|args, _| Some(tenth(args[0].cost_size())))
                .overload(CelOverload::global(
                    "string_to_url",
                    [CelType::String],
                    of(),
                    url,
                )),
        );
        to.function(CelFunctionDecl::new("isURL").overload(CelOverload::global(
            "is_url_string",
            [CelType::String],
            CelType::Bool,
            Metered(is_url),
        )));
        let parts: [(&str, &str, Part); 5] = [
            ("getScheme", "url_get_scheme", |of| of.scheme.clone()),
            ("getHost", "url_get_host", |of| of.host.clone()),
            ("getHostname", "url_get_hostname", |of| {
                of.host_and_port().0.to_owned()
            }),
            ("getPort", "url_get_port", |of| {
                of.host_and_port().1.to_owned()
            }),
            (
                "getEscapedPath",
                "url_get_escaped_path",
                ParsedUrl::escaped_path,
            ),
        ];
        for (name, id, part) in parts {
            to.function(CelFunctionDecl::new(name).overload(CelOverload::member(
                id,
                [of()],
                CelType::String,
                fixed(move |args| Ok(part(parsed(args)?).into())),
            )));
        }
        let values = CelType::map(CelType::String, CelType::list(CelType::String));
        to.function(
            CelFunctionDecl::new("getQuery").overload(CelOverload::member(
                "url_get_query",
                [of()],
                values,
                query,
            )),
        );
    }
}

fn parsed<'v>(args: &'v [CelValue<'_>]) -> Result<&'v ParsedUrl, CelError> {
    opaque(args, 0).map(|value: &UrlValue| &value.0)
}

/// The original counts nothing of the length.
fn is_url<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let text = text(args, 0)?;
    work.burn(text.len() as u64)?;
    Ok(check_request_uri(text).is_ok().into())
}

fn url<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let parsed = ParsedUrl::parse(text(args, 0)?);
    let url = parsed.map_err(|why| {
        CelError::new(format!(
            "URL parse error during conversion from string: {why}"
        ))
    })?;
    Ok(CelValue::opaque(UrlValue(url)))
}

fn query<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let mut entries = Vec::new();
    for (name, values) in parsed(args)?.parameters() {
        let values = values.into_iter().map(CelValue::from).collect();
        entries.push((CelValue::from(name), CelValue::list(values)?));
    }
    CelMap::new(entries).map(CelValue::Map)
}
