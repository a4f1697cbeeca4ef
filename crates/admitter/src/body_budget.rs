//! What is held of requests that are being judged, within a budget of bytes for each core: their bodies, stored objects,
//! pages of lists, responses to dry runs.

use std::{
    error::Error,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use fairgate_call::ClientBody;
use fairgate_upstream::client::with_causes;
use http_body::Body;
use http_body_util::BodyExt as _;

/// The longest body that is judged, in bytes, as in kube-apiserver.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// How many bytes of bodies and objects a core may hold. Decoded objects take several times as much.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    /// Stored objects are read on other threads.
    used: AtomicUsize,
    total: usize,
}

/// A part of the budget, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl BodyBudget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            total,
        })
    }

    /// An empty share of the budget.
    pub(crate) fn share(self: &Arc<Self>) -> BodyShare {
        BodyShare {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }
}

impl BodyShare {
    /// The number of bytes of this share.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes. Returns `false`, and takes none, if the budget has fewer left.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let total = self.budget.total;
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= total);
        let order = Ordering::Relaxed;
        let has_room = (self.budget.used).fetch_update(order, order, more).is_ok();
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }

    /// Another share of the same budget, of no bytes yet.
    pub(crate) fn another(&self) -> Self {
        self.budget.share()
    }

    /// Takes over the bytes of another share of the same budget.
    pub(crate) fn join(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget));
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Why a response was not read to its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadFailure {
    /// It is longer than it may be.
    #[error("the response is too long")]
    TooLong,
    /// The budget is used up.
    #[error("too many bytes of requests are being judged")]
    NoRoom,
    /// Anything else, in a few words.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for ReadFailure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Reads a response of at most `limit` bytes. Whatever is read is counted in the share as it arrives.
pub(crate) async fn collect<B>(
    body: B,
    limit: usize,
    share: &mut BodyShare,
) -> Result<Bytes, ReadFailure>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = pin!(body);
    let mut chunks = Chunks::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| with_causes(&*error.into()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if chunks.len() + data.len() > limit {
            return Err(ReadFailure::TooLong);
        }
        if !share.take(data.len()) {
            return Err(ReadFailure::NoRoom);
        }
        chunks.push(data, body.size_hint().exact());
    }
    Ok(chunks.into_bytes())
}

/// What has been read of a body: the only chunk as it came, several of them in one buffer. So nothing is held twice, and
/// the buffer of a connection is not held because of a small chunk in it.
#[derive(Debug)]
enum Chunks {
    One(Bytes),
    Joined(Vec<u8>),
}

impl Default for Chunks {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl Chunks {
    fn len(&self) -> usize {
        match self {
            Self::One(only) => only.len(),
            Self::Joined(all) => all.len(),
        }
    }

    /// Adds a chunk, after which `rest` bytes follow, if that is known.
    fn push(&mut self, data: Bytes, rest: Option<u64>) {
        match self {
            Self::One(only) if only.is_empty() => *self = Self::One(data),
            Self::One(only) => {
                let mut all = Vec::new();
                make_room(&mut all, only.len() + data.len(), rest);
                all.extend_from_slice(only);
                all.extend_from_slice(&data);
                *self = Self::Joined(all);
            }
            Self::Joined(all) => {
                make_room(all, data.len(), rest);
                all.extend_from_slice(&data);
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::One(only) => only,
            Self::Joined(all) => all.into(),
        }
    }
}

/// Makes room for `more` bytes, after which `rest` follow, if that is known. The buffer doubles at most: it grows with what
/// has been sent, not with what was announced.
fn make_room(all: &mut Vec<u8>, more: usize, rest: Option<u64>) {
    let needed = all.len() + more;
    if needed > all.capacity() {
        let doubled = needed.max(2 * all.capacity());
        let whole = rest.map(|rest| usize::try_from(rest).unwrap_or(usize::MAX));
        let whole = whole.map_or(usize::MAX, |rest| needed.saturating_add(rest));
        all.reserve_exact(doubled.min(whole) - all.len());
    }
}

/// A body that was read, or why it was not.
#[derive(Debug)]
pub(crate) enum BufferedBody {
    Whole(Bytes),
    /// It is longer than [`MAX_BODY`].
    TooLong,
    /// The budget is used up.
    NoRoom,
    /// The client did not send all of it.
    Broken,
}

/// Reads a body, and puts it back, so that it can be forwarded.
pub(crate) async fn read(body: &mut ClientBody, share: &mut BodyShare) -> BufferedBody {
    let mut chunks = Chunks::default();
    let failure = loop {
        let data = match body.frame().await {
            None => break None,
            Some(Err(_)) => return BufferedBody::Broken,
            Some(Ok(frame)) => frame.into_data(),
        };
        let Ok(data) = data else { continue };
        let has_room = share.take(data.len());
        chunks.push(data, body.size_hint().exact());
        if chunks.len() > MAX_BODY {
            break Some(BufferedBody::TooLong);
        }
        if !has_room {
            break Some(BufferedBody::NoRoom);
        }
    };
    let read = chunks.into_bytes();
    if !read.is_empty() {
        body.put_back(vec![read.clone()]);
    }
    failure.unwrap_or(BufferedBody::Whole(read))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn a_body_is_read_within_the_budget_and_can_be_read_again() {
        let budget = BodyBudget::new(8 << 20);
        for (length, is_whole) in [
            (0, true),
            (5, true),
            (MAX_BODY, true),
            (MAX_BODY + 1, false),
        ] {
            let mut body = ClientBody::full(vec![b'x'; length]);
            let mut share = budget.share();
            let whole = match read(&mut body, &mut share).await {
                BufferedBody::Whole(bytes) => bytes.len() == length,
                BufferedBody::TooLong => false,
                other => panic!("{other:?}"),
            };
            assert_eq!(whole, is_whole, "{length}");
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), length);
        }
        assert_eq!(
            budget.used.load(Ordering::Relaxed),
            0,
            "shares are returned"
        );
    }

