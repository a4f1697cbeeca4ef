//! The hosted API's routes and what is authorized: a path, as it stands in a request line.
//!
//! Property: where a path names an object of the hosted API, the attributes that are authorized and classified name the
//! same object. Otherwise a client could act on an object with the rights to another.

use fairgate_apiserver::fuzzing::object_at;
use fairgate_core::digest::{RequestInfo, readable};
use fairgate_upstream::access_review::Attributes;

use crate::{Outcome, Target};

/// The target `hosted_routes`.
pub const TARGET: Target = Target {
    name: "hosted_routes",
    run,
    dictionary: &[
        "/apis/flowcontrol.apiserver.k8s.io/v1/",
        "/apis/flowcontrol.apiserver.k8s.io/v1beta3/",
        "flowschemas",
        "prioritylevelconfigurations",
        "/status",
        "/watch/",
        "/proxy/",
        "namespaces/",
        "/a",
        "//",
        "%2F",
        "%2e%2e",
        "..",
        ".",
        "%00",
        "%ff",
        "?watch=1",
        "?fieldSelector=metadata.name%3Db",
        "/finalize",
        "/",
        "/api/v1/",
        "selfsubjectreviews",
        "/apis/authentication.k8s.io/v1/",
        "/apis/policy/v1/",
        "poddisruptionbudgets",
        "/apis/admissionregistration.k8s.io/v1/",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let target = String::from_utf8_lossy(data);
    let mut outcomes = Vec::new();
    for method in ["GET", "DELETE", "PUT", "POST"] {
        let Ok(info) = RequestInfo::from_target(method, &target) else {
            continue;
        };
        let Some(object) = object_at(&readable(info.path())) else {
            outcomes.push(None);
            continue;
        };
        let wanted = Attributes::of(&info);
        assert!(wanted.is_resource, "{wanted:?}");
        assert_eq!(wanted.group, object.group);
        assert_eq!(wanted.version, object.version);
        assert_eq!(wanted.resource, object.resource);
        assert_eq!(wanted.subresource, object.subresource);
        assert_eq!(wanted.namespace, object.namespace);
        // A field selector names one object of a collection.
        let is_by_selector = object.name.is_empty() && info.list.is_some();
        assert!(
            wanted.name == object.name || is_by_selector,
            "{wanted:?}, {object:?}"
        );
        assert!(
            object.verb.is_empty() || wanted.verb == object.verb,
            "{wanted:?}, {object:?}"
        );
        outcomes.push(Some((
            wanted.verb,
            object.name.is_empty(),
            object.subresource,
        )));
    }
    Outcome::of(outcomes)
}
