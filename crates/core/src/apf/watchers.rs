//! Who watches what: how many watchers a write wakes.
//!
//! A running watch is counted by group, resource, namespace and name. A write interests those who
//! watch all of its resource, its namespace, or the very object. Watches of the pods of one node
//! are not counted: there is one for each node, and a write interests only one of them.
//!
//! Plain data without locks, bounded in the number of different watches it counts. Not here: what
//! a write costs (`work`).

use std::collections::HashMap;

use super::scope::{MAX_KEY_BYTES, key};
use crate::digest::{RequestInfo, Verb};

/// The running watches, counted.
#[derive(Clone, Debug)]
pub struct Watchers {
    counts: HashMap<Box<[u8]>, u32>,
    max_keys: usize,
}

/// A watch that is counted, to be given back to [`Watchers::unregister`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a watch that is not unregistered is counted forever"]
pub struct WatchKey(Box<[u8]>);

impl Watchers {
    /// No watches. Of watches that differ in what they watch, at most `max_keys` are counted.
    pub fn new(max_keys: usize) -> Self {
        Self {
            counts: HashMap::new(),
            max_keys,
        }
    }

    /// Counts a watch that begins. `None` if it is not a watch or is not counted: the pods of one
    /// node, names too long to be real, and new watches when there are too many different ones.
    pub fn register(&mut self, info: &RequestInfo) -> Option<WatchKey> {
        if info.verb != Verb::Watch || is_of_one_node(info) {
            return None;
        }
        // The version is not part of the key: a write wakes watchers of every version of the resource.
        let key = key([info.group(), info.resource(), info.namespace(), info.name()]);
        if let Some(count) = self.counts.get_mut(&key[..]) {
            *count = count.saturating_add(1);
        } else if key.len() <= MAX_KEY_BYTES && self.counts.len() < self.max_keys {
            self.counts.insert(key[..].into(), 1);
        } else {
            return None;
        }
        Some(WatchKey(key[..].into()))
    }

    /// No longer counts a watch, which has ended.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a watch ends once: its key is used up"
    )]
    pub fn unregister(&mut self, watch: WatchKey) {
        if let Some(count) = self.counts.get_mut(&watch.0) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&watch.0);
            }
        }
    }

    /// How many watchers the request wakes; 0 for requests that only read.
    ///
    /// A creation has no name yet, so that watchers of the very object are missed.
    ///
    /// Cost: up to three hashes; no allocation for names of usual length.
    pub fn interested(&self, info: &RequestInfo) -> u32 {
        // Also `proxy`, as in kube-apiserver's watch tracker, though what is proxied may well write.
        let only_reads = matches!(
            info.verb,
            Verb::Get | Verb::List | Verb::Watch | Verb::Proxy
        );
        if only_reads || self.counts.is_empty() {
            return 0;
        }
        let (namespace, name) = (info.namespace(), info.name());
        let count = |namespace, name| {
            let key = key([info.group(), info.resource(), namespace, name]);
            self.counts.get(&key[..]).copied().unwrap_or(0)
        };
        let mut interested = count(b"", b"");
        if !namespace.is_empty() {
            interested = interested.saturating_add(count(namespace, b""));
        }
        if !name.is_empty() {
            interested = interested.saturating_add(count(namespace, name));
        }
        interested
    }

    /// The number of different watches counted.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

