//! Where the rest of a response comes from.

use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{made_body::MadeBody, upstream_body::UpstreamBody};
use crate::BodyError;

/// Where the rest of a response comes from.
pub(super) enum ResponseSource {
    Upstream(UpstreamBody),
    /// The gateway has made it: it is in memory.
    Made(MadeBody),
}

impl ResponseSource {
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Upstream(upstream) => upstream.poll_frame(cx),
            Self::Made(made) => Poll::Ready(made.next()),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Upstream(upstream) => upstream.is_end_stream(),
            Self::Made(made) => made.is_end(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upstream(upstream) => upstream.size_hint(),
            Self::Made(made) => made.size_hint(),
        }
    }

    /// Releases the upstream's connection, if there is one.
    pub(super) fn release(&mut self, clean: bool) {
        if let Self::Upstream(upstream) = self {
            upstream.release(clean);
        }
    }

    /// From now on the upstream may be silent for any time.
    pub(super) fn allow_silence(&mut self) {
        if let Self::Upstream(upstream) = self {
            upstream.allow_silence();
        }
    }
}
