//! What is held of requests that are being evaluated, within a budget of bytes for each core: their bodies, stored objects,
//! pages of lists, responses to dry runs, and objects that are decoded while their request waits for something.
//!
//! Nobody takes all of it: [`ByteBudget`] says how much a user may have. An unfinished body may be given up while it is read.

use std::{error::Error, pin::pin, sync::Arc};

use bytes::Bytes;
use fairgate_base::account::{ByteBudget, ByteShare};
use fairgate_call::ClientBody;
use fairgate_core::digest::User;
use fairgate_upstream::client::with_causes;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::sync::Notify;

use crate::limits::lack::Lack;

/// The longest body that is evaluated, in bytes, as in kube-apiserver.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// What one request holds of the budget. It is returned when this is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    held: ByteShare,
    user: Arc<User>,
    /// How many of the bytes are for texts.
    text_bytes: usize,
}

impl BodyShare {
    /// An empty share of a budget for a request of `user`.
    pub(crate) fn new(budget: &Arc<ByteBudget>, user: &Arc<User>) -> Self {
        Self {
            held: budget.share(user),
            user: Arc::clone(user),
            text_bytes: 0,
        }
    }

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
        self.held.take(bytes)
    }

    /// Another share for the same request, of no bytes yet.
    pub(crate) fn another(&self) -> Self {
        Self {
            held: self.held.another(),
            user: Arc::clone(&self.user),
            text_bytes: 0,
        }
    }

    /// Takes over the bytes of another share for the same request.
    pub(crate) fn join(&mut self, other: Self) {
        self.held.join(other.held);
        self.text_bytes += other.text_bytes;
    }
}

/// Why a response was not read to its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadFailure {
    /// It is longer than it may be.
    #[error("the response is too long")]
    TooLong,
    /// The budget is used up.
    #[error("too many bytes of requests are being evaluated")]
    NoRoom,
    /// Time, or a thread to decode it.
    #[error("{0}")]
    Lacking(Lack),
    /// The upstream answered 404, but not that there is no such object: it does not serve the path, or a proxy answered.
    #[error("{0}")]
    NotServed(String),
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
    let (read, failure) = buffered(body, share).await;
    if !read.is_empty() && !matches!(failure, Some(BufferedBody::Broken)) {
        body.put_back(vec![read.clone()]);
    }
    failure.unwrap_or(BufferedBody::Whole(read))
}

