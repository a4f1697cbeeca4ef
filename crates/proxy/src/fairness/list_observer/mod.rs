//! Learns from the replies to list requests how many objects there are, and how large they are.
//!
//! The width of a list request depends on object counts, which the gateway does not have. The replies show them. A
//! [`ListObserver`] sees such a reply while it streams, without delaying it and without parsing all of it. The
//! metadata of a list is at its beginning or at its very end. The objects of a protobuf list are counted by skipping
//! from one to the next. Of a JSON list about the first [`SAMPLE_BYTES`] are parsed, and the rest is assumed to be
//! similar. Of a gzipped list only that much is decompressed, and its length is taken from the trailer.
//!
//! So a count is exact if the reply is uncompressed protobuf, fits into the sample, or is a full page; otherwise it
//! is as good as the first objects are representative. Count times average size is always the length of the reply.
//!
//! Not here: how observations are used ([`fairgate_core::apf::counts`]).

mod gzip;
mod json;
mod protobuf;

#[cfg(test)]
mod tests;

use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

use self::{gzip::Gzip, json::JsonList, protobuf::ProtobufList};
use fairgate_core::{
    apf::counts::ListObservation,
    digest::{RequestInfo, Verb},
};

/// How many bytes of a long reply are parsed.
const SAMPLE_BYTES: u64 = 32 << 10;

/// The most bytes that are parsed to find the end of the first object.
const MAX_SAMPLE_BYTES: u64 = 128 << 10;

/// Observes the reply to a list request while it streams.
///
/// It takes a few hundred bytes of memory; 45 KiB more while the beginning of a gzipped reply is decompressed, and up
/// to 2 KiB for the end of a JSON list whose metadata is not at its beginning, as with custom resources.
#[derive(Debug)]
pub(super) struct ListObserver {
    request: ListRequest,
    coding: Coding,
    reader: ListReader,
}

/// What the request asked for.
#[derive(Clone, Copy, Debug)]
struct ListRequest {
    limit: Option<u64>,
    had_selector: bool,
    from_continue: bool,
}

/// How the body is encoded in transit.
#[derive(Debug)]
enum Coding {
    /// Not encoded; this many bytes were observed.
    Identity(u64),
    Gzip(Gzip),
}

/// The format of the list.
#[derive(Debug)]
enum ListReader {
    Json(JsonList),
    Protobuf(ProtobufList),
}

/// What a reader found.
#[derive(Clone, Debug, Default)]
struct ListFacts {
    /// The reply is not a list of the objects themselves.
    is_other: bool,
    /// The list of objects was found; it may be empty.
    has_items: bool,
    /// The list's metadata was parsed, so that `has_continue` and `remaining` are known.
    has_metadata: bool,
    has_continue: bool,
    remaining: Option<u64>,
    /// Objects observed, and whether they are all objects of the list.
    items: u64,
    all_items: bool,
    /// Where the first object starts, and how many bytes the observed objects take.
    items_start: u64,
    items_bytes: u64,
}

impl ListObserver {
    /// Observes the reply to `info` with this status and these headers.
    ///
    /// `None` if there is nothing to learn: it is not a `200` to a list, or its encoding is not supported. Tables and
    /// metadata-only lists have other sizes than the objects; most are recognized by their beginning, and give no
    /// observation.
    pub(super) fn new(info: &RequestInfo, status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let is_list = info.is_resource && info.verb == Verb::List && info.subresource().is_empty();
        if !is_list || status != StatusCode::OK {
            return None;
        }
        Some(Self {
            request: ListRequest::of(info),
            coding: Coding::of(headers)?,
            reader: ListReader::of(headers)?,
        })
    }

    /// Observes a part of the body, as it arrives from the upstream.
    ///
    /// Cost: up to about 100 µs in total for the sample (20 µs for typical uncompressed JSON); after that copying
    /// up to 2 KiB per call, or 15 ns for each object of a protobuf list.
    pub(super) fn data(&mut self, data: &[u8]) {
        let reader = &mut self.reader;
        match &mut self.coding {
            Coding::Identity(seen) => {
                *seen = seen.saturating_add(data.len() as u64);
                match reader {
                    ListReader::Protobuf(list) => list.read(data),
                    ListReader::Json(list) => list.read_sample(data),
                }
            }
            Coding::Gzip(gzip) => gzip.read(data, |decoded| {
                match reader {
                    ListReader::Protobuf(list) => list.read(decoded),
                    ListReader::Json(list) => list.read(decoded),
                }
                reader.wants_more()
            }),
        }
    }

