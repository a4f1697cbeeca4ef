//! Seats that are kept free for a request that does not fit, and who pays for them.

use super::*;

fn ms(millis: u64) -> Time {
    at(1_000 * millis)
}

const NARROW: u64 = 1;
const WIDE: u64 = 0;
const OTHER: u64 = 2;
/// The first of the flows that belong to the tenant of [`WIDE`].
const WIDE_TOO: u64 = 100;

/// A level of four seats, of which one narrow request uses one. A request of four seats waits, then narrow ones.
fn drained() -> Stage {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    stage.arrive(ms(0), "narrow 0", NARROW, Work::ONE);
    stage.arrive(ms(0), "wide 0", WIDE, Work::seats(4));
    stage.arrive(ms(0), "narrow 1", NARROW, Work::ONE);
    stage.arrive(ms(0), "narrow 2", NARROW, Work::ONE);
    assert_eq!(stage.started, ["narrow 0"], "the level is drained");
    stage
}

/// The wide request has given up after three seats were idle for 40 ms, and two narrow requests execute.
fn abandoned() -> Stage {
    let mut stage = drained();
    stage.cancel(ms(40), "wide 0");
    stage.finish(ms(40), "narrow 0");
    assert_eq!(stage.started, ["narrow 0", "narrow 1", "narrow 2"]);
    stage
}

/// The most that has been paid.
fn paid(stage: &Stage) -> SeatSeconds {
    let flows = 0..u32::try_from(stage.set.flows.len()).unwrap();
    let paid = flows.map(|flow| stage.set.flows.drained_for(flow));
    paid.max().unwrap()
}

#[test]
fn a_tenant_pays_for_seats_that_were_idle_for_a_request_that_gave_up() {
    // In 40 ms virtual time advances by one seat for two flows.
    let until = SeatSeconds::product(1, Duration::from_millis(20));
    let idle = SeatSeconds::product(3, Duration::from_millis(40));
    assert_eq!(paid(&abandoned()), until.plus(idle));
}

#[test]
fn seats_that_no_other_request_would_have_used_cost_nothing() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    stage.arrive(ms(0), "narrow 0", NARROW, Work::ONE);
    stage.arrive(ms(0), "wide 0", WIDE, Work::seats(4));
    stage.arrive(ms(0), "other", OTHER, Work::seats(4));
    stage.cancel(ms(40), "wide 0");
    assert_eq!(paid(&stage), SeatSeconds::ZERO);
}

#[test]
fn nothing_is_drained_for_a_tenant_that_has_yet_to_pay() {
    let mut stage = abandoned();
    stage.arrive(ms(40), "wide 1", WIDE, Work::seats(4));
    stage.arrive(ms(40), "narrow 3", NARROW, Work::ONE);
    assert_eq!(stage.started.last(), Some(&"narrow 3"));
    assert!(
        stage.blocked > 0,
        "the wide request was next and did not fit"
    );
}

/// Like [`abandoned`], but the tenant of the wide requests knows so many other flows, which came and went before.
fn abandoned_beside(flows: u64) -> Stage {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    for flow in 0..flows {
        stage.arrive_of(ms(0), WIDE, "earlier", WIDE_TOO + flow, Work::ONE);
        stage.finish(ms(0), "earlier");
    }
    stage.started.clear();
    stage.arrive(ms(0), "narrow 0", NARROW, Work::ONE);
    stage.arrive(ms(0), "wide 0", WIDE, Work::seats(4));
    stage.arrive(ms(0), "narrow 1", NARROW, Work::ONE);
    stage.arrive(ms(0), "narrow 2", NARROW, Work::ONE);
    assert_eq!(stage.started, ["narrow 0"], "the level is drained");
    stage.cancel(ms(40), "wide 0");
    stage.finish(ms(40), "narrow 0");
    stage
}

/// Whether the level is drained for a request of the flow `hash` of the tenant of [`WIDE`].
fn is_drained_for_flow(mut stage: Stage, hash: u64) -> bool {
    stage.arrive_of(ms(40), WIDE, "wide too", hash, Work::seats(4));
    stage.arrive(ms(40), "narrow 3", NARROW, Work::ONE);
    stage.started.last() != Some(&"narrow 3")
}

#[test]
fn a_known_flow_does_not_pay_for_what_was_drained_for_another_of_its_tenant() {
    assert!(is_drained_for_flow(abandoned_beside(1), WIDE_TOO));
    assert!(!is_drained_for_flow(abandoned_beside(1), WIDE));
}

#[test]
fn a_new_flow_and_those_of_a_tenant_of_many_pay_for_what_was_drained_for_others_of_their_tenant() {
    assert!(!is_drained_for_flow(abandoned_beside(0), WIDE_TOO));
    assert!(!is_drained_for_flow(abandoned_beside(4), WIDE_TOO));
}

#[test]
fn seats_are_drained_for_others_meanwhile() {
    let mut stage = abandoned();
    stage.arrive(ms(40), "wide 1", WIDE, Work::seats(4));
    stage.arrive(ms(40), "other", OTHER, Work::seats(4));
    stage.arrive(ms(40), "narrow 3", NARROW, Work::ONE);
    assert_eq!(stage.started.last(), Some(&"narrow 2"), "seats are drained");
    stage.finish(ms(41), "narrow 1");
    stage.finish(ms(41), "narrow 2");
    assert_eq!(stage.started.last(), Some(&"other"));
}

