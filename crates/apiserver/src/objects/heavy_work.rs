//! What a watch does for large objects, which takes milliseconds and much memory: not on the data core that sends the watch, and
//! on the account of its user.

use std::sync::Arc;

use fairgate_apihttp::status_error::StatusError;
use fairgate_base::{account::HeavyTurns, tasks};
use fairgate_call::{ResponseMemory, ResponseShare};
use fairgate_core::digest::User;
use tokio::runtime::Handle;

/// Where the heavy work of one user's watch is done, and who pays for it.
#[derive(Clone, Debug)]
pub(crate) struct HeavyWork {
    pub(crate) user: Arc<User>,
    /// The turns of all heavy requests.
    pub(crate) turns: HeavyTurns,
    /// The memory for responses.
    pub(crate) responses: Arc<ResponseMemory>,
    /// The runtime whose blocking pool does the work.
    pub(crate) control: Handle,
}

impl HeavyWork {
    /// The result of `work` on the blocking pool, once there is room for an event of about so many bytes and it is this user's turn.
    /// The room is charged to the user until the share is dropped.
    ///
    /// # Errors
    ///
    /// 429, if there is no room for some seconds; 500, if the work panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, ResponseShare), StatusError> {
        let share = self.room(bytes).await?;
        let turn = self.turns.of(&self.user.name, 1).await;
        let working = tasks::spawn_on_blocking_pool(&self.control, async move {
            // Both are held to the end, also if the client has disconnected: the thread is in use until then.
            let _turn = turn;
            (work(), share)
        });
        let done = working.await;
        done.map_err(|error| StatusError::internal(error.to_string()))
    }

    async fn room(&self, bytes: usize) -> Result<ResponseShare, StatusError> {
        let mut share = self.responses.share(&self.user);
        if share.resize(bytes) {
            return Ok(share);
        }
        let room = self.responses.room(&self.user, bytes).await;
        room.ok_or_else(StatusError::no_response_memory)
    }
}
