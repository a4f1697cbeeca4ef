//! The room that a request has in memory for its response.

use fairgate_call::ResponseShare;
use fairgate_core::sync::{Mutex, lock};

use fairgate_apihttp::status_error::StatusError;

/// The room of one request. The gateway's own requests need none: nobody reads their responses slowly.
#[derive(Debug, Default)]
pub(crate) struct ResponseRoom(Mutex<Room>);

#[derive(Debug, Default)]
struct Room {
    share: Option<ResponseShare>,
    /// The bytes for which there was no room.
    missing: Option<usize>,
}

impl ResponseRoom {
    /// A room that has this share.
    pub(crate) fn of(share: ResponseShare) -> Self {
        Self(Mutex::new(Room {
            share: Some(share),
            missing: None,
        }))
    }

    /// From now on there is room for a response of so many bytes, and not more.
    ///
    /// # Errors
    ///
    /// 429, if there is not enough. The request can be served again once there is.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), StatusError> {
        let mut room = lock(&self.0);
        if let Some(share) = &mut room.share
            && !share.resize(bytes)
        {
            room.missing = Some(bytes);
            return Err(StatusError::no_response_memory());
        }
        Ok(())
    }

    /// The share, and the bytes for which there was no room.
    pub(crate) fn into_parts(self) -> (Option<ResponseShare>, Option<usize>) {
        let room = self.0.into_inner();
        let room = room.unwrap_or_else(std::sync::PoisonError::into_inner);
        (room.share, room.missing)
    }
}
