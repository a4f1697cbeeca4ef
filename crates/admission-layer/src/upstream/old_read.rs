//! The stored object, as far as it has been read.

use crate::{
    abort_on_drop::AbortOnDrop, limits::body_budget::ReadFailure,
    upstream::upstream_objects::StoredObject,
};

/// The stored object, which is being read.
pub(crate) enum OldRead {
    /// The request has none.
    None,
    Reading(ReadTask),
    /// It has been read already.
    Known(Option<StoredObject>),
}

pub(crate) type ReadTask = AbortOnDrop<Result<Option<StoredObject>, ReadFailure>>;

impl OldRead {
    pub(crate) async fn end(self) -> Result<Option<StoredObject>, ReadFailure> {
        match self {
            Self::None => Ok(None),
            Self::Known(object) => Ok(object),
            Self::Reading(mut task) => {
                let read = (&mut task.0).await;
                read.unwrap_or_else(|error| Err(error.to_string().into()))
            }
        }
    }
}
