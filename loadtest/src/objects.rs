//! The bodies of the stand-in server: objects, lists and watch events of a given size, and how long slow clients read them.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;

use crate::scenario::{RequestSpec, UpstreamSpec};
use fairgate_core::digest::RequestInfo;

/// The approximate bytes of an object besides its padding.
const FRAME: usize = 140;

/// The answer to a question whether a user may do something, which a gateway with admission policies asks.
const ALLOWED: &[u8] = br#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}"#;

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
        if resource == "subjectaccessreviews" {
            return Bytes::from_static(ALLOWED);
        }
        if is_list(info) {
            return self.cached(&resource, false, || list(&resource, count, bytes));
        }
        Bytes::from(object(&resource, 1, bytes))
    }

    /// The seconds in which a client reads the response to `request`: none for a watch, which is served when it begins.
    pub(crate) fn reading_seconds(&self, request: &RequestSpec) -> f64 {
        if request.read_rate == 0 || request.info.is_watch() {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52 bytes")]
        let bytes = self.body_bytes(&request.info) as f64;
        bytes / f64::from(request.read_rate)
    }

    /// The size of [`Self::body`], which is not made for it: the list of a real server may be larger than this machine's
    /// memory.
    pub(crate) fn body_bytes(&self, info: &RequestInfo) -> u64 {
        let (count, bytes) = self.spec.objects_of(info);
        let resource = String::from_utf8_lossy(info.resource());
        let first = object(&resource, 1, bytes).len() as u64;
        if !is_list(info) {
            return first;
        }
        let count = u64::from(count);
        let commas = count.saturating_sub(1);
        // The first ten objects but one have numbers of one digit, the first hundred but one of two, and so on.
        let powers = (1..=9).map(|digits| 10_u64.pow(digits));
        let more_digits: u64 = powers.map(|power| (count + 1).saturating_sub(power)).sum();
        list(&resource, 0, bytes).len() as u64 + count * first + commas + more_digits
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

/// Whether the response to a request is a list.
fn is_list(info: &RequestInfo) -> bool {
    matches!(info.verb.as_str(), "list" | "deletecollection")
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
    // A gateway with admission policies reads the namespaces of what it judges.
    let (kind, namespace) = match resource {
        "namespaces" => ("Namespace", ""),
        _ => ("Object", "\"namespace\":\"default\","),
    };
    format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{resource}-{number}\",\
         {namespace}\"resourceVersion\":\"1\"}},\"data\":{{\"filling\":\"{filling}\"}}}}"
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

    #[test]
    fn a_gateway_with_admission_policies_is_told_what_it_asks() {
        let text = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Asked
clients: [{name: a, load: {closed: {threads: 1}}, requests: [{path: /api/v1/namespaces/a/pods/b}]}]
upstream: {objects: [{resource: namespaces, count: 1}]}
expect: [all.errors == 0]
";
        let scenario = parse("s.yaml", "s", text.as_bytes()).usable().unwrap();
        let objects = StandInObjects::new(scenario.upstream);
        let answer = |method: &str, target: &str| {
            let info = RequestInfo::from_target(method, target).unwrap();
            let body = objects.body(&info);
            serde_json::from_slice::<serde_json::Value>(&body).unwrap()
        };
        let namespaces = answer("GET", "/api/v1/namespaces");
        let first = &namespaces["items"][0];
        assert_eq!(
            (&first["kind"], &first["metadata"]["name"]),
            (&"Namespace".into(), &"namespaces-1".into())
        );
        assert!(first["metadata"]["namespace"].is_null());
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        assert_eq!(answer("POST", reviews)["status"]["allowed"], true);
    }

    #[test]
    fn the_size_of_a_response_is_known_without_making_it() {
        for count in [0, 1, 2, 9, 10, 11, 99, 100, 101, 1000, 12_345] {
            let text = format!(
                "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Sizes
clients: [{{name: a, load: {{closed: {{threads: 1}}}}, requests: [{{path: /api/v1/namespaces/a/pods/b}}]}}]
upstream: {{objects: [{{resource: pods, count: {count}, bytes: 200}}]}}
expect: [all.errors == 0]
"
            );
            let scenario = parse("s.yaml", "s", text.as_bytes()).usable().unwrap();
            let objects = StandInObjects::new(scenario.upstream);
            for (method, target) in [
                ("GET", "/api/v1/pods"),
                ("GET", "/api/v1/namespaces/a/pods/b"),
                ("DELETE", "/api/v1/namespaces/a/pods"),
                ("GET", "/version"),
            ] {
                let info = RequestInfo::from_target(method, target).unwrap();
                let made = objects.body(&info).len() as u64;
                assert_eq!(objects.body_bytes(&info), made, "{target} of {count}");
            }
        }
    }
}