/// Reads a body: what of it was read, and why no more.
async fn buffered<B>(body: &mut B, share: &mut BodyShare) -> (Bytes, Option<BufferedBody>)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut chunks = Chunks::default();
    let mut given_up = None::<Arc<Notify>>;
    let failure = loop {
        let frame = match &given_up {
            None => body.frame().await,
            Some(given_up) => tokio::select! {
                // A body that was given up is not read on, however fast it comes.
                biased;
                () = given_up.notified() => break Some(BufferedBody::NoRoom),
                frame = body.frame() => frame,
            },
        };
        let data = match frame {
            None => break None,
            Some(Err(_)) => break Some(BufferedBody::Broken),
            Some(Ok(frame)) => frame.into_data(),
        };
        let Ok(data) = data else { continue };
        let has_room = share.take(data.len());
        chunks.push(data, body.size_hint().exact());
        // Before the budget: a client that gets 429 tries again, and a body that is too long never fits.
        if chunks.len() > MAX_BODY {
            break Some(BufferedBody::TooLong);
        }
        if !has_room {
            break Some(BufferedBody::NoRoom);
        }
        // A body that comes in one piece, as most do, is never unfinished, and costs no registration.
        if given_up.is_none() && !body.is_end_stream() {
            given_up = Some(share.held.begin_unfinished());
        }
    };
    let is_given_up = !share.held.end_unfinished();
    let failure = failure.or(is_given_up.then_some(BufferedBody::NoRoom));
    (chunks.into_bytes(), failure)
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
        let budget = ByteBudget::new(8 << 20);
        for (length, is_whole) in [
            (0, true),
            (5, true),
            (MAX_BODY, true),
            (MAX_BODY + 1, false),
        ] {
            let mut body = ClientBody::full(vec![b'x'; length]);
            let mut share = BodyShare::new(&budget, &user("a"));
            let whole = match read(&mut body, &mut share).await {
                BufferedBody::Whole(bytes) => bytes.len() == length,
                BufferedBody::TooLong => false,
                other => panic!("{other:?}"),
            };
            assert_eq!(whole, is_whole, "{length}");
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), length);
        }
        assert_eq!(budget.held().now, 0, "shares are returned");
    }

    #[tokio::test]
    async fn chunks_are_held_in_one_buffer_that_is_as_long_as_the_body() {
        const CHUNK: usize = 50_000;
        let chunks = || (0..9u8).map(|number| Bytes::from(vec![number; CHUNK]));
        let frames = || chunks().map(|data| Ok::<_, Infallible>(Frame::data(data)));
        let expected = chunks().collect::<Vec<_>>().concat();
        let unannounced = StreamBody::new(futures_util::stream::iter(frames()));
        let mut share = BodyShare::new(&ByteBudget::new(1 << 20), &user("a"));
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
        let budget = ByteBudget::new(10);
        let mut share = BodyShare::new(&budget, &user("a"));
        let body = |text: &'static str| http_body_util::Full::new(Bytes::from(text));
        assert_eq!(
            collect(body("123456"), 8, &mut share).await.unwrap(),
            "123456"
        );
        let mut other = share.another();
        let more = collect(body("12345"), 8, &mut other).await;
        assert_eq!(more, Err(ReadFailure::NoRoom));
        drop(other);
        let long = collect(
            body("123456789"),
            8,
            &mut BodyShare::new(&budget, &user("a")),
        )
        .await;
        assert_eq!(long, Err(ReadFailure::TooLong));
        let mut all = BodyShare::new(&budget, &user("a"));
        all.join(share);
        assert_eq!((all.text_bytes(), budget.held().now), (6, 6));
        drop(all);
        assert_eq!(budget.held().now, 0);
    }

    #[tokio::test]
    async fn without_room_nothing_more_is_read() {
        let budget = ByteBudget::new(10);
        let mut first = BodyShare::new(&budget, &user("a"));
        assert!(first.take(6));
        let mut body = ClientBody::full("12345");
        let mut share = BodyShare::new(&budget, &user("a"));
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

    #[tokio::test]
    async fn an_unfinished_body_is_given_up_for_a_user_who_has_less() {
        let budget = ByteBudget::new(1000);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let frames = StreamBody::new(futures_util::stream::poll_fn(move |cx| {
            let received = receiver.poll_recv(cx);
            received.map(|data| data.map(|data| Ok::<_, Infallible>(Frame::data(data))))
        }));
        let reading = async {
            let (mut body, mut share) = (frames, BodyShare::new(&budget, &user("slow")));
            let (read, failure) = buffered(&mut body, &mut share).await;
            assert_eq!(read.len(), 500);
            (matches!(failure, Some(BufferedBody::NoRoom)), share)
        };
        let asking = async {
            let data = Bytes::from(vec![b'x'; 100]);
            for _ in 0..5 {
                sender.send(data.clone()).unwrap();
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
            let mut others = Vec::new();
            for name in ["a", "b", "c", "d"] {
                let mut other = BodyShare::new(&budget, &user(name));
                assert!(other.take(200), "{name}");
                others.push(other);
            }
            others
        };
        let ((is_given_up, share), others) = tokio::join!(reading, asking);
        assert!(is_given_up);
        drop((share, others));
        assert_eq!(budget.held().now, 0);
    }

    #[test]
    fn a_user_has_at_most_as_much_as_is_left() {
        let budget = ByteBudget::new(1000);
        let mut first = BodyShare::new(&budget, &user("a"));
        let mut second = BodyShare::new(&budget, &user("a"));
        while first.take(1) && second.take(1) {}
        assert_eq!(first.text_bytes() + second.text_bytes(), 500);
        let mut other = BodyShare::new(&budget, &user("b"));
        while other.take(1) {}
        assert_eq!(other.text_bytes(), 250);
        drop(first);
        assert!(other.take(100) && second.take(100));
        assert!(second.take(0));
        drop((second, other));
        assert_eq!(budget.held().now, 0);
    }

    #[test]
    fn one_object_may_need_nearly_all() {
        let mut share = BodyShare::new(&ByteBudget::new(1000), &user("a"));
        assert!(share.take(10) && !share.take(990));
        assert!(share.take_decoded(980));
        assert_eq!(share.text_bytes(), 10);
        assert!(!share.take(usize::MAX));
    }
}
