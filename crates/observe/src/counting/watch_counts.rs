//! Who watches what: the open watches by user and resource.
//!
//! Read from the watches themselves, of which there are at most `limits.watchesTotal`. Clients choose names of users and
//! resources, so only the users with most watches are exposed, each with the resources that it watches most.

use std::{cmp::Reverse, collections::BTreeMap};

use super::request_counts::OTHER;
use crate::{
    aligned_table::AlignedTable,
    metrics::{catalogue, exposition::Exposition},
    sanitized::sanitize,
};
use fairgate_core::digest::{RequestDigest, readable};
use fairgate_proxy::fairness::FlowControl;

/// Bytes of a name that are kept.
const MAX_NAME: usize = 128;
/// Resources of each user that are exposed by name.
const NAMED_RESOURCES: usize = 3;
/// The rows of a dump.
const MOST_ROWS: usize = 1000;

/// The API group and the resource of a watch.
type GroupResource = (Box<str>, Box<str>);

/// The open watches of a user by resource.
type UserWatches = Vec<(GroupResource, u64)>;

/// The open watches of each user by resource, those of the user with most first, and of a user the resource with most first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchCounts(Vec<(Box<str>, UserWatches)>);

impl WatchCounts {
    /// Counts the open watches. O(watches): not for a data core.
    pub(crate) fn read(flow_control: &FlowControl) -> Self {
        let mut by_user: BTreeMap<Box<str>, BTreeMap<GroupResource, u64>> = BTreeMap::new();
        for watch in flow_control.watches.requests() {
            let name = sanitize(&watch.user.name, MAX_NAME);
            if !by_user.contains_key(&*name) {
                by_user.insert((&*name).into(), BTreeMap::new());
            }
            if let Some(resources) = by_user.get_mut(&*name) {
                *resources.entry(resource_of(&watch)).or_default() += 1;
            }
        }
        let sorted = |resources: BTreeMap<GroupResource, u64>| {
            let mut resources: UserWatches = resources.into_iter().collect();
            resources.sort_by_key(|(_, count)| Reverse(*count));
            resources
        };
        let users = by_user.into_iter();
        let mut users: Vec<_> = users
            .map(|(name, resources)| (name, sorted(resources)))
            .collect();
        users.sort_by_cached_key(|(_, resources)| Reverse(total(resources)));
        Self(users)
    }

    /// Writes the metric, of at most `most` users.
    pub(crate) fn write(&self, text: &mut Exposition, most: usize) {
        text.family(&catalogue::USER_WATCHES);
        for (user, resources) in self.0.iter().take(most) {
            let mut sample = |group: &str, resource: &str, count: u64| {
                let labels = [("group", group), ("resource", resource), ("user", user)];
                text.sample(&catalogue::USER_WATCHES, &labels, count);
            };
            let (mut named, mut rest) = (0, 0);
            for ((group, resource), count) in resources {
                // A client may call its resource like the rest.
                let is_other = &**group == OTHER && &**resource == OTHER;
                if is_other || named == NAMED_RESOURCES {
                    rest += count;
                } else {
                    sample(group, resource, *count);
                    named += 1;
                }
            }
            if rest > 0 {
                sample(OTHER, OTHER, rest);
            }
        }
    }

    /// The dump: one row for each user and resource.
    pub(crate) fn table(&self) -> String {
        let mut table = AlignedTable::new(&["UserName", "Group", "Resource", "Watches"]);
        let rows = self.0.iter().flat_map(|(user, resources)| {
            let row = move |((group, resource), count): &(GroupResource, u64)| {
                let [user, group, resource] = [user, group, resource].map(ToString::to_string);
                [user, group, resource, count.to_string()]
            };
            resources.iter().map(row)
        });
        rows.take(MOST_ROWS).for_each(|row| table.row(row));
        table.to_text()
    }
}

fn total(resources: &[(GroupResource, u64)]) -> u64 {
    resources.iter().map(|(_, count)| count).sum()
}

fn resource_of(watch: &RequestDigest) -> GroupResource {
    let text = |part: &[u8]| sanitize(&readable(part), MAX_NAME).into();
    (text(watch.info.group()), text(watch.info.resource()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_that_is_called_like_the_rest_is_counted_with_it() {
        let watches = [
            (OTHER, OTHER, 9),
            ("", "pods", 4),
            ("", "nodes", 3),
            (OTHER, "things", 2),
            ("", "events", 1),
        ];
        let watches = watches.map(|(group, resource, count)| {
            let kind: GroupResource = (group.into(), resource.into());
            (kind, count)
        });
        let counts = WatchCounts(vec![("ann".into(), watches.into())]);
        let mut text = Exposition::default();
        counts.write(&mut text, 1);
        let text = text.finish();
        let samples = text
            .lines()
            .filter_map(|line| line.strip_prefix("fairgate_user_watches"));
        let expected = [
            r#"{group="",resource="pods",user="ann"} 4"#,
            r#"{group="",resource="nodes",user="ann"} 3"#,
            r#"{group="other",resource="things",user="ann"} 2"#,
            r#"{group="other",resource="other",user="ann"} 10"#,
        ];
        assert_eq!(samples.collect::<Vec<_>>(), expected);
    }
}
