//! The hosted API responds to each recorded request as a real kube-apiserver did.
//!
//! The corpus was recorded by `tests/cluster`, whose README says what is in it and how responses are
//! made comparable. Here it is played against a gateway in this process, over real sockets, with the built-in
//! objects in its store and no other writer. Intended differences are listed in
//! `hosted/known_differences.json`, each with its reason; anything else fails.
//!
//! The sessions are played in v1beta3, too: that version differs from v1 in little but its name and a
//! warning, so the same responses are expected. Current kube-apiservers do not serve it, so it cannot be recorded.

mod compare;
mod corpus;
mod decode;
mod normalise;
mod player;
mod server;
mod v1beta3;

use fairgate_admission::kinds::ADMISSION_KINDS;
use fairgate_base::stack::STACK_BYTES;
use fairgate_objects::{
    kind::Kind,
    kinds::{FLOW_CONTROL, KINDS},
};
use tokio::task::JoinSet;

use compare::{Difference, Known, compare};
use corpus::Session;
use player::play;
use server::Server;

/// How many differences a failure lists at most.
const SHOWN: usize = 30;

/// Plays all sessions at once on a gateway that hosts these kinds, and lists what differs, in the order of the corpus. All on threads with the
/// stack that those of a gateway have.
fn differences(sessions: Vec<Session>, kinds: &[&'static Kind]) -> Vec<Difference> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.worker_threads(2).thread_stack_size(STACK_BYTES);
    let runtime = threads.enable_all().build().unwrap();
    let playing = runtime.spawn(played(sessions, kinds.to_vec()));
    runtime.block_on(playing).unwrap()
}

async fn played(sessions: Vec<Session>, kinds: Vec<&'static Kind>) -> Vec<Difference> {
    let server = Server::start(kinds).await;
    let address = server.address();
    let mut playing = JoinSet::new();
    for (place, session) in sessions.into_iter().enumerate() {
        playing.spawn(async move {
            let got = play(address, &session).await;
            (place, compare(&session, &got))
        });
    }
    let mut played = playing.join_all().await;
    played.sort_by_key(|(place, _)| *place);
    played.into_iter().flat_map(|(_, found)| found).collect()
}

/// Fails if anything differs that is not known; returns the known differences that did not occur.
fn all_known(found: Vec<Difference>, known: &[Known]) -> Vec<&Known> {
    let (unknown, unused) = Known::sort_out(found, known);
    let shown: Vec<String> = unknown
        .iter()
        .take(SHOWN)
        .map(Difference::to_string)
        .collect();
    let total = unknown.len();
    assert!(
        unknown.is_empty(),
        "{total} unknown differences\n{}",
        shown.join("\n")
    );
    unused
}

#[test]
fn every_recorded_request_gets_the_response_of_a_real_server() {
    let known = Known::read("tests/it/hosted/known_differences.json");
    for one in all_known(differences(corpus::read(), &FLOW_CONTROL), &known) {
        println!("no longer occurs: {one}");
    }
}

#[test]
fn every_recorded_request_gets_the_same_response_in_v1beta3() {
    let sessions = corpus::read().into_iter().filter_map(v1beta3::session);
    let mut known = Known::read("tests/it/hosted/known_differences.json");
    known.extend(v1beta3::known());
    all_known(differences(sessions.collect(), &FLOW_CONTROL), &known);
}

#[test]
fn every_recorded_request_about_policies_gets_the_response_of_a_real_server() {
    let known = Known::read("tests/it/hosted/known_differences.json");
    let kinds: Vec<_> = KINDS.into_iter().chain(ADMISSION_KINDS).collect();
    all_known(differences(corpus::read_policies(), &kinds), &known);
}
