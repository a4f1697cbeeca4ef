//! The order of waiting evictions, in virtual time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMITS: WaitLimits = WaitLimits {
    per_budget: 1000,
    total: 1500,
};

const NOBODY: [u64; 0] = [];

fn at(seconds: u64) -> Time {
    Time::ZERO.plus(Duration::from_secs(seconds))
}

fn foo() -> BudgetName {
    BudgetName {
        namespace: "ns".to_owned(),
        name: "foo".to_owned(),
    }
}

fn bar() -> BudgetName {
    BudgetName {
        name: "bar".to_owned(),
        ..foo()
    }
}

/// Evictions of several flows that wait for one budget.
struct Crowd {
    waiting: WaitingEvictions,
    places: BTreeMap<u64, WaitPlace>,
    now: Time,
    pods: usize,
}

impl Crowd {
    fn new() -> Self {
        Self {
            waiting: WaitingEvictions::new(LIMITS),
            places: BTreeMap::new(),
            now: Time::ZERO,
            pods: 0,
        }
    }

    fn of(flows: &[(&str, usize)]) -> Self {
        let mut crowd = Self::new();
        for (flow, count) in flows {
            for _ in 0..*count {
                crowd.join(flow);
            }
        }
        crowd
    }

    fn join(&mut self, flow: &str) -> u64 {
        self.pods += 1;
        let pod = format!("p{}", self.pods);
        let place = self.waiting.join(&foo(), flow, &pod).unwrap().place;
        let number = place.number();
        self.places.insert(number, place);
        number
    }

    fn observed(&mut self, allowed: usize) -> Vec<u64> {
        self.now = self.now.plus(Duration::from_secs(1));
        self.waiting.observed(self.now, &foo(), allowed)
    }

    fn end(&mut self, number: u64, is_granted: bool) -> String {
        let place = self.places.remove(&number).unwrap();
        self.waiting.leave(&place, is_granted);
        place.flow
    }

    fn refused(&mut self, number: u64) {
        self.waiting.refused(&self.places[&number]);
    }

    fn stepped_back(&mut self, number: u64) {
        self.waiting.stepped_back(self.now, &self.places[&number]);
    }

    /// Grants evictions one after the other. Returns the names of their flows.
    fn granted(&mut self, count: usize) -> String {
        let grant = |_| {
            let [next] = self.observed(1)[..] else {
                panic!("nobody is next");
            };
            self.end(next, true)
        };
        (0..count).map(grant).collect()
    }
}

#[test]
fn a_drain_of_two_does_not_wait_behind_a_drain_of_fifty() {
    let mut crowd = Crowd::of(&[("a", 50), ("b", 2)]);
    assert_eq!(crowd.granted(6), "ababaa");
}

#[test]
fn the_order_that_is_shown_is_that_of_the_turns() {
    let mut crowd = Crowd::of(&[("a", 5), ("b", 2)]);
    crowd.granted(3);
    for flow in ["c", "b", "c"] {
        crowd.join(flow);
    }
    let bars = crowd.waiting.join(&bar(), "a", "q").unwrap().place;
    let turns = crowd.observed(2);
    let shown = crowd.waiting.in_order(crowd.now);
    let of_bar: Vec<_> = shown
        .iter()
        .filter(|place| *place.budget == bar())
        .collect();
    assert_eq!(
        (of_bar.len(), of_bar[0].number, of_bar[0].position),
        (1, bars.number(), 1)
    );
    let of_foo: Vec<_> = shown
        .iter()
        .filter(|place| *place.budget == foo())
        .collect();
    let positions: Vec<_> = of_foo.iter().map(|place| place.position).collect();
    assert_eq!(positions, (1..=crowd.places.len()).collect::<Vec<_>>());
    let (first, rest) = of_foo.split_at(2);
    assert!(
        first
            .iter()
            .all(|place| place.has_turn && turns.contains(&place.number))
    );
    assert!(rest.iter().all(|place| !place.has_turn));
    let rest: Vec<u64> = rest.iter().map(|place| place.number).collect();
    for number in turns {
        crowd.end(number, true);
    }
    let mut order = Vec::new();
    while let [next] = crowd.observed(1)[..] {
        order.push(next);
        crowd.end(next, true);
    }
    assert_eq!(rest, order);
    assert!(
        crowd.waiting.in_order(crowd.now).len() == 1,
        "that of the other budget"
    );
}

#[test]
fn a_drain_that_arrives_later_is_next_after_one_turn_of_the_others() {
    let mut crowd = Crowd::of(&[("a", 20), ("b", 20)]);
    assert_eq!(crowd.granted(5), "ababa");
    crowd.join("c");
    crowd.join("c");
    assert_eq!(crowd.granted(6), "bacbac");
}

