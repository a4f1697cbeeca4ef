//! The request path. Read this first.
//!
//! The layers from the outside in, and why each is where it is:
//!
//! - `serve` receives the request from its connection and makes an [`Inbound`](fairgate_call::Inbound).
//! - `trace` counts and logs the request at its end, so it is outside of everything that can end it.
//! - [`HandleRefusal`] turns refusals and panics of the inner layers into replies, which `trace` then sees.
//! - `auth` authenticates the user and makes the [`Call`](fairgate_call::Call): classification needs the user, and an
//!   unauthenticated request must not wait for a seat.
//! - `admission.wait` holds requests that may be subject to admission policies until these are known. It is outside of flow
//!   control, so that they hold no seat meanwhile.
//! - `evictions.wait` holds evictions that their budget refuses, and sends them again. It is outside of flow control,
//!   so that they hold no seat meanwhile, and each attempt waits for a seat like any request.
//! - `fairness` reads the body, if it is short, and then makes the call wait until it has a seat: everything inside of it costs the
//!   upstream work. A client that does not send its body holds no seat.
//! - `dumps` serves the debug dumps of the queues. As in kube-apiserver, requests for them are subject to flow control.
//! - `admission.evaluate` evaluates requests by admission policies, if the gateway is configured to, before anything is done for
//!   them. It may read the object from the upstream, and send the request as a dry run: work for the upstream, too.
//! - `evictions.decide` carries out evictions, if the gateway is configured to: that is work for the upstream, so it needs
//!   a seat. It does not use the layers further inside, because it calls the upstream with the gateway's own credentials.
//! - `hosted` serves requests for the hosted API, if there is one; it costs work as the upstream does.
//! - The innermost service serves all other requests, usually by forwarding them.
//!
//! Every layer is always ready: only the dispatcher of `fairness` makes requests wait. The layers are ordinary `tower`
//! layers. A custom layer outside of `auth` gets an `Inbound`, one inside of it a `Call`.

use tower::{Layer, layer::util::Identity};

use fairgate_call::handle_refusal::{HandleRefusal, HandleRefusalLayer};

/// The layers of admission policies for forwarded requests.
#[derive(Clone, Debug)]
pub struct AdmissionLayers<Wait, Evaluate> {
    /// Holds requests until the policies are known.
    pub wait: Wait,
    /// Evaluates requests, and refuses those that are denied.
    pub evaluate: Evaluate,
}

impl AdmissionLayers<Identity, Identity> {
    /// No layers: forwarded requests are not evaluated.
    pub fn none() -> Self {
        Self {
            wait: Identity::new(),
            evaluate: Identity::new(),
        }
    }
}

/// The layers of evictions.
#[derive(Clone, Debug)]
pub struct EvictionLayers<Wait, Decide> {
    /// Holds evictions until their budgets allow them.
    pub wait: Wait,
    /// Carries out evictions, or refuses them.
    pub decide: Decide,
}

impl EvictionLayers<Identity, Identity> {
    /// No layers: evictions are forwarded like other requests.
    pub fn none() -> Self {
        Self {
            wait: Identity::new(),
            decide: Identity::new(),
        }
    }
}

/// The request path, from the outermost layer to the innermost service.
#[expect(
    clippy::too_many_arguments,
    reason = "the arguments are the layers, in their order"
)]
pub fn stack<Trace, Auth, Hold, Wait, Fairness, Dumps, Evaluate, Decide, Hosted, Leaf>(
    trace: &Trace,
    auth: &Auth,
    fairness: &Fairness,
    dumps: &Dumps,
    admission: &AdmissionLayers<Hold, Evaluate>,
    evictions: &EvictionLayers<Wait, Decide>,
    hosted: &Hosted,
    leaf: Leaf,
) -> Trace::Service
where
    Trace: Layer<HandleRefusal<Auth::Service>>,
    Auth: Layer<Hold::Service>,
    Hold: Layer<Wait::Service>,
    Wait: Layer<Fairness::Service>,
    Fairness: Layer<Dumps::Service>,
    Dumps: Layer<Evaluate::Service>,
    Evaluate: Layer<Decide::Service>,
    Decide: Layer<Hosted::Service>,
    Hosted: Layer<Leaf>,
{
    let answering = evictions.decide.layer(hosted.layer(leaf));
    let evaluating = admission.evaluate.layer(answering);
    let seated = fairness.layer(dumps.layer(evaluating));
    let waiting = admission.wait.layer(evictions.wait.layer(seated));
    trace.layer(HandleRefusalLayer.layer(auth.layer(waiting)))
}
