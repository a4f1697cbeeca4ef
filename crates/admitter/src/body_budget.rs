//! What is held of requests that are being judged, within a budget of bytes for each core: their bodies, stored objects,
//! pages of lists, responses to dry runs, and objects that are decoded while their request waits for something.
//!
//! Nobody takes all of it: what a user has may become as much as is left for all. So one user alone has at most about half, and
//! the more users there are, the less each of them has. This is the dynamic threshold of shared packet buffers.
//!
//! Source: A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
//! Transactions on Networking 6(2), 1998, with α = 1.

use std::{collections::HashMap, error::Error, mem, pin::pin, sync::Arc};

use bytes::Bytes;
use fairgate_call::ClientBody;
use fairgate_core::{
    digest::User,
    sync::{Mutex, lock},
};
use fairgate_upstream::client::with_causes;
use http_body::Body;
use http_body_util::BodyExt as _;

/// The longest body that is judged, in bytes, as in kube-apiserver.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// How many bytes of bodies and objects a core may hold.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    /// Stored objects are read on other threads.
    used: Mutex<UsedBytes>,
    total: usize,
}

#[derive(Debug, Default)]
struct UsedBytes {
    all: usize,
    /// Users with no bytes are not there.
    by_user: HashMap<String, usize>,
}

/// What one request holds of the budget. It is returned when this is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    budget: Arc<BodyBudget>,
    user: Arc<User>,
    bytes: usize,
    /// How many of them are for texts.
    text_bytes: usize,
}

impl BodyBudget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            used: Mutex::default(),
            total,
        })
    }

    /// An empty share of the budget for a request of `user`.
    pub(crate) fn share(self: &Arc<Self>, user: &Arc<User>) -> BodyShare {
        BodyShare {
            budget: Arc::clone(self),
            user: Arc::clone(user),
            bytes: 0,
            text_bytes: 0,
        }
    }

    /// Takes bytes for a user, unless the user would have more than is left.
    fn take(&self, user: &str, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let mut used = lock(&self.used);
        let left = self.total - used.all;
        let own = used.by_user.get(user).copied().unwrap_or_default();
        let Some(own) = own.checked_add(bytes).filter(|own| *own <= left) else {
            return false;
        };
        match used.by_user.get_mut(user) {
            Some(known) => *known = own,
            None => {
                used.by_user.insert(user.to_owned(), own);
            }
        }
        used.all += bytes;
        true
    }

    fn give_back(&self, user: &str, bytes: usize) {
        let mut used = lock(&self.used);
        used.all -= bytes;
        if let Some(own) = used.by_user.get_mut(user) {
            *own -= bytes;
            if *own == 0 {
                used.by_user.remove(user);
            }
        }
    }
}

impl BodyShare {
    /// The length of the texts that are counted.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// The user whose request it is.
    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Counts a text. Returns `false`, and counts nothing, if there is no room for it.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let has_room = self.take_decoded(bytes);
        if has_room {
            self.text_bytes += bytes;
        }
        has_room
    }

    /// Counts what was decoded. Returns `false`, and counts nothing, if there is no room for it.
    pub(crate) fn take_decoded(&mut self, bytes: usize) -> bool {
        let has_room = self.budget.take(&self.user.name, bytes);
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }

    /// Another share for the same request, of no bytes yet.
    pub(crate) fn another(&self) -> Self {
        self.budget.share(&self.user)
    }

    /// Takes over the bytes of another share for the same request.
    pub(crate) fn join(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget));
        debug_assert_eq!(self.user.name, other.user.name);
        self.bytes += mem::take(&mut other.bytes);
        self.text_bytes += other.text_bytes;
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(&self.user.name, self.bytes);
        }
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

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::new(name, [User::AUTHENTICATED]))
    }

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
            let mut share = budget.share(&user("a"));
            let whole = match read(&mut body, &mut share).await {
                BufferedBody::Whole(bytes) => bytes.len() == length,
                BufferedBody::TooLong => false,
                other => panic!("{other:?}"),
            };
            assert_eq!(whole, is_whole, "{length}");
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), length);
        }
        assert_eq!(lock(&budget.used).all, 0, "shares are returned");
    }

    #[tokio::test]
    async fn chunks_are_held_in_one_buffer_that_is_as_long_as_the_body() {
        const CHUNK: usize = 50_000;
        let chunks = || (0..9u8).map(|number| Bytes::from(vec![number; CHUNK]));
        let frames = || chunks().map(|data| Ok::<_, Infallible>(Frame::data(data)));
        let expected = chunks().collect::<Vec<_>>().concat();
        let unannounced = StreamBody::new(futures_util::stream::iter(frames()));
        let mut share = BodyBudget::new(1 << 20).share(&user("a"));
        let read = collect(unannounced, MAX_BODY, &mut share).await.unwrap();
        assert_eq!(read, expected);
        assert_eq!(share.text_bytes(), expected.len());

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
        let mut share = budget.share(&user("a"));
        let body = |text: &'static str| http_body_util::Full::new(Bytes::from(text));
        assert_eq!(
            collect(body("123456"), 8, &mut share).await.unwrap(),
            "123456"
        );
        let mut other = share.another();
        let more = collect(body("12345"), 8, &mut other).await;
        assert_eq!(more, Err(ReadFailure::NoRoom));
        drop(other);
        let long = collect(body("123456789"), 8, &mut budget.share(&user("a"))).await;
        assert_eq!(long, Err(ReadFailure::TooLong));
        let mut all = budget.share(&user("a"));
        all.join(share);
        assert_eq!((all.text_bytes(), lock(&budget.used).all), (6, 6));
        drop(all);
        assert_eq!(lock(&budget.used).all, 0);
    }

    #[tokio::test]
    async fn without_room_nothing_more_is_read() {
        let budget = BodyBudget::new(10);
        let mut first = budget.share(&user("a"));
        assert!(first.take(6));
        let mut body = ClientBody::full("12345");
        let mut share = budget.share(&user("a"));
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

    #[test]
    fn a_user_has_at_most_as_much_as_is_left() {
        let budget = BodyBudget::new(1000);
        let mut first = budget.share(&user("a"));
        let mut second = budget.share(&user("a"));
        while first.take(1) && second.take(1) {}
        assert_eq!(first.text_bytes() + second.text_bytes(), 500);
        let mut other = budget.share(&user("b"));
        while other.take(1) {}
        assert_eq!(other.text_bytes(), 250);
        drop(first);
        assert!(other.take(100) && second.take(100));
        assert!(second.take(0));
        drop((second, other));
        let used = lock(&budget.used);
        assert_eq!((used.all, used.by_user.len()), (0, 0));
    }

    #[test]
    fn one_object_may_need_nearly_all() {
        let mut share = BodyBudget::new(1000).share(&user("a"));
        assert!(share.take(10) && !share.take(990));
        assert!(share.take_decoded(980));
        assert_eq!(share.text_bytes(), 10);
        assert!(!share.take(usize::MAX));
    }
}
