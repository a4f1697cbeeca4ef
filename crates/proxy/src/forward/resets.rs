//! Limits how many streams of an upstream connection are reset.
//!
//! A server treats many resets as an attack, and closes the connection with all streams on it. What servers
//! count:
//!
//! - Go's `net/http2` (kube-apiserver; `serverConn.scheduleHandler`): a reset ends the stream at once, but not
//!   the handler. When as many handlers run as streams are allowed (100 by default), new requests wait for
//!   one to end; when more than four times as many wait, reset ones included, the connection ends with
//!   `ENHANCE_YOUR_CALM`. So the handlers that still run may be at most five times the allowed streams.
//! - hyper and h2 (Rust): 20 streams that were reset before the server accepted them.
//! - nghttp2: 1000 at once, then 33 a second.
//! - Envoy: resets within a second of a stream's start, if they are half of 500 or more streams.
//!
//! Therefore an abandoned stream first continues for [`LimitsResets::linger`], a second, in which most responses end;
//! so a server never sees it reset soon after its start. After that it is reset when its turn comes: a fifth of the
//! connection's streams at once, then a twentieth of them each second. In a minute, which is how long a handler may
//! run, that is 3.2 times the streams: below the factor of five in Go, and below the limits of the others.
//!
//! A stream that waits for its turn still counts as used, so there are never more of them than the connection
//! has streams, and the last one's turn comes after 20 seconds. Its data is read and discarded up to
//! [`MOST_BYTES`]; then its window is no longer extended.

use std::{
    cell::Cell,
    future::{pending, poll_fn},
    pin::Pin,
    rc::{Rc, Weak},
    time::Duration,
};

use http_body::Body;
use tokio::sync::Notify;

use fairgate_call::AbandonedResponse;

/// The bytes of an abandoned response that are read and discarded.
const MOST_BYTES: usize = 1 << 20;
/// One in this many streams may be reset at once.
const AT_ONCE: usize = 5;
/// After that, one in this many streams may be reset each second.
const PER_SECOND: usize = 20;

/// The resets of one connection.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Recent resets, less those that [`forget`] has subtracted.
    spent: Cell<usize>,
    /// Streams that wait for their turn.
    waiting: Cell<usize>,
    turn: Notify,
    /// Whether [`forget`] runs.
    forgetting: Cell<bool>,
}

/// A connection whose resets are limited.
pub(super) trait LimitsResets: 'static {
    /// The resets of the connection.
    fn resets(&self) -> &Resets;
    /// Streams that the connection may have.
    fn streams(&self) -> usize;
    /// How long an abandoned stream continues before it may be reset.
    fn linger(&self) -> Duration;
}

/// How an abandoned stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResetOutcome {
    /// By itself.
    Completed,
    /// It was reset.
    Reset,
}

impl Resets {
    /// Counts a reset if it may be made now.
    fn try_spend(&self, streams: usize) -> bool {
        let may = self.waiting.get() == 0 && self.spent.get() < (streams / AT_ONCE).max(1);
        if may {
            self.spent.set(self.spent.get() + 1);
        }
        may
    }
}

/// Waits until a stream of `connection` may be reset; first come, first served.
pub(super) async fn turn<C: LimitsResets>(connection: Rc<C>) {
    let resets = connection.resets();
    let at_once = resets.try_spend(connection.streams());
    if !resets.forgetting.replace(true) {
        fairgate_base::turns::spawn_local_boxed(forget(Rc::downgrade(&connection)));
    }
    if !at_once {
        let _waiting = Waiting::new(resets);
        resets.turn.notified().await;
    }
}

/// Counts a stream that waits for its turn.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(resets: &'a Resets) -> Self {
        resets.waiting.set(resets.waiting.get() + 1);
        Self(&resets.waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Forgets one reset at a time, until all are forgotten. Each gives the stream that waits longest its turn.
async fn forget<C: LimitsResets>(connection: Weak<C>) {
    loop {
        let Some(streams) = connection.upgrade().map(|connection| connection.streams()) else {
            return;
        };
        tokio::time::sleep(
            Duration::from_secs(1) * u32::try_from(PER_SECOND).unwrap_or(1) / at_least_one(streams),
        )
        .await;
        let Some(connection) = connection.upgrade() else {
            return;
        };
        let resets = connection.resets();
        if resets.waiting.get() > 0 {
            resets.turn.notify_one();
        } else {
            resets.spent.set(resets.spent.get().saturating_sub(1));
        }
        if resets.spent.get() == 0 {
            resets.forgetting.set(false);
            return;
        }
    }
}

fn at_least_one(streams: usize) -> u32 {
    u32::try_from(streams.max(1)).unwrap_or(u32::MAX)
}

/// Reads an abandoned response of `connection` to its end, and resets it if its turn comes first.
pub(super) async fn finish_or_reset<C: LimitsResets>(
    connection: Rc<C>,
    response: AbandonedResponse,
) -> ResetOutcome {
    let turn = async {
        tokio::time::sleep(connection.linger()).await;
        turn(connection).await;
    };
    tokio::select! {
        biased;
        () = read_to_end(response) => ResetOutcome::Completed,
        () = turn => ResetOutcome::Reset,
    }
}

async fn read_to_end(response: AbandonedResponse) {
    match response {
        // Its body is abandoned in turn when it is dropped here.
        AbandonedResponse::Pending(response) => drop(response.await),
        AbandonedResponse::Body(mut body) => {
            let mut read = 0;
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                read += frame.data_ref().map_or(0, bytes::Bytes::len);
                if read > MOST_BYTES {
                    return pending().await;
                }
            }
        }
    }
}
