//! The bodies of the stand-in server: objects, lists and watch events of a given size.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;

use crate::scenario::UpstreamSpec;
use fairgate_core::digest::RequestInfo;

/// The approximate bytes of an object besides its padding.
const FRAME: usize = 140;

/// The objects. Lists are made when they are first asked for, and kept.
#[derive(Debug)]
pub(crate) struct StandInObjects {
    spec: UpstreamSpec,
    /// Lists, and the events with which watches begin, by resource.
    lists: Mutex<BTreeMap<(String, bool), Bytes>>,
}

impl StandInObjects {
    pub(crate) fn new(spec: UpstreamSpec) -> Self {
        Self {
            spec,
            lists: Mutex::default(),
        }
    }

    /// The response to a request that is not a watch.
    pub(crate) fn body(&self, info: &RequestInfo) -> Bytes {
        let (count, bytes) = self.spec.objects_of(info);
        let resource = String::from_utf8_lossy(info.resource()).into_owned();
        if matches!(info.verb.as_str(), "list" | "deletecollection") {
            return self.cached(&resource, false, || list(&resource, count, bytes));
        }
        Bytes::from(object(&resource, 1, bytes))
    }

    /// The events with which a watch begins that asks for all objects.
    pub(crate) fn first_events(&self, info: &RequestInfo) -> Bytes {
        let (count, bytes) = self.spec.objects_of(info);
        let resource = String::from_utf8_lossy(info.resource()).into_owned();
        self.cached(&resource, true, || {
            let mut events = String::new();
            for number in 1..=count {
                events += &event("ADDED", &object(&resource, number, bytes));
            }
            events
        })
    }

    /// An event of a watch.
    pub(crate) fn event(&self, info: &RequestInfo) -> Bytes {
        let (_, bytes) = self.spec.objects_of(info);
        let resource = String::from_utf8_lossy(info.resource());
        Bytes::from(event("MODIFIED", &object(&resource, 1, bytes)))
    }

    /// The numbers and sizes of objects, as kube-apiserver reports them.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        for kind in &self.spec.objects {
            let (resource, count) = (&kind.resource, u64::from(kind.count));
            let total = count * u64::from(kind.bytes);
            let _ = writeln!(
                text,
                "apiserver_resource_objects{{group=\"\",resource=\"{resource}\"}} {count}"
            );
            let _ = writeln!(
                text,
                "apiserver_resource_size_estimate_bytes{{group=\"\",resource=\"{resource}\"}} {total}"
            );
        }
        text
    }

    fn cached(&self, resource: &str, events: bool, make: impl FnOnce() -> String) -> Bytes {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = lists.entry((resource.to_owned(), events));
        entry.or_insert_with(|| Bytes::from(make())).clone()
    }
}

fn list(resource: &str, count: u32, bytes: u32) -> String {
    let items: Vec<String> = (1..=count)
        .map(|number| object(resource, number, bytes))
        .collect();
    format!(
        "{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{}]}}",
        items.join(",")
    )
}

fn event(what: &str, object: &str) -> String {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

/// An object of about `bytes` bytes; at least `FRAME`.
fn object(resource: &str, number: u32, bytes: u32) -> String {
    let filling = "x".repeat((bytes as usize).saturating_sub(FRAME));
    format!(
        "{{\"kind\":\"Object\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{resource}-{number}\",\
         \"namespace\":\"default\",\"resourceVersion\":\"1\"}},\"data\":{{\"filling\":\"{filling}\"}}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    #[test]
    fn lists_and_events_are_json_of_the_size_that_the_scenario_says() {
        let text = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Sizes
clients: [{name: a, load: {closed: {threads: 1}}, requests: [{verb: list, path: /api/v1/pods}]}]
upstream: {objects: [{resource: pods, count: 20, bytes: 1000}]}
expect: [all.errors == 0]
";
        let scenario = parse("s.yaml", "s", text.as_bytes()).usable().unwrap();
        let objects = StandInObjects::new(scenario.upstream);
        let list = objects.body(&scenario.clients[0].requests[0].info);
        assert!((19_000..21_500).contains(&list.len()), "{}", list.len());
        let parsed: serde_json::Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(parsed["items"].as_array().unwrap().len(), 20);
        let watch = RequestInfo::from_target("GET", "/api/v1/pods?watch=true").unwrap();
        let events = objects.first_events(&watch);
        let lines: Vec<&[u8]> = events
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
            .collect();
        assert_eq!(lines.len(), 20);
        for line in lines {
            serde_json::from_slice::<serde_json::Value>(line).unwrap();
        }
        assert!(objects.metrics().contains("resource=\"pods\"} 20000"));
    }
}