#[test]
fn seats_are_drained_again_when_virtual_time_has_passed_what_was_paid() {
    let mut stage = abandoned();
    stage.arrive(ms(40), "wide 1", WIDE, Work::seats(4));
    for name in ["narrow 3", "narrow 4", "narrow 5"] {
        stage.arrive(ms(41), name, NARROW, Work::ONE);
    }
    assert_eq!(stage.started.last(), Some(&"narrow 4"));
    for name in ["narrow 1", "narrow 2", "narrow 3"] {
        stage.finish(ms(200), name);
    }
    assert_eq!(stage.started.last(), Some(&"narrow 4"), "seats are drained");
    stage.finish(ms(201), "narrow 4");
    assert_eq!(stage.started.last(), Some(&"wide 1"));
}

/// A level of so many seats, of which a narrow request uses five. Two requests of `width` seats wait that do not fit, and a narrow one.
/// After 20 ms the first of them gives up.
fn gave_up(limit: Seats, width: Seats) -> Stage {
    let mut stage = Stage::new(improved(queues(8, 50, 1), limit));
    stage.arrive(ms(0), "narrow 0", NARROW, Work::seats(5));
    stage.arrive(ms(0), "wide 0", WIDE, Work::seats(width));
    stage.arrive(ms(0), "narrow 1", NARROW, Work::ONE);
    stage.arrive(ms(10), "wide 1", WIDE, Work::seats(width));
    stage.cancel(ms(20), "wide 0");
    stage
}

#[test]
fn the_level_goes_on_draining_for_the_next_request_of_a_flow_when_one_gives_up() {
    let mut stage = gave_up(8, 4);
    assert_eq!(stage.started, ["narrow 0"], "the level is drained");
    assert_eq!(paid(&stage), SeatSeconds::ZERO, "it is paid for once");
    stage.finish(ms(26), "narrow 0");
    assert_eq!(stage.started, ["narrow 0", "wide 1", "narrow 1"]);
    // In 26 ms virtual time advances by five seats for two flows.
    let until = SeatSeconds::product(5, Duration::from_millis(13));
    let idle = SeatSeconds::product(3, Duration::from_millis(26));
    assert_eq!(paid(&stage), until.plus(idle));
}

/// A client that was away for 100 ms sends a request of `width` seats, for which three of eight seats are idle for 4 ms.
fn after_a_pause(width: Seats) -> Stage {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 8));
    stage.arrive(ms(0), "early", WIDE, Work::ONE);
    stage.finish(ms(1), "early");
    stage.arrive(ms(100), "narrow 0", NARROW, Work::seats(5));
    stage.arrive(ms(100), "wide 0", WIDE, Work::seats(width));
    stage.arrive(ms(100), "narrow 1", NARROW, Work::ONE);
    assert_eq!(stage.started, ["early", "narrow 0"], "the level is drained");
    stage.finish(ms(104), "narrow 0");
    assert_eq!(stage.started[2..], ["wide 0", "narrow 1"]);
    stage
}

#[test]
fn who_comes_back_with_savings_pays_for_a_drain_with_them() {
    let stage = after_a_pause(4);
    assert!(paid(&stage) > SeatSeconds::ZERO);
    assert!(paid(&stage) <= stage.set.virtual_time.r(), "it has paid");
}

#[test]
fn savings_do_not_pay_for_a_drain_for_a_request_of_most_of_the_level() {
    let stage = after_a_pause(5);
    let idle = SeatSeconds::product(3, Duration::from_millis(4));
    assert_eq!(paid(&stage), stage.set.virtual_time.r().plus(idle));
}

#[test]
fn the_level_does_not_go_on_draining_for_requests_that_take_most_of_it() {
    assert_eq!(gave_up(7, 4).started, ["narrow 0", "narrow 1"]);
}

#[test]
fn the_level_does_not_go_on_draining_for_a_wider_request() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 8));
    stage.arrive(ms(0), "narrow 0", NARROW, Work::seats(6));
    stage.arrive(ms(0), "wide 0", WIDE, Work::seats(3));
    stage.arrive(ms(0), "wider", WIDE, Work::seats(4));
    stage.arrive(ms(0), "narrow 1", NARROW, Work::ONE);
    assert_eq!(stage.started, ["narrow 0"], "the level is drained");
    stage.cancel(ms(20), "wide 0");
    assert_eq!(stage.started, ["narrow 0", "narrow 1"]);
}

#[test]
fn the_widest_request_that_fits_goes_before_the_head_of_its_flow() {
    let mut stage = Stage::new(improved(queues(8, 50, 1), 4));
    stage.arrive(ms(0), "executes", NARROW, Work::seats(2));
    stage.arrive(ms(0), "head", WIDE, Work::seats(4));
    stage.arrive(ms(0), "one", WIDE, Work::ONE);
    stage.arrive(ms(0), "two", WIDE, Work::seats(2));
    // It was alone when it came, so it went first.
    assert_eq!(stage.started, ["executes", "one"]);
    stage.arrive(ms(0), "three", WIDE, Work::seats(3));
    stage.finish(ms(3), "executes");
    assert_eq!(stage.started, ["executes", "one", "three"]);
}