#[test]
fn evictions_of_one_drain_have_their_turns_in_the_order_of_arrival() {
    let mut crowd = Crowd::new();
    let numbers: Vec<u64> = (0..5).map(|_| crowd.join("a")).collect();
    assert_eq!(crowd.observed(2), numbers[..2]);
    crowd.refused(numbers[1]);
    crowd.end(numbers[0], true);
    assert_eq!(crowd.observed(3), numbers[1..4]);
}

#[test]
fn a_drain_that_sends_one_eviction_after_the_other_has_no_advantage() {
    let mut crowd = Crowd::of(&[("a", 50)]);
    let mut order = String::new();
    for _ in 0..20 {
        if !crowd.places.values().any(|place| place.flow == "b") {
            crowd.join("b");
        }
        order.push_str(&crowd.granted(1));
    }
    assert_eq!(order, "ab".repeat(10));
}

#[test]
fn ever_new_drains_do_not_starve_a_waiting_drain() {
    let mut crowd = Crowd::of(&[("a", 10)]);
    let mut order = String::new();
    for new in ["b", "c", "d", "e"] {
        crowd.join(new);
        order.push_str(&crowd.granted(2));
    }
    assert_eq!(order.matches('a').count(), 4, "{order}");
}

#[test]
fn as_many_evictions_have_their_turn_as_the_budget_allows() {
    let mut crowd = Crowd::of(&[("a", 3), ("b", 3)]);
    assert_eq!(crowd.observed(0), NOBODY);
    let turns = crowd.observed(3);
    assert_eq!(turns, [0, 3, 1], "the flows take turns");
    assert_eq!(crowd.observed(3), NOBODY, "they are on their way");
    crowd.end(0, true);
    assert_eq!(crowd.observed(2), NOBODY, "two are still on their way");
    crowd.refused(3);
    assert_eq!(crowd.observed(2), [3], "a refusal costs no place");
    assert_eq!(crowd.observed(100).len(), 3, "there are no more");
}

#[test]
fn a_slow_turn_does_not_keep_others_waiting() {
    let mut crowd = Crowd::of(&[("a", 3)]);
    assert_eq!(crowd.observed(1), [0]);
    crowd.now = at(5);
    assert_eq!(crowd.observed(1), [1]);
    let slow = &crowd.places[&0];
    assert!(crowd.waiting.may_charge(crowd.now, &foo(), Some(slow)));
    crowd.end(0, true);
    assert_eq!(crowd.observed(1), NOBODY, "the second is on its way");
}

#[test]
fn a_flow_whose_turn_ends_before_the_budget_decides_lets_the_others_pass() {
    let mut crowd = Crowd::of(&[("a", 2), ("b", 2)]);
    assert_eq!(crowd.observed(1), [0]);
    crowd.stepped_back(0);
    assert_eq!(
        crowd.observed(1),
        [2],
        "the budget allows one of the others"
    );
    crowd.stepped_back(2);
    assert_eq!(crowd.observed(2), [0, 2], "nobody else is left");
    crowd.stepped_back(0);
    crowd.stepped_back(2);
    crowd.join("c");
    assert_eq!(crowd.granted(1), "c");
    crowd.now = crowd.now.plus(TURN_LIMIT);
    assert_eq!(crowd.granted(3), "aba", "the order is as before");
}

#[test]
fn who_may_not_wait_is_served_while_all_who_wait_let_others_pass() {
    let mut crowd = Crowd::new();
    let waiting = crowd.join("a");
    assert_eq!(crowd.observed(1), [waiting]);
    crowd.stepped_back(waiting);
    assert!(crowd.waiting.may_charge(crowd.now, &foo(), None));
    assert_eq!(crowd.observed(1), [waiting]);
    assert!(
        !crowd.waiting.may_charge(crowd.now, &foo(), None),
        "it has its turn"
    );
    crowd.stepped_back(waiting);
    crowd.now = crowd.now.plus(TURN_LIMIT);
    assert!(!crowd.waiting.may_charge(crowd.now, &foo(), None));
}

#[test]
fn the_order_that_is_shown_has_those_last_who_let_others_pass() {
    let mut crowd = Crowd::of(&[("a", 2), ("b", 2)]);
    let shown = |crowd: &Crowd, now| -> Vec<u64> {
        let places = crowd.waiting.in_order(now).into_iter();
        places.map(|place| place.number).collect()
    };
    assert_eq!(crowd.observed(1), [0]);
    crowd.stepped_back(0);
    assert_eq!(shown(&crowd, crowd.now), [2, 3, 0, 1]);
    assert_eq!(shown(&crowd, crowd.now.plus(TURN_LIMIT)), [0, 2, 1, 3]);
    // One that had no turn has kept nobody waiting.
    crowd.stepped_back(3);
    assert_eq!(shown(&crowd, crowd.now), [2, 3, 0, 1]);
}

