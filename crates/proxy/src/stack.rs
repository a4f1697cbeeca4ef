//! The request path. Read this first.
//!
//! From the outside in, and why each layer stands where it does:
//!
//! - `serve` takes the request off its connection and hands in an
//!   [`Inbound`](fairgate_call::Inbound).
//! - `trace` counts and logs the request at its very end, so everything else is inside of it.
//! - `answer` turns every refusal and panic from further in into a reply, which `trace` then sees.
//! - `auth` finds the user and makes the [`Call`](fairgate_call::Call): nobody waits for seats, and nothing
//!   is classified, before it is known who asks.
//! - `fairness` holds the call back until it has a seat. What is behind it costs somebody work.
//! - `dumps` answers operators' questions about the queues, as a request like any other.
//! - `hosted` answers for the API that is hosted here, where one is.
//! - The leaf answers all else, as a rule by forwarding it.
//!
//! No step goes back, and every layer is always ready: only the dispatcher behind `fairness` holds a
//! request back. The layers are ordinary `tower` layers. One of your own goes anywhere between two of
//! these: before `auth` it sees an `Inbound`, after it a `Call`.

use tower::Layer;

use fairgate_call::handle_refusal::{HandleRefusal, HandleRefusalLayer};

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
    T: Layer<HandleRefusal<A::Service>>,
    A: Layer<F::Service>,
    F: Layer<D::Service>,
    D: Layer<H::Service>,
    H: Layer<L>,
{
    trace.layer(
        HandleRefusalLayer.layer(auth.layer(fairness.layer(dumps.layer(hosted.layer(leaf))))),
    )
}
