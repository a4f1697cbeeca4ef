//! Which revisions the upstream is known to have come to, for each resource.
//!
//! A version in a response shows that there was that revision when the response was made. So of a request that begins later it is known that it
//! has not made this version, and that an object with this version was stored when it began. Some time after that a server has it in its cache, too,
//! from which it takes the object of a write first. The time decides nothing but how many objects a write may be based on: in doubt more.
//!
//! Resources may be in different stores, which count by themselves.

use std::{collections::HashMap, time::Duration};

use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// After which time a server has in its cache what it has answered.
const SETTLING: Duration = Duration::from_millis(200);

/// The revisions of all data cores. It has as many entries as there are resources with objects that policies match.
#[derive(Debug, Default)]
pub(crate) struct KnownRevisions(Mutex<HashMap<String, HashMap<String, NotedRevision>>>);

/// What was known when a request began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownRevision {
    /// The highest revision; 0 if none is known.
    pub(crate) latest: u64,
    /// The highest that a server has in its cache since.
    pub(crate) settled: u64,
}

#[derive(Clone, Copy, Debug)]
struct NotedRevision {
    latest: u64,
    at: Time,
    /// What was the latest at earlier times, which are at least [`SETTLING`] apart; the older one first.
    earlier: [(Time, u64); 2],
}

impl KnownRevisions {
    /// What is known for a resource of a group.
    pub(crate) fn of(&self, group: &str, resource: &str, now: Time) -> KnownRevision {
        let known = lock(&self.0);
        let noted = known
            .get(group)
            .and_then(|resources| resources.get(resource));
        noted.map_or_else(KnownRevision::default, |noted| noted.known(now))
    }

    /// Forgets a resource whose revisions have gone back, as after the upstream's store was restored.
    pub(crate) fn forget(&self, group: &str, resource: &str) {
        if let Some(resources) = lock(&self.0).get_mut(group) {
            resources.remove(resource);
        }
    }

    /// Notes the version of an object of this resource.
    pub(crate) fn note(&self, group: &str, resource: &str, version: u64, now: Time) {
        if version == 0 {
            return;
        }
        let mut known = lock(&self.0);
        let of_group = known.entry(group.to_owned()).or_default();
        let noted = of_group.entry(resource.to_owned());
        let first = || NotedRevision {
            latest: 0,
            at: now,
            earlier: [(now, 0); 2],
        };
        noted.or_insert_with(first).note(version, now);
    }
}

impl NotedRevision {
    fn note(&mut self, version: u64, now: Time) {
        if now.since(self.earlier[1].0) >= SETTLING {
            self.earlier = [self.earlier[1], (now, self.latest)];
        }
        if version > self.latest {
            self.latest = version;
            self.at = now;
        }
    }

    fn known(&self, now: Time) -> KnownRevision {
        let [older, newer] = self.earlier;
        let settled = if now.since(self.at) >= SETTLING {
            self.latest
        } else if now.since(newer.0) >= SETTLING {
            newer.1
        } else {
            older.1
        };
        KnownRevision {
            latest: self.latest,
            settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_settled_some_time_after_it_was_noted() {
        let at = |millis: u64| Time::ZERO.plus(Duration::from_millis(millis));
        let mut noted = NotedRevision {
            latest: 0,
            at: at(1000),
            earlier: [(at(1000), 0); 2],
        };
        let mut all = Vec::new();
        for (now, version) in [
            (1000, 5),
            (1010, 4),
            (1100, 7),
            (1199, 9),
            (1300, 12),
            (1399, 13),
        ] {
            noted.note(version, at(now));
            all.push((noted.known(at(now)).latest, noted.known(at(now)).settled));
        }
        assert_eq!(all, [(5, 0), (5, 0), (7, 0), (9, 0), (12, 0), (13, 0)]);
        assert_eq!(noted.known(at(1500)).settled, 9, "the latest at 1300");
        assert_eq!(noted.known(at(1598)).settled, 9);
        assert_eq!(noted.known(at(1599)).settled, 13);
        noted.note(20, at(1600));
        assert_eq!(
            noted.known(at(1600)),
            KnownRevision {
                latest: 20,
                settled: 9
            }
        );
        assert_eq!(noted.known(at(1800)).settled, 20);
    }
}
