//! An HTTP/2 header block in several frames, kept until it is complete.
//!
//! h2 decodes every frame as it arrives, into many small allocations, which the process does not return to the
//! system soon. Kept here, a block that is never finished costs no more than a head of HTTP/1: its first 8 KiB
//! ([`FREE_BYTES_PER_CONNECTION`]) are free, and the rest counts against the process's budget
//! (`limits.unfinishedHeaderBytes`).

use std::{
    future::Future as _,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep},
};

use super::{
    defence::Offence,
    head_budget::{FREE_BYTES_PER_CONNECTION, HeadBudget, HeadCharge},
    held_bytes::HeldBytes,
    http2_frames::{FrameHeader, max_continuations},
};

/// A header block, including the headers of its frames.
pub(super) struct HeaderBlock {
    stream: u32,
    /// How many frames have begun.
    frames: usize,
    /// Whether the frame that ends the block has begun.
    has_last: bool,
    /// Whether it is complete and may be passed to h2.
    released: bool,
    beginning: HeldBytes,
    rest: Option<LargePart>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// All but the beginning of a large block.
struct LargePart {
    charge: HeadCharge,
    len: usize,
    passed: usize,
}

impl HeaderBlock {
    /// An empty block of the stream with this number.
    pub(super) fn new(stream: u32) -> Self {
        Self {
            stream,
            frames: 0,
            has_last: false,
            released: false,
            beginning: HeldBytes::default(),
            rest: None,
            timer: None,
        }
    }

    /// Counts a frame that begins. `head_bytes` is the maximum size of a head.
    ///
    /// # Errors
    ///
    /// [`Offence::Protocol`] if the frame does not continue the block, [`Offence::Continuations`] if there are too
    /// many.
    pub(super) fn add_frame(
        &mut self,
        frame: FrameHeader,
        head_bytes: usize,
    ) -> Result<(), Offence> {
        if self.frames > 0 && !frame.continues(self.stream) {
            return Err(Offence::Protocol);
        }
        if self.frames > max_continuations(head_bytes) {
            return Err(Offence::Continuations);
        }
        self.frames += 1;
        self.has_last = frame.ends_headers();
        Ok(())
    }

    /// Whether the frame that ends the block has begun.
    pub(super) fn has_last_frame(&self) -> bool {
        self.has_last
    }

    /// Marks the block as complete: it may be passed to h2.
    pub(super) fn release(&mut self) {
        self.released = true;
    }

    /// Whether the block may be passed to h2.
    pub(super) fn is_released(&self) -> bool {
        self.released
    }

    /// Adds `bytes` that `remote` sent. False if the budget was used up and this block was chosen to be dropped.
    pub(super) fn keep(
        &mut self,
        bytes: &[u8],
        budget: &Arc<HeadBudget>,
        remote: SocketAddr,
        now: Instant,
    ) -> bool {
        let room = FREE_BYTES_PER_CONNECTION.saturating_sub(self.beginning.len());
        let (beginning, rest) = bytes.split_at(bytes.len().min(room));
        self.beginning.push(beginning);
        if rest.is_empty() {
            return true;
        }
        let kept = self.rest.get_or_insert_with(|| LargePart {
            charge: budget.charge(remote, now),
            len: 0,
            passed: 0,
        });
        kept.len += rest.len();
        kept.charge.keep(rest, now)
    }

    /// Moves the kept bytes to `buf`, as far as there is room. Returns whether that was all.
    ///
    /// # Errors
    ///
    /// If the budget dropped the block.
    pub(super) fn pass_on(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<bool> {
        self.timer = None; // a complete block has no time limit
        self.beginning.pass_on(buf, usize::MAX);
        let Some(rest) = &mut self.rest else {
            return Ok(self.beginning.is_empty());
        };
        if buf.remaining() > 0 {
            let passed = rest.charge.copy(rest.passed, buf);
            if passed == 0 {
                return Err(io::Error::other(
                    "request head dropped: unfinished heads take too much memory",
                ));
            }
            rest.passed += passed;
        }
        Ok(self.beginning.is_empty() && rest.passed == rest.len)
    }

    /// Ready when the block is not complete within `limit`, counted from the first call.
    pub(super) fn poll_timeout(&mut self, limit: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        timer.as_mut().poll(cx)
    }

    /// Ready once the budget dropped the block.
    pub(super) fn poll_dropped(&self, cx: &mut Context<'_>) -> Poll<()> {
        let rest = self.rest.as_ref();
        rest.map_or(Poll::Pending, |rest| rest.charge.poll_dropped(cx))
    }
}
