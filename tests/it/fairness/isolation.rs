//! One crowd cannot crowd out another: in levels of their own, and in queues of one level.

use fairgate_core::{
    apf::{Semantics, queueset::QueueSetSummary, ratio::RatioSnapshot},
    cells::HistogramTotal,
};
use tokio::task::JoinSet;

use super::*;
use crate::{
    client::body,
    rules::{Full, Rules},
};

/// What a client of a closed loop was told.
#[derive(Default)]
struct Tally {
    served: u32,
    refused: u32,
    seconds: Vec<f64>,
}

/// Asks one time after the other, from `begin` counted, until `end`.
async fn closed_loop(gate: Arc<Gate>, user: &'static str, begin: Time, end: Time) -> Tally {
    let mut tally = Tally::default();
    let mut client = TestClient::http1(gate.address()).await;
    while now() < end {
        let since = now();
        let request = of(&client, user, Method::GET, PODS);
        let response = soon(client.send(request)).await.unwrap();
        let status = response.status();
        body(response).await;
        if since < begin {
            continue;
        }
        if status == StatusCode::OK {
            tally.served += 1;
            tally.seconds.push(now().since(since).as_secs_f64());
        } else {
            tally.refused += 1;
        }
    }
    tally
}

/// `crowds` of so many closed loops each, all at once.
async fn crowds<const N: usize>(
    gate: &Arc<Gate>,
    crowds: [(&'static str, usize); N],
    begin: Time,
    end: Time,
) -> [Tally; N] {
    let mut loops = JoinSet::new();
    for (index, (user, count)) in crowds.into_iter().enumerate() {
        for _ in 0..count {
            let gate = Arc::clone(gate);
            loops.spawn(async move { (index, closed_loop(gate, user, begin, end).await) });
        }
    }
    let mut tallies = std::array::from_fn(|_| Tally::default());
    while let Some(ended) = loops.join_next().await {
        let (index, one): (usize, Tally) = ended.unwrap();
        let tally: &mut Tally = &mut tallies[index];
        tally.served += one.served;
        tally.refused += one.refused;
        tally.seconds.extend(one.seconds);
    }
    tallies
}

/// Two levels of `seats` seats each, one for the elephant and one for the mouse.
fn two_levels(seats: u32, length: u32, semantics: Semantics) -> Rules {
    let full = Full::Queue {
        queues: 100,
        hand: 1,
        length,
    };
    Rules::new()
        .level("elephant", seats, full)
        .level("mouse", seats, full)
        .schema("elephant", "elephant", &["elephant"])
        .schema("mouse", "mouse", &["mouse"])
        .semantics(semantics)
}

async fn levels_are_isolated(semantics: Semantics) {
    let upstream = TestUpstream::start(Speaks::Http1, |_| async {
        tokio::time::sleep(ms(10)).await;
        text("")
    });
    let gate = Arc::new(Gate::governed(&upstream, &two_levels(1, 50, semantics)));
    let begin = now();
    let tallies = crowds(
        &gate,
        [("elephant", 51), ("mouse", 3)],
        begin,
        begin.plus(ms(2000)),
    );
    let [elephant, mouse] = tallies.await;
    assert_eq!((elephant.refused, mouse.refused), (0, 0));
    let ratio = f64::from(elephant.served) / f64::from(mouse.served);
    assert!((0.5..=2.0).contains(&ratio), "{ratio}");
}

#[tokio::test]
async fn levels_of_one_seat_serve_an_elephant_and_a_mouse_alike() {
    tokio::join!(
        levels_are_isolated(Semantics::Improved),
        levels_are_isolated(Semantics::Compatible)
    );
}

#[tokio::test]
async fn queues_of_one_level_serve_an_elephant_and_a_mouse_alike() {
    for semantics in [Semantics::Improved, Semantics::Compatible] {
        let upstream = TestUpstream::start(Speaks::Http1, |_| async {
            tokio::time::sleep(ms(10)).await;
            text("")
        });
        let full = Full::Queue {
            queues: 64,
            hand: 4,
            length: 50,
        };
        let gate = Gate::governed(&upstream, &Rules::small(4, full).semantics(semantics));
        let gate = Arc::new(gate);
        let begin = now();
        let tallies = crowds(
            &gate,
            [("elephant", 40), ("mouse", 4)],
            begin,
            begin.plus(ms(1000)),
        );
        let [elephant, mouse] = tallies.await;
        // Each flow is entitled to two of the seats; the mouse asks for at most that much.
        let ratio = f64::from(elephant.served) / f64::from(mouse.served);
        assert!((0.6..=2.0).contains(&ratio), "{ratio}");
    }
}

/// The average over time of a ratio between two readings.
#[expect(clippy::cast_precision_loss, reason = "a few seconds")]
fn average(from: &RatioSnapshot, to: &RatioSnapshot) -> f64 {
    (to.sum - from.sum) / (to.count - from.count) as f64
}

struct Reading {
    utilisation: RatioSnapshot,
    summary: QueueSetSummary,
    executed: HistogramTotal,
}

fn read(gate: &Gate, name: &str) -> Reading {
    let levels = gate.flow_control().dispatcher().report(now());
    let level = levels.iter().find(|level| &*level.spec.name == name);
    let level = level.unwrap();
    let mut executed = HistogramTotal::default();
    gate.flow_control().visit_cells(|_, schema, cells| {
        if schema == name {
            for core in cells {
                core.execution.add_to(&mut executed);
            }
        }
    });
    Reading {
        utilisation: level.ratios.seats,
        summary: level.summary,
        executed,
    }
}

/// Standard deviation over mean.
#[expect(clippy::cast_precision_loss, reason = "some thousands")]
fn coefficient_of_variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / count;
    variance.sqrt() / mean
}

async fn concurrency_is_isolated(semantics: Semantics) {
    const SEATS: u32 = 10;
    let upstream = TestUpstream::start(Speaks::Http1, |_| async {
        tokio::time::sleep(ms(200)).await;
        text("")
    });
    let gate = Arc::new(Gate::governed(&upstream, &two_levels(SEATS, 50, semantics)));
    let begin = now().plus(ms(500));
    let end = begin.plus(ms(2500));
    let watching = Arc::clone(&gate);
    let readings = async {
        let read_all = || ["elephant", "mouse"].map(|name| read(&watching, name));
        tokio::time::sleep_until(Clock::system().instant(begin)).await;
        let from = read_all();
        tokio::time::sleep_until(Clock::system().instant(end)).await;
        (from, read_all())
    };
    let (tallies, (from, to)) = tokio::join!(
        crowds(&gate, [("elephant", 55), ("mouse", 3)], begin, end),
        readings
    );
    let expected = [1.0, 3.0 / f64::from(SEATS)];
    for (index, tally) in tallies.iter().enumerate() {
        let (from, to) = (&from[index], &to[index]);
        assert_eq!(tally.refused, 0);
        assert_eq!(to.summary.limit, SEATS);
        let utilisation = average(&from.utilisation, &to.utilisation);
        assert!(
            (utilisation - expected[index]).abs() <= 0.05,
            "{utilisation} for {}",
            expected[index]
        );
        // What the gateway saw execute is what its clients were given.
        let executed: u64 = to.executed.counts.iter().sum::<u64>();
        let executed = executed - from.executed.counts.iter().sum::<u64>();
        let margin = (4.0 * coefficient_of_variation(&tally.seconds)).max(0.2);
        #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
        let difference = (f64::from(tally.served) / executed as f64 - 1.0).abs();
        assert!(difference <= margin, "{difference} exceeds {margin}");
    }
}

#[tokio::test]
async fn a_crowd_uses_its_own_seats_and_no_others() {
    tokio::join!(
        concurrency_is_isolated(Semantics::Improved),
        concurrency_is_isolated(Semantics::Compatible)
    );
}
