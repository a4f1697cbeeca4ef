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
    let (mut read, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| with_causes(&*error.into()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > limit {
            return Err(ReadFailure::TooLong);
        }
        if !share.take(data.len()) {
            return Err(ReadFailure::NoRoom);
        }
        read.push(data);
    }
    Ok(joined(&read))
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
    let mut read = Vec::new();
    let mut length = 0;
    let end = loop {
        let data = match body.frame().await {
            None => {
                let whole = joined(&read);
                if read.len() > 1 {
                    // It is held once, not in pieces and as a whole.
                    read = vec![whole.clone()];
                }
                break BufferedBody::Whole(whole);
            }
            Some(Err(_)) => return BufferedBody::Broken,
            Some(Ok(frame)) => frame.into_data(),
        };
        let Ok(data) = data else { continue };
        length += data.len();
        let has_room = share.take(data.len());
        read.push(data);
        if length > MAX_BODY {
            break BufferedBody::TooLong;
        }
        if !has_room {
            break BufferedBody::NoRoom;
        }
    };
    body.put_back(read);
    end
}

fn joined(read: &[Bytes]) -> Bytes {
    match read {
        [only] => only.clone(),
        many => many.concat().into(),
    }
}

#[cfg(test)]
mod tests {
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
