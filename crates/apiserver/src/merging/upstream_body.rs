//! Reads bodies of the upstream's responses into memory.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use fairgate_call::{BodyError, Refusal, ReplyBody};

/// The body of a response, as far as it was read.
pub(crate) enum ReadBody {
    Whole(Bytes),
    /// It is too long; the rest was not read.
    TooLong(Bytes, ReplyBody),
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
///
/// When the upstream does not send the whole body.
pub(crate) async fn read(mut body: ReplyBody, limit: usize) -> Result<ReadBody, Refusal> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error {
            BodyError::Idle => Refusal::UpstreamTimeout,
            _ => Refusal::UpstreamFailed,
        })?;
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data);
            if read.len() > limit {
                return Ok(ReadBody::TooLong(read.freeze(), body));
            }
        }
    }
    Ok(ReadBody::Whole(read.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_is_read_up_to_the_limit() {
        const LIMIT: usize = 1000;
        let within = read(ReplyBody::full(vec![b'x'; LIMIT]), LIMIT)
            .await
            .unwrap();
        assert!(matches!(within, ReadBody::Whole(text) if text.len() == LIMIT));
        let beyond = read(ReplyBody::full(vec![b'x'; LIMIT + 1]), LIMIT)
            .await
            .unwrap();
        assert!(matches!(beyond, ReadBody::TooLong(..)));
    }
}
