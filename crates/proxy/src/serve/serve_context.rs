//! The state of a core that its connections share.

use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    rc::Rc,
    sync::Arc,
};

use uuid::Builder;

use super::{
    core_load::CoreLoad, drain::CorePhase, hangup_watcher::HangupWatcher, settings::ServeSettings,
    wire::defence::Defence,
};
use fairgate_base::clock::Clock;
use fairgate_call::{ReadAheadBudget, StreamWindows};
use fairgate_core::random::Random;

/// The state of a core that its connections share.
pub(super) struct ServeContext {
    pub(super) settings: ServeSettings,
    pub(super) defence: Arc<Defence>,
    pub(super) clock: Clock,
    pub(super) load: Arc<CoreLoad>,
    /// Memory for bodies of queued requests.
    pub(super) budget: Rc<ReadAheadBudget>,
    pub(super) windows: Rc<StreamWindows>,
    pub(super) watcher: Rc<HangupWatcher>,
    pub(super) phase: CorePhase,
    /// The number of watches that this core has served; spreads their ends in a drain.
    pub(super) watches: Rc<Cell<u32>>,
    pub(super) ids: RequestIds,
}

impl ServeContext {
    /// A random UUID for a request.
    pub(super) fn new_id(&self) -> u128 {
        self.ids.next()
    }
}

/// Makes random UUIDs that identify requests in logs. They are not secret.
pub(super) struct RequestIds(RefCell<Random>);

impl Default for RequestIds {
    fn default() -> Self {
        let seed = RandomState::new().build_hasher().finish();
        Self(RefCell::new(Random::seeded(seed)))
    }
}

impl RequestIds {
    fn next(&self) -> u128 {
        let mut random = self.0.borrow_mut();
        let id = u128::from(random.number()) << 64 | u128::from(random.number());
        Builder::from_random_bytes(id.to_be_bytes())
            .into_uuid()
            .as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_random_uuids() {
        let ids = RequestIds::default();
        let (a, b) = (ids.next(), ids.next());
        assert_ne!(a, b);
        assert_eq!(a >> 76 & 0xf, 4, "version");
        assert_eq!(a >> 62 & 0x3, 2, "variant");
    }
}
