//! Which requests the gateway answers itself.

use std::{fmt, rc::Rc};

use fairgate_call::Call;

/// Tells which requests the gateway answers itself, and not the upstream.
#[derive(Clone)]
pub struct AnsweredHere(Rc<dyn Fn(&Call) -> bool>);

impl AnsweredHere {
    /// Those for which `answers` returns true. It is asked once for each request that policies may match.
    pub fn by(answers: impl Fn(&Call) -> bool + 'static) -> Self {
        Self(Rc::new(answers))
    }

    /// None.
    pub fn none() -> Self {
        Self::by(|_| false)
    }

    pub(crate) fn has(&self, call: &Call) -> bool {
        (self.0)(call)
    }
}

impl fmt::Debug for AnsweredHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnsweredHere").finish_non_exhaustive()
    }
}