#[test]
fn an_eviction_that_leaves_gives_up_its_place_and_turn() {
    let mut crowd = Crowd::of(&[("a", 3)]);
    crowd.end(1, false);
    assert_eq!(crowd.observed(1), [0]);
    let place = crowd.places[&0].clone();
    crowd.end(0, false);
    crowd.waiting.leave(&place, true);
    crowd.waiting.refused(&place);
    assert_eq!((crowd.waiting.len(), crowd.observed(1)), (1, vec![2]));
    crowd.end(2, true);
    assert!(crowd.waiting.is_empty() && crowd.waiting.budgets().next().is_none());
    assert_eq!(crowd.observed(1), NOBODY);
}

const FEW: WaitLimits = WaitLimits {
    per_budget: 100,
    total: 150,
};

/// Has evictions of other pods join until one is refused. Returns the places, and those that were pushed out for them.
fn join_all(
    waiting: &mut WaitingEvictions,
    budget: &BudgetName,
    flow: &str,
) -> (Vec<WaitPlace>, Vec<u64>) {
    let join =
        |number: usize| waiting.join(budget, flow, &format!("{flow} {} {number}", budget.name));
    let joined: Vec<_> = (0..1000).map_while(join).collect();
    let pushed_out = joined.iter().filter_map(|joined| joined.pushed_out);
    let pushed_out = pushed_out.collect();
    let places = joined.into_iter().map(|joined| joined.place).collect();
    (places, pushed_out)
}

#[test]
fn a_flow_has_at_most_as_many_places_as_are_left_for_all() {
    let mut waiting = WaitingEvictions::new(FEW);
    let (places, _) = join_all(&mut waiting, &foo(), "a");
    assert_eq!(places.len(), 50, "half of one budget");
    let (more, _) = join_all(&mut waiting, &bar(), "a");
    assert_eq!(more.len(), 25, "half of all");
    assert!(
        !waiting.may_charge(Time::ZERO, &foo(), None),
        "there are places left"
    );
    for place in places {
        waiting.leave(&place, false);
    }
    let (again, pushed_out) = join_all(&mut waiting, &foo(), "a");
    assert_eq!((again.len(), pushed_out.len()), (50, 0));
}

#[test]
fn whoever_comes_gets_as_many_places_as_the_flow_that_has_most() {
    let mut waiting = WaitingEvictions::new(FEW);
    let flows: Vec<String> = (0..20).map(|number| format!("flow {number}")).collect();
    let (first, _) = join_all(&mut waiting, &foo(), &flows[0]);
    let mut pushed_out = Vec::new();
    for flow in &flows[1..] {
        let (places, others) = join_all(&mut waiting, &foo(), flow);
        assert!(places.len() >= 100 / 20 - 1, "{flow}: {}", places.len());
        pushed_out.extend(others);
    }
    let newest = first.last().unwrap().number();
    assert_eq!(pushed_out.first(), Some(&newest));
    assert_eq!(waiting.len(), waiting.pods.len());
    let most = waiting.of_flow.values().max().unwrap();
    let least = waiting.of_flow.values().min().unwrap();
    assert!(most - least <= 1, "{:?}", waiting.of_flow);
    // Who was pushed out has nothing left to give back.
    let (before, lost) = (waiting.len(), first.last().unwrap());
    waiting.leave(lost, false);
    assert_eq!(waiting.len(), before);
    assert!(waiting.join(&foo(), "new", &lost.pod).is_some());
}

#[test]
fn a_flow_that_has_many_places_elsewhere_pushes_nobody_out_who_has_fewer() {
    let mut waiting = WaitingEvictions::new(FEW);
    join_all(&mut waiting, &bar(), "a");
    join_all(&mut waiting, &foo(), "b");
    join_all(&mut waiting, &foo(), "c");
    let places = |waiting: &WaitingEvictions, flow: &str| waiting.of_flow[flow];
    let before = ["b", "c"].map(|flow| places(&waiting, flow));
    join_all(&mut waiting, &foo(), "a");
    for (flow, before) in ["b", "c"].iter().zip(before) {
        assert!(
            places(&waiting, flow) >= before.min(places(&waiting, "a") - 1),
            "{:?}",
            waiting.of_flow
        );
    }
}

#[test]
fn a_pod_has_one_place() {
    let mut waiting = WaitingEvictions::new(LIMITS);
    let place = waiting.join(&foo(), "a", "p").unwrap().place;
    assert_eq!(waiting.join(&foo(), "a", "p"), None);
    assert_eq!(waiting.join(&bar(), "b", "p"), None);
    let elsewhere = BudgetName {
        namespace: "other".to_owned(),
        ..foo()
    };
    assert!(waiting.join(&elsewhere, "a", "p").is_some());
    waiting.leave(&place, true);
    waiting.leave(&place, true);
    assert!(waiting.join(&foo(), "a", "p").is_some());
    assert_eq!(waiting.len(), 2);
}

