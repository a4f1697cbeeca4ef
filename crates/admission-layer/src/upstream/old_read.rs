//! The stored object, as far as it has been read.

use fairgate_base::tasks::AbortOnDrop;

use crate::{limits::body_budget::ReadFailure, upstream::upstream_objects::StoredObject};

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
            Self::Reading(task) => {
                let read = task.await;
                read.unwrap_or_else(|error| Err(error.to_string().into()))
            }
        }
    }
}
