//! Learning from lists: how many objects an answer shows, and in how many bytes.
//!
//! The width of a list depends on object counts that a gateway does not hold. The answers that pass
//! show them. A [`ListObserver`] looks at such an answer while it streams, without holding any of
//! it back and without reading it all: the metadata of a list stands at its head, or at its very
//! end; a protobuf list is counted by hopping from object to object; of a JSON list the first
//! [`SAMPLE_BYTES`] or so are read and the rest is assumed to be alike; of a gzipped one no more
//! than that is inflated, and its length is what the trailer says.
//!
//! So a count is exact where the answer is protobuf and not compressed, fits into the sample, or is
//! a full page, and otherwise as good as the first objects resemble the others. Count times size
//! always makes up the length of the answer.
//!
//! Not here: what is made of an observation ([`fairgate_core::apf::counts`]).

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

/// How much of an answer is read where not all of it is.
const SAMPLE_BYTES: u64 = 32 << 10;

/// How much is read at most to see the first object to its end.
const MAX_SAMPLE_BYTES: u64 = 128 << 10;

/// Looks at the answer to a list while it streams.
///
/// Takes a few hundred bytes; 45 KiB more while the head of a gzipped answer is inflated, and up to
/// 2 KiB for the end of a JSON list whose metadata does not stand at its head, as with custom
/// resources.
#[derive(Debug)]
pub(super) struct ListObserver {
    asked: Asked,
    coding: Coding,
    reader: Reader,
}

/// What the request asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    limit: Option<u64>,
    had_selector: bool,
    from_continue: bool,
}

/// How the body is encoded in transit.
#[derive(Debug)]
enum Coding {
    /// Not at all; so many bytes were seen.
    Identity(u64),
    Gzip(Gzip),
}

/// The format of the list.
#[derive(Debug)]
enum Reader {
    Json(JsonList),
    Protobuf(ProtobufList),
}

/// What a reader has found.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// The answer is no list of objects, or one of another shape than the objects themselves.
    is_other: bool,
    /// The objects were found, though there may be none.
    has_items: bool,
    /// The list's metadata was read, so that `has_continue` and `remaining` are known.
    has_metadata: bool,
    has_continue: bool,
    remaining: Option<u64>,
    /// Objects seen, and whether they are all there are.
    items: u64,
    all_items: bool,
    /// Where the first object starts, and how many bytes those seen take.
    items_start: u64,
    items_bytes: u64,
}

impl ListObserver {
    /// Looks at the answer to `info` with this status and these headers.
    ///
    /// `None` if there is nothing to be learnt: it is no `200` to a list, or its encoding is not
    /// understood. Tables and metadata only have other sizes than the objects; most are found out
    /// by their head alone, and end without an observation.
    pub(super) fn new(info: &RequestInfo, status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let is_list = info.is_resource && info.verb == Verb::List && info.subresource().is_empty();
        if !is_list || status != StatusCode::OK {
            return None;
        }
        Some(Self {
            asked: Asked::of(info),
            coding: Coding::of(headers)?,
            reader: Reader::of(headers)?,
        })
    }

    /// Sees a piece of the body, as it comes from the upstream.
    ///
    /// Cost: up to some 100 µs in all for the sample (20 µs for usual JSON that is not compressed);
    /// for what follows the copying of up to 2 KiB a piece, or 15 ns for each object of a protobuf
    /// list.
    pub(super) fn data(&mut self, data: &[u8]) {
        let reader = &mut self.reader;
        match &mut self.coding {
            Coding::Identity(seen) => {
                *seen = seen.saturating_add(data.len() as u64);
                match reader {
                    Reader::Protobuf(list) => list.read(data),
                    Reader::Json(list) => list.read_sample(data),
                }
            }
            Coding::Gzip(gzip) => gzip.read(data, |decoded| {
                match reader {
                    Reader::Protobuf(list) => list.read(decoded),
                    Reader::Json(list) => list.read(decoded),
                }
                reader.wants_more()
            }),
        }
    }

    /// What the answer showed, once it has ended; `complete` tells that nothing of it is missing.
    ///
    /// `from_continue` is set also if objects after those of the answer are likely and the server
    /// does not say how many: the count is a lower bound in either case. `items_in_page` may be an
    /// estimate, as the module says.
    pub(super) fn finish(self, complete: bool) -> Option<ListObservation> {
        if !complete {
            return None;
        }
        let decoded_bytes = match &self.coding {
            Coding::Identity(seen) => *seen,
            Coding::Gzip(gzip) => gzip.decoded_bytes()?,
        };
        let facts = match self.reader {
            Reader::Json(list) => list.finish(),
            Reader::Protobuf(list) => list.finish(),
        };
        self.asked.conclude(&facts, decoded_bytes)
    }
}

impl Asked {
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

    fn conclude(self, facts: &Facts, decoded_bytes: u64) -> Option<ListObservation> {
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

impl Facts {
    /// How many objects there are in `total` bytes if all are like those seen.
    fn estimate(&self, total: u64) -> Option<u64> {
        if self.items == 0 || self.items_bytes == 0 {
            return None;
        }
        let bytes = u128::from(total.saturating_sub(self.items_start));
        let items = bytes * u128::from(self.items) / u128::from(self.items_bytes);
        Some(u64::try_from(items).unwrap_or(u64::MAX).max(self.items))
    }

    /// Whether `position` is far enough for a sample.
    fn is_sampled(&self, position: u64) -> bool {
        position >= MAX_SAMPLE_BYTES
            || (position >= SAMPLE_BYTES && self.items > 0 && !self.all_items)
    }

    /// Takes note of the list's kind and the version of its API.
    fn see_kind(&mut self, kind: &[u8]) {
        self.is_other |= !kind.ends_with(b"List");
    }

    /// Tables and metadata only belong to the group of the machinery.
    fn see_api_version(&mut self, api_version: &[u8]) {
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

impl Reader {
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
