//! [`RequestInfo`]: what method, path and query ask for.
//!
//! Follows the API server's own reading to the letter, because a request must be classified as the
//! server behind us will understand it: the path is decoded once and never cleaned, and split after
//! decoding. Everything is bytes: a decoded path need not be UTF-8.
//!
//! Not here: how a query decodes (`query`, `options`), and whether the server has such a resource;
//! its routing is stricter than this.

use std::{ops::Range, time::Duration};

use super::{
    error::InfoError,
    options::ListOptions,
    query::{self, Parameters},
    verb::Verb,
};

/// The attributes of a request. Cheap to clone; one allocation for the decoded path, and a few more for
/// the list options, if the verb has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the request addresses an API resource.
    pub is_resource: bool,
    /// The verb; the lower-cased method for non-resource requests.
    pub verb: Verb,
    path: Box<[u8]>,
    api_prefix: Span,
    group: Span,
    version: Span,
    namespace: Span,
    resource: Span,
    subresource: Span,
    name: Span,
    parts: Span,
    /// The name a `metadata.name` field selector requires, when the path has none.
    selector_name: Option<Box<[u8]>>,
    /// List options, for requests that can have them (`list`, `watch`, `deletecollection` of a
    /// resource). `None` also when such a request has no query, which means
    /// [`ListOptions::default`].
    pub list: Option<Box<ListOptions>>,
    /// The client's own deadline (`?timeout=`), for requests that have one: long-running requests
    /// do not. The server puts its maximum in the place of zero and of whatever exceeds it. An
    /// error is the text that follows `invalid timeout specified in the request URL - `.
    pub timeout: Option<Result<Duration, Box<str>>>,
}

/// A byte range of the decoded path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start..self.end
    }

    fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Subresources that are long-running, whatever resource they are of.
const LONG_RUNNING: [&[u8]; 5] = [b"attach", b"exec", b"proxy", b"log", b"portforward"];

impl RequestInfo {
    /// Reads a request: its method as sent, and the path and the query (what follows the first `?`)
    /// of its target, neither of them decoded.
    ///
    /// Linear in the length of the target, but for a field selector's terms, which get sorted.
    /// An absent or empty query is not parsed.
    ///
    /// # Errors
    ///
    /// Where the server would refuse the request unread; see [`InfoError`]. A malformed query is
    /// no error: pairs that do not decode count as absent, as for the server.
    pub fn parse(
        method: &str,
        raw_path: impl AsRef<[u8]>,
        raw_query: Option<&str>,
    ) -> Result<Self, InfoError> {
        let (raw_path, raw_query) = (raw_path.as_ref(), raw_query.unwrap_or_default().as_bytes());
        if raw_path
            .iter()
            .chain(raw_query)
            // Go refuses control characters in a URL, and a blank ends the target of a request line.
            .any(|&b| b <= b' ' || b == 0x7f)
        {
            return Err(InfoError::BadByte);
        }
        let path = query::decode_path(raw_path).ok_or(InfoError::BadEscape)?;
        let (mut info, form) = Self::locate(method, path)?;
        if raw_query.is_empty() {
            info.settle_verb(&Parameters::default());
        } else {
            info.read_query(&Parameters::parse(raw_query)?, form);
        }
        Ok(info)
    }

    /// Reads a request from its whole target in origin form, as it is in a request line or an audit
    /// event: cut at the first `?`, then [`RequestInfo::parse`].
    ///
    /// # Errors
    ///
    /// As [`RequestInfo::parse`].
    pub fn from_target(method: &str, target: &str) -> Result<Self, InfoError> {
        match target.split_once('?') {
            Some((path, query)) => Self::parse(method, path, Some(query)),
            None => Self::parse(method, target, None),
        }
    }

    /// The decoded path, as received.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// `api` or `apis`; empty otherwise. `/apis/GROUP/VERSION` has it too, without being a resource.
    pub fn api_prefix(&self) -> &[u8] {
        self.at(self.api_prefix)
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &[u8] {
        self.at(self.group)
    }

    /// The API version.
    pub fn version(&self) -> &[u8] {
        self.at(self.version)
    }

    /// The namespace; empty for cluster scope and all namespaces.
    pub fn namespace(&self) -> &[u8] {
        self.at(self.namespace)
    }

    /// The resource, plural.
    pub fn resource(&self) -> &[u8] {
        self.at(self.resource)
    }

    /// The subresource.
    pub fn subresource(&self) -> &[u8] {
        self.at(self.subresource)
    }

    /// The object's name, from the path or a field selector.
    pub fn name(&self) -> &[u8] {
        self.selector_name
            .as_deref()
            .unwrap_or_else(|| self.at(self.name))
    }

    /// All segments of the path from the resource on; none for non-resource requests.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.at(self.parts);
        self.is_resource
            .then(|| parts.split(|&b| b == b'/'))
            .into_iter()
            .flatten()
    }

    /// Whether the request follows changes.
    pub fn is_watch(&self) -> bool {
        self.verb == Verb::Watch
    }

    /// Whether kube-apiserver takes the request for long-running: no deadline, and but for watches
    /// no flow control.
    ///
    /// A client can make any resource path long-running by its third segment; what bypasses a limit
    /// for that reason needs a limit of its own.
    pub fn is_long_running(&self) -> bool {
        match self.verb {
            Verb::Watch | Verb::Proxy => true,
            _ if self.is_resource => LONG_RUNNING.contains(&self.subresource()),
            _ => self.path.starts_with(b"/debug/pprof/"),
        }
    }

