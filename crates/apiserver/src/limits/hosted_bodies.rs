//! The memory for bodies of requests to the hosted API.
//!
//! Such a body is in memory as a whole from its arrival until the request is served, and a heavy request waits for its turn before
//! that. So its bytes are charged to its user as they arrive. A user may have at most as much as is still free ([`ByteBudget`]); a body
//! that is not complete makes room for a user who has less. A request without room gets 429.
//!
//! Not here: how long a client may take to send its body (`layer`).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fairgate_base::account::{ByteBudget, ByteShare, BytesHeld};
use fairgate_call::{ClientBody, Refusal};
use fairgate_core::digest::User;
use http_body_util::BodyExt as _;

/// The memory for bodies.
#[derive(Debug)]
pub(crate) struct HostedBodies(Arc<ByteBudget>);

/// What has been read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReceivedBody {
    /// The whole body.
    Whole(Bytes),
    /// It is longer than it may be.
    TooLong,
    /// There is no room in memory for it.
    NoRoom,
}

impl HostedBodies {
    /// Memory for bodies of so many bytes together.
    pub(crate) fn new(total: usize) -> Self {
        Self(ByteBudget::new(total))
    }

    /// Room of no bytes yet, for a body of `user`.
    pub(crate) fn share(&self, user: &Arc<User>) -> ByteShare {
        self.0.share(user)
    }

    /// The bytes that are held, and the most that ever were.
    pub(crate) fn held(&self) -> BytesHeld {
        self.0.held()
    }
}

/// Reads a body of at most `limit` bytes, which `share` is charged for.
///
/// # Errors
///
/// When the body is incomplete, usually because the client disconnected.
pub(crate) async fn read(
    mut body: ClientBody,
    limit: usize,
    share: &mut ByteShare,
) -> Result<ReceivedBody, Refusal> {
    let given_up = share.begin_unfinished();
    let reading = async {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Refusal::ClientGone)?;
            if let Ok(data) = frame.into_data() {
                if whole.len() + data.len() > limit {
                    return Ok(ReceivedBody::TooLong);
                }
                if !share.take(data.len()) {
                    return Ok(ReceivedBody::NoRoom);
                }
                whole.extend_from_slice(&data);
            }
        }
        Ok::<_, Refusal>(ReceivedBody::Whole(whole.freeze()))
    };
    let received = tokio::select! {
        received = reading => received?,
        () = given_up.notified() => ReceivedBody::NoRoom,
    };
    Ok(match received {
        // It was given up as it became complete.
        ReceivedBody::Whole(_) if !share.end_unfinished() => ReceivedBody::NoRoom,
        ReceivedBody::TooLong => {
            // What was read of it is dropped already.
            *share = share.another();
            ReceivedBody::TooLong
        }
        received => received,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::new(name, [""; 0]))
    }

    async fn received(
        bodies: &HostedBodies,
        name: &str,
        bytes: usize,
    ) -> (ReceivedBody, ByteShare) {
        let mut share = bodies.share(&user(name));
        let body = ClientBody::full(vec![b'x'; bytes]);
        let received = read(body, 1000, &mut share).await.unwrap();
        (received, share)
    }

    #[tokio::test]
    async fn bodies_of_one_user_leave_room_for_those_of_others() {
        let bodies = HostedBodies::new(1000);
        let mut held = Vec::new();
        for _ in 0..5 {
            let (received, share) = received(&bodies, "many", 100).await;
            assert!(matches!(received, ReceivedBody::Whole(_)));
            held.push(share);
        }
        assert_eq!(received(&bodies, "many", 100).await.0, ReceivedBody::NoRoom);
        let other = received(&bodies, "other", 200).await;
        assert!(matches!(other.0, ReceivedBody::Whole(_)));
        assert_eq!(bodies.held().now, 700);
        drop((held, other));
        assert_eq!(bodies.held(), BytesHeld { now: 0, most: 700 });
    }

    #[tokio::test]
    async fn a_body_is_charged_only_while_it_may_be_read() {
        let bodies = HostedBodies::new(10_000);
        let too_long = received(&bodies, "a", 1001).await;
        assert_eq!(too_long.0, ReceivedBody::TooLong);
        assert_eq!(bodies.held().now, 0);
        // Read in pieces, it is charged until it turns out to be too long.
        let mut share = bodies.share(&user("a"));
        let mut body = ClientBody::empty();
        body.put_back(vec![Bytes::from(vec![b'x'; 600]); 2]);
        let received = read(body, 1000, &mut share).await.unwrap();
        assert_eq!(received, ReceivedBody::TooLong);
        assert_eq!(bodies.held(), BytesHeld { now: 0, most: 600 });
    }
}
