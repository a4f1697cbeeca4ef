//! Large numbers of watches, of one user or of many.
//!
//! A watch occupies a stream of an upstream connection for as long as it lasts, and connections are
//! bounded. One user must not take all of them; a request for one more is refused at once.

use http::Method;

use crate::{
    Attack,
    frames::RawConnection,
    gateway::{ATTACKER, Setup, VICTIM, attacker},
    others::{Client, Mix},
    report::Outcome,
    scene::Scene,
    time::{LIVENESS, ms, until},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "watches-one-user",
        point: "B.2",
        about: "14 000 watches of one user, more than all upstream connections carry by default",
        play: one_user,
    },
    Attack {
        name: "watches-many-users",
        point: "B.2",
        about: "no attack: 100 watches of each of 300 users, all of which must work",
        play: many_users,
    },
];

/// Watches on each of the attackers' connections.
const PER_CONNECTION: usize = 200;
const ONE_USERS: usize = 14_000;
const USERS: usize = 300;
const EACH_USERS: usize = 100;
/// The most watches without a response at a time, so that no queue overflows.
const UNANSWERED: u64 = 100;
const FURTHER: usize = 8;
const PATH: &str = "/api/v1/namespaces/a/pods?watch=true&resourceVersion=1";
const VICTIMS_PATH: &str = "/api/v1/namespaces/v/pods?watch=true&resourceVersion=1";

fn one_user() -> Outcome {
    let mut played = Scene::new(&Setup::default(), Mix::default()).play(async |scene| {
        let users = vec![ATTACKER.to_owned(); ONE_USERS / PER_CONNECTION];
        let open = open(scene, &users, PER_CONNECTION).await;
        let goal = scene.goal(ms(0));
        let mut further = 0;
        for _ in 0..FURTHER {
            let asked = async {
                let mut client = Client::connect(scene.gateway.address, true).await?;
                client.send(Method::GET, VICTIMS_PATH, Some(VICTIM)).await
            };
            let answer = tokio::time::timeout(LIVENESS, asked).await;
            further += usize::from(answer.is_ok_and(|a| a.is_ok_and(|a| a.status().is_success())));
        }
        goal.reach().await;
        (counts(&open), further)
    });
    played.check_other_clients();
    let (counts, further) = played.found;
    let outcome = &mut played.outcome;
    outcome.check(
        "others' further watches work",
        further == FURTHER,
        format!("{further} of {FURTHER} do"),
    );
    outcome.check(
        "every watch gets a response, even if it is a 429",
        counts.answers >= ONE_USERS as u64,
        format!("{} of {ONE_USERS} did", counts.answers),
    );
    outcome.check(
        "the watches of one user are limited",
        counts.served < ONE_USERS as u64,
        format!("all {ONE_USERS} are served"),
    );
    outcome.note(format!("{} of {ONE_USERS} watches served", counts.served));
    let has_gauge = played.metrics[1].has(&["watch", "upstream_streams"]);
    outcome.check("a gauge counts the watches", has_gauge, "there is none");
    played.outcome
}

fn many_users() -> Outcome {
    let setup = Setup {
        more_attackers: USERS,
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let users: Vec<String> = (0..USERS).map(attacker).collect();
        let open = open(scene, &users, EACH_USERS).await;
        scene.goal(ms(0)).reach().await;
        counts(&open)
    });
    played.check_other_clients();
    let wanted = (USERS * EACH_USERS) as u64;
    let served = played.found.served;
    played.outcome.check(
        format!("all {wanted} watches work"),
        served == wanted,
        format!("{served} do"),
    );
    let connections = played.scene.upstream.connections();
    let took = played.outcome.took.as_secs_f64();
    let note =
        format!("{served} watches served in {took:.1} s over {connections} upstream connections");
    played.outcome.note(note);
    played.outcome
}

/// The outcome of many watches.
#[derive(Clone, Copy)]
struct Counts {
    answers: u64,
    served: u64,
}

fn counts(open: &[RawConnection]) -> Counts {
    Counts {
        answers: open.iter().map(|c| c.seen().answers()).sum(),
        served: open.iter().map(|c| c.seen().served()).sum(),
    }
}

/// Opens a connection with `each` watches for each of `users`, and waits until all have a response, or none has come for
/// [`LIVENESS`].
async fn open(scene: &Scene, users: &[String], each: usize) -> Vec<RawConnection> {
    let mut asked = 0;
    let mut open = Vec::new();
    for user in users {
        let Ok(mut connection) = RawConnection::open(scene.gateway.address, &[]).await else {
            continue;
        };
        for _ in 0..each {
            let _ = connection.get(PATH, Some(user)).await;
        }
        open.push(connection);
        asked += each as u64;
        until_answered(&open, asked.saturating_sub(UNANSWERED - 1)).await;
    }
    until_answered(&open, asked).await;
    open
}

/// Waits until so many watches have a response, or none has come for [`LIVENESS`].
async fn until_answered(open: &[RawConnection], wanted: u64) {
    let mut answers = counts(open).answers;
    while answers < wanted {
        let more = || counts(open).answers > answers;
        if !until(LIVENESS, more).await {
            return;
        }
        answers = counts(open).answers;
    }
}