fn is_of_one_node(info: &RequestInfo) -> bool {
    let options = info.list.as_deref();
    let node_name = options.and_then(|options| options.node_name.as_deref());
    info.resource() == b"pods" && node_name.is_some_and(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, target: &str) -> RequestInfo {
        RequestInfo::from_target(method, target).unwrap()
    }

    fn watching(targets: &[&str]) -> (Watchers, Vec<Option<WatchKey>>) {
        let mut watchers = Watchers::new(100);
        let keys = targets
            .iter()
            .map(|target| watchers.register(&info("GET", target)));
        let keys = keys.collect();
        (watchers, keys)
    }

    #[test]
    fn a_write_interests_watchers_of_its_resource_its_namespace_and_its_object() {
        let (watchers, _) = watching(&[
            "/api/v1/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true&fieldSelector=metadata.name=mypod",
            "/api/v1/namespaces/bar/pods?watch=true&fieldSelector=metadata.name=mypod",
            "/apis/group/v1/namespaces/foo/pods?watch=true",
            "/apis/group/v1/namespaces/bar/pods?watch=true&fieldSelector=metadata.name=mypod",
        ]);
        let table = [
            ("POST", "/api/v1/namespaces/foo/pods", 2),
            ("PUT", "/api/v1/namespaces/foo/pods/mypod", 3),
            ("PATCH", "/api/v1/namespaces/foo/pods/mypod", 3),
            ("DELETE", "/api/v1/namespaces/foo/pods/mypod", 3),
            ("PUT", "/api/v1/namespaces/foo/pods/otherpod", 2),
            ("GET", "/api/v1/namespaces/foo/pods/mypod", 0),
            ("GET", "/api/v1/namespaces/foo/pods", 0),
            ("GET", "/api/v1/namespaces/foo/pods?watch=true", 0),
            ("GET", "/api/v1/proxy/namespaces/foo/pods/mypod", 0),
            ("POST", "/api/v1/namespaces/bar/pods", 1),
            ("PUT", "/api/v1/namespaces/bar/pods/mypod", 2),
            ("PUT", "/apis/group/v1/namespaces/foo/pods/mypod", 1),
            ("PUT", "/apis/group/v1/namespaces/foo/pods/otherpod", 1),
            ("PUT", "/apis/group/v1/namespaces/bar/pods/mypod", 1),
            ("PUT", "/apis/group/v1/namespaces/bar/pods/otherpod", 0),
        ];
        for (method, target, expected) in table {
            let interested = watchers.interested(&info(method, target));
            assert_eq!(interested, expected, "{method} {target}");
        }
    }

    #[test]
    fn watches_of_one_node_are_not_counted() {
        let (watchers, keys) = watching(&[
            "/api/v1/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true&fieldSelector=metadata.name=mypod",
            "/api/v1/namespaces/foo/pods?watch=true&fieldSelector=spec.nodeName=",
            "/api/v1/pods?watch=true&fieldSelector=spec.nodeName=node1",
            "/api/v1/pods?watch=true&fieldSelector=spec.nodeName=node2",
        ]);
        let counted: Vec<_> = keys.iter().map(Option::is_some).collect();
        assert_eq!(counted, [true, true, true, true, false, false]);
        let table = [
            ("POST", "/api/v1/namespaces/foo/pods", 3),
            ("PUT", "/api/v1/namespaces/foo/pods/mypod", 4),
            ("PATCH", "/api/v1/namespaces/foo/pods/mypod", 4),
            ("DELETE", "/api/v1/namespaces/foo/pods/mypod", 4),
        ];
        for (method, target, expected) in table {
            let interested = watchers.interested(&info(method, target));
            assert_eq!(interested, expected, "{method} {target}");
        }
    }

    #[test]
    fn a_watch_is_counted_until_it_is_unregistered() {
        let by_name = "watch=true&fieldSelector=metadata.name";
        let table = [
            (
                "/api/v1/pods?watch=true",
                "POST",
                "/api/v1/namespaces/foo/pods",
            ),
            (
                "/api/v1/namespaces/foo/pods?watch=true",
                "POST",
                "/api/v1/namespaces/foo/pods",
            ),
            (
                &format!("/api/v1/namespaces/foo/pods?{by_name}=mypod"),
                "PUT",
                "/api/v1/namespaces/foo/pods/mypod",
            ),
            (
                &format!("/api/v1/nodes?{by_name}=mynode"),
                "PUT",
                "/api/v1/nodes/mynode",
            ),
            (
                "/apis/group/v1/namespaces/foo/pods?watch=true",
                "DELETE",
                "/apis/group/v1/namespaces/foo/pods/mypod",
            ),
            (
                "/api/v1/namespaces/foo/pods?watch=true&fieldSelector=spec.nodeName=",
                "POST",
                "/api/v1/namespaces/foo/pods",
            ),
        ];
        for (watch, method, target) in table {
            let mut watchers = Watchers::new(100);
            let write = info(method, target);
            let first = watchers.register(&info("GET", watch)).unwrap();
            let second = watchers.register(&info("GET", watch)).unwrap();
            assert_eq!(watchers.interested(&write), 2, "{watch}");
            watchers.unregister(first);
            assert_eq!(watchers.interested(&write), 1, "{watch}");
            watchers.unregister(second);
            assert_eq!(watchers.interested(&write), 0, "{watch}");
            assert!(watchers.is_empty());
        }
    }

    #[test]
    fn a_request_that_is_not_a_watch_is_not_registered() {
        let mut watchers = Watchers::new(100);
        for (method, target) in [
            ("GET", "/api/v1/pods"),
            ("GET", "/api/v1/namespaces/foo/pods/mypod"),
            ("POST", "/api/v1/namespaces/foo/pods"),
        ] {
            assert_eq!(watchers.register(&info(method, target)), None);
        }
        assert!(watchers.is_empty());
    }

    #[test]
    fn the_different_watches_counted_are_bounded() {
        let mut watchers = Watchers::new(2);
        let mut register = |target: &str| watchers.register(&info("GET", target));
        let first = register("/api/v1/pods?watch=true").unwrap();
        assert!(register("/api/v1/nodes?watch=true").is_some());
        assert_eq!(register("/api/v1/secrets?watch=true"), None);
        assert!(register("/api/v1/nodes?watch=true").is_some());
        watchers.unregister(first);
        let long = format!("/api/v1/{}?watch=true", "x".repeat(2000));
        assert_eq!(watchers.register(&info("GET", &long)), None);
        assert_eq!(watchers.len(), 1);
        assert!(!watchers.is_empty());
    }
}
