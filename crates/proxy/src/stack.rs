//! The request path. Read this first.
//!
//! The layers from the outside in, and why each stands where it does:
//!
//! - `serve` receives the request from its connection and makes an [`Inbound`](fairgate_call::Inbound).
//! - `trace` counts and logs the request at its end, so it is outside of everything that can end it.
//! - [`HandleRefusal`] turns refusals and panics of the inner layers into replies, which `trace` then sees.
//! - `auth` authenticates the user and makes the [`Call`](fairgate_call::Call): classification needs the user, and an
//!   unauthenticated request must not wait for a seat.
//! - `fairness` makes the call wait until it has a seat: everything inside of it costs the upstream work.
//! - `dumps` answers operators' requests for the state of the queues, which are subject to flow control like others.
//! - `hosted` answers requests for the hosted API, if there is one; it costs work as the upstream does.
//! - The innermost service answers all other requests, usually by forwarding them.
//!
//! A request never goes back to an outer layer, and every layer is always ready: only the dispatcher of `fairness`
//! makes requests wait. The layers are ordinary `tower` layers. A layer of your own can stand between any two of
//! these: outside of `auth` it gets an `Inbound`, inside of it a `Call`.

use tower::Layer;

use fairgate_call::handle_refusal::{HandleRefusal, HandleRefusalLayer};

/// The request path, from the outermost layer to the innermost service.
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
