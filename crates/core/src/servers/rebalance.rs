//! How many watches, and client connections, move to a server that has too few of them.
//!
//! A watch lasts for most of an hour. After a server's return the others keep all of them, until someone ends a few: their clients open
//! them again, and the server with the fewest gets them.

/// What one server has, and how much it can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// How many it has.
    pub number: u32,
    /// Its seats; 0 if it takes no requests.
    pub capacity: u32,
}

/// How many each server may have more than its part before any of them moves: one part in four, and at least four.
const TOLERANCE: u64 = 4;

/// How many each server should give away at most now, of all of which at most `most` move. Nothing moves while each has its part by
/// capacity, within a quarter. O(servers).
pub fn surplus(held: &[Held], most: u32) -> Vec<u32> {
    let all: u64 = held.iter().map(|server| u64::from(server.number)).sum();
    let capacity: u64 = held.iter().map(|server| u64::from(server.capacity)).sum();
    let part = |server: &Held| match capacity {
        0 => 0,
        capacity => all * u64::from(server.capacity) / capacity,
    };
    let lacks_some = held.iter().any(|server| {
        let part = part(server);
        u64::from(server.number) + (part / TOLERANCE).max(TOLERANCE) < part
    });
    let mut left = u64::from(most);
    let taken = held.iter().map(|server| {
        // One that takes no requests ends its watches itself, when it shuts down.
        if !lacks_some || server.capacity == 0 {
            return 0;
        }
        let extra = u64::from(server.number)
            .saturating_sub(part(server))
            .min(left);
        left -= extra;
        u32::try_from(extra).unwrap_or(u32::MAX)
    });
    taken.collect()
}

/// How many watches of a server that is lost end in a period, of so many that it has: a part that lets the others keep up.
pub fn leaving(number: u32) -> u32 {
    number.min((number / 5).max(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(of: &[(u32, u32)]) -> Vec<Held> {
        of.iter()
            .map(|&(number, capacity)| Held { number, capacity })
            .collect()
    }

    #[test]
    fn watches_move_from_who_has_too_many_to_who_has_too_few_and_never_more_than_allowed() {
        for (servers, most, moved) in [
            // A server that came back: half of 300 would be 100 each.
            (vec![(150, 10), (150, 10), (0, 10)], 1_000, vec![50, 50, 0]),
            (vec![(150, 10), (150, 10), (0, 10)], 60, vec![50, 10, 0]),
            // By capacity.
            (vec![(300, 10), (0, 20)], 1_000, vec![200, 0]),
            // Within the tolerance, few, none to take them, nothing at all.
            (vec![(110, 10), (90, 10)], 1_000, vec![0, 0]),
            (vec![(4, 10), (0, 10)], 1_000, vec![0, 0]),
            (vec![(100, 0), (0, 0)], 1_000, vec![0, 0]),
            (vec![], 5, vec![]),
            // A server that takes no requests keeps what it has.
            (vec![(100, 0), (100, 10), (0, 10)], 1_000, vec![0, 0, 0]),
        ] {
            assert_eq!(surplus(&held(&servers), most), moved, "{servers:?}");
        }
    }

    #[test]
    fn all_watches_of_a_lost_server_leave_in_periods_whose_number_grows_slowly() {
        for (mut number, most_periods) in [(0, 0), (19, 1), (100, 5), (10_000, 33)] {
            let mut periods = 0;
            while number > 0 {
                number -= leaving(number);
                periods += 1;
            }
            assert!(periods <= most_periods, "{periods} for {most_periods}");
        }
        assert_eq!(leaving(10_000), 2_000);
    }

    #[test]
    fn repeated_moves_end_with_each_server_near_its_part() {
        let mut servers = held(&[(900, 30), (0, 10), (0, 20)]);
        for _ in 0..1_000 {
            for (index, moved) in surplus(&servers, 5).into_iter().enumerate() {
                servers[index].number -= moved;
                for _ in 0..moved {
                    let fewest = |held: &&mut Held| held.number * 1_000 / held.capacity;
                    servers.iter_mut().min_by_key(fewest).unwrap().number += 1;
                }
            }
        }
        let numbers: Vec<u32> = servers.iter().map(|server| server.number).collect();
        assert_eq!(numbers.iter().sum::<u32>(), 900);
        for (number, part) in numbers.iter().zip([450, 150, 300]) {
            assert!(number.abs_diff(part) <= part / 4, "{numbers:?}");
        }
    }
}
