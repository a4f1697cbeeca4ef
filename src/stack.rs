//! The request path. Read this first.
//!
//! ```text
//! serve → answer → auth → fairness → forward
//! ```
//!
//! `serve` hands in an [`Inbound`](crate::call::Inbound); `answer` turns every refusal and panic
//! from further in into a reply; `auth` finds the user and makes the [`Call`](crate::call::Call);
//! `fairness` holds it back until it has a seat; the leaf answers it. No step goes back, and every
//! layer is always ready: only the dispatcher behind `fairness` holds a request back.
//!
//! The layers are ordinary `tower` layers. One of the user's own goes anywhere between two of these:
//! before `auth` it sees an `Inbound`, after it a `Call`.

use tower::Layer;

use crate::call::answer::{Answer, AnswerLayer};

/// The request path, from the outermost layer to the leaf.
pub fn stack<A, F, L>(auth: &A, fairness: &F, leaf: L) -> Answer<A::Service>
where
    A: Layer<F::Service>,
    F: Layer<L>,
{
    AnswerLayer.layer(auth.layer(fairness.layer(leaf)))
}
