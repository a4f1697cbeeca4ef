//! Random traces, whose invariants are checked after every step.

use super::*;

/// One random trace with final seats, short queues, refusals, cancels, changed limits, and tenants with flows at other gateways.
fn play_random_trace(seed: u64) {
    let mut random = Random::seeded(seed);
    let mut stage = Stage::new(improved(queues(4, 2, 2), 6));
    let mut present: Vec<EntryId> = Vec::new();
    let mut now = 0;
    for _ in 0..200 {
        now += random.within(0..4_000);
        let mut events = QueueSetEvents::default();
        match random.within(0..11) {
            0..5 => {
                let mut seats = |most| u32::try_from(random.within(1..most)).unwrap();
                let work = Work {
                    initial_seats: seats(8),
                    final_seats: seats(9) - 1,
                    additional_latency: Duration::from_millis(random.within(0..6)),
                };
                let arriving = arriving("r", random.within(0..5), work);
                match stage.set.arrive(at(now), arriving, &mut events) {
                    Admission::Execute(id) | Admission::Wait(id) => present.push(id),
                    Admission::Reject(_) => {}
                }
            }
            5..9 if !present.is_empty() => {
                let place = usize::try_from(random.within(0..present.len() as u64)).unwrap();
                let id = present.swap_remove(place);
                // A lingering request leaves by itself, and a waiting one may start as time passes.
                match stage.set.entries.get(id).map(|entry| entry.phase) {
                    Some(Phase::Executing) if random.within(0..4) == 0 => {
                        let until = stage.set.finish_refused(at(now), id, &mut events);
                        assert_eq!(until, None, "what was refused has no final seats");
                    }
                    Some(Phase::Executing) => drop(stage.set.finish(at(now), id, &mut events)),
                    Some(Phase::Waiting) if !stage.set.cancel(at(now), id, &mut events) => {
                        present.push(id);
                    }
                    _ => {}
                }
            }
            9 => {
                // Tenants 0 to 4 have a flow each here, and some have others at other gateways.
                let mut flows = || u32::try_from(random.within(1..10)).unwrap();
                let elsewhere = LevelElsewhere {
                    received: Vec::new(),
                    tenants: [0, 1, 7].map(|tenant| (tenant, flows())).into(),
                };
                stage.set.note_elsewhere(at(now), &elsewhere, &mut events);
            }
            _ => {
                let limit = u32::try_from(random.within(0..9)).unwrap();
                stage.set.set_limit(at(now), limit, limit, &mut events);
            }
        }
        // Checks the invariants, such as that no head that fits is left waiting.
        stage.note(&events);
    }
}

#[test]
fn after_whatever_happens_no_head_that_fits_is_left_waiting() {
    for seed in 0..300 {
        play_random_trace(seed);
    }
}