    fn at(&self, span: Span) -> &[u8] {
        &self.path[span.range()]
    }
}

/// How a path names its verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It does not; the method does.
    Plain,
    /// By a `/watch/` or `/proxy/` segment.
    Legacy,
}

/// The most leading segments that decide anything: prefix, group, version, `watch`, `namespaces`,
/// a namespace, resource, name, subresource.
const DECISIVE: usize = 9;

impl RequestInfo {
    /// Reads method and path.
    fn locate(method: &str, path: Box<[u8]>) -> Result<(Self, Form), InfoError> {
        let mut segments = [Span::default(); DECISIVE];
        let (count, end) = split(&path, &mut segments);
        let segments = &segments[..count];
        let mut info = Self {
            path,
            ..Self::default()
        };
        let form = if let Some(rest) = info.take_version(segments) {
            info.read_resource(method, rest, end)?
        } else {
            info.verb = Verb::of_non_resource(method);
            Form::Plain
        };
        Ok((info, form))
    }

    /// Reads prefix, group and version, if the path is a resource's. At least one segment is left.
    fn take_version<'s>(&mut self, segments: &'s [Span]) -> Option<&'s [Span]> {
        let [prefix, rest @ ..] = segments else {
            return None;
        };
        let has_group = match self.at(*prefix) {
            b"api" => false,
            b"apis" => true,
            _ => return None,
        };
        let [first, second, more @ ..] = rest else {
            return None;
        };
        self.api_prefix = *prefix;
        if !has_group {
            self.version = *first;
            return Some(&rest[1..]);
        }
        if more.is_empty() {
            return None;
        }
        self.group = *first;
        self.version = *second;
        Some(more)
    }

    /// Reads what follows the version: verb, namespace, resource, name, subresource.
    fn read_resource(
        &mut self,
        method: &str,
        mut segments: &[Span],
        end: usize,
    ) -> Result<Form, InfoError> {
        self.is_resource = true;
        let form = match segments {
            [first, rest @ ..] if matches!(self.at(*first), b"watch" | b"proxy") => {
                if rest.is_empty() {
                    return Err(InfoError::Unclassifiable);
                }
                self.verb = match self.at(*first) {
                    b"watch" => Verb::Watch,
                    _ => Verb::Proxy,
                };
                segments = rest;
                Form::Legacy
            }
            _ => {
                self.verb = Verb::of_resource(method);
                Form::Plain
            }
        };
        if let [word, namespace, rest @ ..] = segments
            && self.at(*word) == b"namespaces"
        {
            self.namespace = *namespace;
            // `/namespaces/x/status` is the namespace itself, not a resource `status` in it.
            if let [third, ..] = rest
                && !matches!(self.at(*third), b"status" | b"finalize")
            {
                segments = rest;
            }
        }
        let nth = |n: usize| segments.get(n).copied().unwrap_or_default();
        self.resource = nth(0);
        self.name = nth(1);
        // Everything behind the name is the path for the proxied server.
        if self.verb != Verb::Proxy {
            self.subresource = nth(2);
        }
        self.parts = Span {
            start: self.resource.start,
            end,
        };
        Ok(form)
    }

    /// Reads what depends on the query.
    fn read_query(&mut self, parameters: &Parameters<'_>, form: Form) {
        // Asked before the verb is settled, which turns a `get` without a name into a list.
        let is_read = self.verb == Verb::Get && self.has_no_name();
        self.settle_verb(parameters);
        if self.is_resource
            && matches!(self.verb, Verb::List | Verb::Watch | Verb::DeleteCollection)
        {
            let (options, name) = ListOptions::decode(parameters, form == Form::Plain);
            // As in the original, only for what the method made a `get`: a deletecollection has no name.
            self.selector_name = name.filter(|_| is_read);
            self.list = Some(Box::new(options));
        }
        if !self.is_long_running() {
            self.timeout = parameters.deadline();
        }
    }

    /// Turns `get` and `delete` of no name into the verbs of collections.
    fn settle_verb(&mut self, parameters: &Parameters<'_>) {
        if !self.has_no_name() {
            return;
        }
        match self.verb {
            Verb::Get if parameters.wants_watch() => self.verb = Verb::Watch,
            Verb::Get => self.verb = Verb::List,
            Verb::Delete => self.verb = Verb::DeleteCollection,
            _ => {}
        }
    }

    /// Whether it is a resource request whose path has no name.
    fn has_no_name(&self) -> bool {
        self.is_resource && self.name.is_empty()
    }
}

/// Splits a path without its outer slashes into its first segments; empty ones inside count.
///
/// Returns how many there are, as far as they fit, and where the last one of all ends.
fn split(path: &[u8], segments: &mut [Span; DECISIVE]) -> (usize, usize) {
    let is_other = |&b: &u8| b != b'/';
    let Some(mut start) = path.iter().position(is_other) else {
        return (0, 0);
    };
    let end = path
        .iter()
        .rposition(is_other)
        .map_or(start, |last| last + 1);
    for (index, segment) in segments.iter_mut().enumerate() {
        let slash = path[start..end].iter().position(|&b| b == b'/');
        let stop = slash.map_or(end, |offset| start + offset);
        *segment = Span { start, end: stop };
        if slash.is_none() {
            return (index + 1, end);
        }
        start = stop + 1;
    }
    (DECISIVE, end)
}