    #[tokio::test]
    async fn chunks_are_held_in_one_buffer_that_is_as_long_as_the_body() {
        const CHUNK: usize = 50_000;
        let chunks = || (0..9u8).map(|number| Bytes::from(vec![number; CHUNK]));
        let frames = || chunks().map(|data| Ok::<_, Infallible>(Frame::data(data)));
        let expected = chunks().collect::<Vec<_>>().concat();
        let unannounced = StreamBody::new(futures_util::stream::iter(frames()));
        let mut share = BodyBudget::new(1 << 20).share();
        let read = collect(unannounced, MAX_BODY, &mut share).await.unwrap();
        assert_eq!(read, expected);
        assert_eq!(share.bytes(), expected.len());

        let mut announced = Chunks::default();
        let mut rest = expected.len();
        for data in chunks() {
            rest -= CHUNK;
            announced.push(data, Some(rest as u64));
        }
        let Chunks::Joined(all) = announced else {
            panic!("{announced:?}");
        };
        assert_eq!(
            (all.len(), all.capacity()),
            (expected.len(), expected.len())
        );

        let mut only = Chunks::default();
        let data = Bytes::from(vec![0; CHUNK]);
        only.push(Bytes::new(), None);
        only.push(data.clone(), Some(1 << 40));
        assert_eq!(
            only.into_bytes().as_ptr(),
            data.as_ptr(),
            "it is not copied"
        );
        let mut little = Chunks::default();
        little.push(Bytes::from_static(b"ab"), Some(1 << 40));
        little.push(Bytes::from_static(b"c"), Some(1 << 40));
        let Chunks::Joined(all) = little else {
            panic!("{little:?}");
        };
        assert!(all.capacity() < 64, "not as much as was announced");
    }

    #[tokio::test]
    async fn responses_are_counted_while_they_are_read() {
        let budget = BodyBudget::new(10);
        let mut share = budget.share();
        let body = |text: &'static str| http_body_util::Full::new(Bytes::from(text));
        assert_eq!(
            collect(body("123456"), 8, &mut share).await.unwrap(),
            "123456"
        );
        let mut other = share.another();
        let more = collect(body("12345"), 8, &mut other).await;
        assert_eq!(more, Err(ReadFailure::NoRoom));
        drop(other);
        let long = collect(body("123456789"), 8, &mut budget.share()).await;
        assert_eq!(long, Err(ReadFailure::TooLong));
        let mut all = budget.share();
        all.join(share);
        assert_eq!((all.bytes(), budget.used.load(Ordering::Relaxed)), (6, 6));
        drop(all);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn without_room_nothing_more_is_read() {
        let budget = BodyBudget::new(10);
        let mut first = budget.share();
        assert!(first.take(6));
        let mut body = ClientBody::full("12345");
        let mut share = budget.share();
        assert!(matches!(
            read(&mut body, &mut share).await,
            BufferedBody::NoRoom
        ));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "12345");
        drop(first);
        let mut body = ClientBody::full("12345");
        assert!(matches!(
            read(&mut body, &mut share).await,
            BufferedBody::Whole(_)
        ));
    }
}