    /// The observation, once the reply has ended; `complete` says whether it is complete.
    ///
    /// `from_continue` is also set if more objects are likely to follow and the server does not say how many: the count
    /// is a lower bound in either case. `items_in_page` may be an estimate, as the module describes.
    pub(super) fn finish(self, complete: bool) -> Option<ListObservation> {
        if !complete {
            return None;
        }
        let decoded_bytes = match &self.coding {
            Coding::Identity(seen) => *seen,
            Coding::Gzip(gzip) => gzip.decoded_bytes()?,
        };
        let facts = match self.reader {
            ListReader::Json(list) => list.finish(),
            ListReader::Protobuf(list) => list.finish(),
        };
        self.request.conclude(&facts, decoded_bytes)
    }
}

impl ListRequest {
    fn of(info: &RequestInfo) -> Self {
        let Some(list) = &info.list else {
            return Self {
                limit: None,
                had_selector: false,
                from_continue: false,
            };
        };
        Self {
            limit: u64::try_from(list.limit).ok().filter(|&limit| limit > 0),
            had_selector: list.has_selector(),
            from_continue: list.has_continue,
        }
    }

    fn conclude(self, facts: &ListFacts, decoded_bytes: u64) -> Option<ListObservation> {
        if facts.is_other || !facts.has_items {
            return None;
        }
        let is_last = !facts.has_continue && (facts.has_metadata || self.limit.is_none());
        // A page that is not the last is full.
        let full_page = self.limit.filter(|_| facts.has_continue);
        let items_in_page = if facts.all_items {
            Some(facts.items)
        } else {
            full_page.or_else(|| facts.estimate(decoded_bytes))
        };
        let from_continue = self.from_continue || (!is_last && facts.remaining.is_none());
        if items_in_page.is_none() && (from_continue || self.had_selector) {
            return None;
        }
        Some(ListObservation {
            items_in_page,
            remaining_item_count: facts.remaining,
            decoded_bytes,
            limit: self.limit,
            had_selector: self.had_selector,
            from_continue,
        })
    }
}

impl ListFacts {
    /// How many objects there are in `total` bytes if all are like those observed.
    fn estimate(&self, total: u64) -> Option<u64> {
        if self.items == 0 || self.items_bytes == 0 {
            return None;
        }
        let bytes = u128::from(total.saturating_sub(self.items_start));
        let items = bytes * u128::from(self.items) / u128::from(self.items_bytes);
        Some(u64::try_from(items).unwrap_or(u64::MAX).max(self.items))
    }

    /// Whether the sample is large enough at `position`.
    fn is_sampled(&self, position: u64) -> bool {
        position >= MAX_SAMPLE_BYTES
            || (position >= SAMPLE_BYTES && self.items > 0 && !self.all_items)
    }

    /// Checks the list's kind.
    fn check_kind(&mut self, kind: &[u8]) {
        self.is_other |= !kind.ends_with(b"List");
    }

    /// Checks the list's API version: tables and metadata-only lists are of the group `meta.k8s.io`.
    fn check_api_version(&mut self, api_version: &[u8]) {
        self.is_other |= api_version.starts_with(b"meta.k8s.io/");
    }
}

impl Coding {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut codings = headers.get_all(CONTENT_ENCODING).iter();
        let coding = codings.next().map_or(&b""[..], |coding| coding.as_bytes());
        if codings.next().is_some() {
            return None;
        }
        match coding.trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Some(Self::Identity(0)),
            b"gzip" => Some(Self::Gzip(Gzip::default())),
            _ => None,
        }
    }
}

impl ListReader {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let media_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let mut parts = media_type.split(';').map(str::trim);
        let essence = parts.next()?;
        if parts.any(|parameter| parameter.starts_with("as=")) {
            return None;
        }
        if essence.eq_ignore_ascii_case("application/json") {
            Some(Self::Json(JsonList::default()))
        } else if essence.eq_ignore_ascii_case("application/vnd.kubernetes.protobuf") {
            Some(Self::Protobuf(ProtobufList::default()))
        } else {
            None
        }
    }

    /// Whether the sample is not large enough yet.
    fn wants_more(&self) -> bool {
        match self {
            Self::Json(list) => list.wants_more(),
            Self::Protobuf(list) => list.wants_more(),
        }
    }
}
