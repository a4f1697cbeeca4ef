//! The request path. Read this first.
//!
//! ```text
//! serve → trace → answer → auth → fairness → dumps → hosted → forward
//! ```
//!
//! `serve` hands in an [`Inbound`](fairgate_call::Inbound); `trace` counts and logs it at its very
//! end, with what the others noted; `answer` turns every refusal and panic
//! from further in into a reply; `auth` finds the user and makes the [`Call`](fairgate_call::Call);
//! `fairness` holds it back until it has a seat; `dumps` answers operators' questions about the
//! queues; `hosted` answers for the API that is hosted here, where one is; the leaf answers all else. No step goes back, and every
//! layer is always ready: only the dispatcher behind `fairness` holds a request back.
//!
//! The layers are ordinary `tower` layers. One of the user's own goes anywhere between two of these:
//! before `auth` it sees an `Inbound`, after it a `Call`.

use tower::Layer;

use fairgate_call::answer::{Answer, AnswerLayer};

/// The request path, from the outermost layer to the leaf.
pub fn stack<T, A, F, D, H, L>(
    trace: &T,
    auth: &A,
    fairness: &F,
    dumps: &D,
    hosted: &H,
    leaf: L,
) -> T::Service
where
    T: Layer<Answer<A::Service>>,
    A: Layer<F::Service>,
    F: Layer<D::Service>,
    D: Layer<H::Service>,
    H: Layer<L>,
{
    trace.layer(AnswerLayer.layer(auth.layer(fairness.layer(dumps.layer(hosted.layer(leaf))))))
}