#[test]
fn evictions_without_a_place_may_charge_once_there_are_none() {
    let mut waiting = WaitingEvictions::new(FEW);
    for flow in 0..100 {
        let place = waiting.join(&foo(), &flow.to_string(), &flow.to_string());
        assert_eq!(place.is_some(), flow < 100);
    }
    assert_eq!(waiting.join(&foo(), "z", "z"), None);
    assert!(waiting.may_charge(Time::ZERO, &foo(), None));
}

#[test]
fn a_new_eviction_does_not_overtake_waiting_ones() {
    let mut crowd = Crowd::new();
    assert!(crowd.waiting.may_charge(crowd.now, &foo(), None));
    let first = crowd.join("a");
    let alone = crowd.places[&first].clone();
    assert!(crowd.waiting.may_charge(crowd.now, &foo(), Some(&alone)));
    assert!(!crowd.waiting.may_charge(crowd.now, &foo(), None));
    assert!(crowd.waiting.may_charge(crowd.now, &bar(), None));
    crowd.join("b");
    assert!(!crowd.waiting.may_charge(crowd.now, &foo(), Some(&alone)));
    assert_eq!(crowd.observed(1), [first]);
    assert!(crowd.waiting.may_charge(crowd.now, &foo(), Some(&alone)));
    for flow in 2..LIMITS.per_budget {
        crowd.join(&format!("c{flow}"));
    }
    assert!(
        crowd.waiting.may_charge(crowd.now, &foo(), None),
        "there is no place left"
    );
}

/// Each place has at most one turn at a time, a turn begins only if the budget allows more disruptions than there are turns
/// that count, and the waiting evictions are counted. Of two drains that always have evictions waiting, neither is granted
/// more evictions more than the other than there were simultaneous turns, old ones included: those of the other drain, which
/// may all be refused, and its own.
fn turns_are_fair_and_counted(steps: &[(u8, usize)]) -> Result<(), TestCaseError> {
    let mut crowd = Crowd::of(&[("a", 40), ("b", 40)]);
    let mut on_turn: Vec<u64> = Vec::new();
    let mut began = BTreeMap::new();
    let mut most_turns = 0;
    let (mut a, mut b) = (0_u64, 0_u64);
    for &(kind, pick) in steps {
        match kind {
            0 if crowd.places.len() < 100 => {
                crowd.join("c");
            }
            1..=3 => {
                let turns = crowd.observed(pick);
                prop_assert!(turns.iter().all(|turn| !on_turn.contains(turn)));
                let begins = !turns.is_empty();
                began.extend(turns.iter().map(|turn| (*turn, crowd.now)));
                on_turn.extend(turns);
                let counts = |turn: &&u64| crowd.now.since(began[*turn]) < TURN_LIMIT;
                prop_assert!(!begins || on_turn.iter().filter(counts).count() <= pick);
                most_turns = most_turns.max(on_turn.len());
            }
            _ if on_turn.is_empty() => {}
            4 | 5 => {
                let number = on_turn.remove(pick % on_turn.len());
                match crowd.end(number, true).as_str() {
                    "a" => a += 1,
                    "b" => b += 1,
                    _ => {}
                }
            }
            6 => crowd.refused(on_turn.remove(pick % on_turn.len())),
            _ => {
                crowd.end(on_turn.remove(pick % on_turn.len()), false);
            }
        }
        prop_assert_eq!(crowd.waiting.len(), crowd.places.len());
        let both = ["a", "b"].map(|flow| crowd.places.values().any(|place| place.flow == flow));
        if both != [true, true] {
            break;
        }
        prop_assert!(
            a.abs_diff(b) <= u64::try_from(most_turns).unwrap(),
            "{a} {b}"
        );
    }
    Ok(())
}

#[test]
fn turns_that_last_longer_than_their_limit_are_fair_and_counted() {
    let steps = [
        (1, 3),
        (4, 2),
        (4, 0),
        (1, 2),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 3),
        (4, 3),
        (1, 3),
        (6, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 3),
        (6, 0),
        (6, 3),
        (6, 3),
        (4, 2),
        (6, 0),
        (4, 1),
    ];
    turns_are_fair_and_counted(&steps).unwrap();
}

proptest! {
    #[test]
    fn any_turns_are_fair_and_counted(
        steps in proptest::collection::vec((0..8_u8, 0..4_usize), 1..200),
    ) {
        turns_are_fair_and_counted(&steps)?;
    }
}
