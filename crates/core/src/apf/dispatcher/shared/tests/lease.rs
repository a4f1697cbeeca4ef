//! What changes in a level when the lease of its seats has ended.

use super::*;

#[test]
fn with_the_end_of_the_lease_no_adjustment_dispatches_beyond_the_floor() {
    let adjustments: [fn(&mut World); 3] = [
        |world| {
            world.note_elsewhere(|_| LevelElsewhere {
                received: Vec::new(),
                tenants: vec![(5, 8)],
            });
        },
        |world| world.share(0, 0),
        |world| {
            let mut out = Decisions::default();
            let now = at(world.now);
            world.dispatcher.apply(now, policy(), &mut out);
            world.take(out);
        },
    ];
    for (number, adjust) in adjustments.into_iter().enumerate() {
        let mut world = World::new(30, 0, 2_000);
        world.work = Work {
            initial_seats: 100,
            final_seats: 100,
            additional_latency: Duration::from_millis(1),
        };
        world.now = 1_999;
        world.arrive_of("a", 5);
        world.arrive_of("a", 5);
        world.finish_first();
        // As wide as the level, so it waits until what lingers has ended, which is when the lease ends.
        assert_eq!((world.executing.len(), world.waiting.len()), (0, 1));
        world.now = 2_500;
        adjust(&mut world);
        assert_eq!(world.executing.len(), 0, "adjustment {number}");
    }
}
