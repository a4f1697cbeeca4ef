//! Authorization of requests: by built-in rules, or by the upstream.
//!
//! The built-in rules: `system:masters` may do everything. The groups that the configuration names may read
//! hosted objects and metrics, but not all users, because names of schemas and levels reveal what a cluster
//! runs. Discovery and OpenAPI are for authenticated users, health checks for everybody.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::status_error::StatusError;
use fairgate_admission::kinds::ADMISSION_KINDS;
use fairgate_core::digest::User;
use fairgate_objects::{
    go::Quoted,
    kind::{Kind, Storage},
    kinds::KINDS,
};
use fairgate_upstream::access_review::{
    AccessDecision, AccessReviewError, AccessReviews, Attributes,
};

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// The 403 for a request that is denied; `reason` may be empty.
pub fn forbidden(attributes: &Attributes, user: &User, reason: &str) -> StatusError {
    let why = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    let who = escaped(&user.name);
    if !attributes.is_resource {
        let path = escaped(&attributes.path);
        let message = format!(
            "forbidden: User \"{who}\" cannot {} path \"{path}\"{why}",
            attributes.verb
        );
        return StatusError::forbidden(message, json!({}));
    }
    let dotted = if attributes.group.is_empty() {
        attributes.resource.clone()
    } else {
        format!("{}.{}", attributes.resource, attributes.group)
    };
    let named = if attributes.name.is_empty() {
        String::new()
    } else {
        format!(" {}", Quoted(&attributes.name))
    };
    let sub = if attributes.subresource.is_empty() {
        String::new()
    } else {
        format!("/{}", attributes.subresource)
    };
    let place = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", escaped(&attributes.namespace))
    };
    let message = format!(
        "{dotted}{named} is forbidden: User \"{who}\" cannot {} resource \"{}{sub}\" in API group \
         \"{}\" {place}{why}",
        attributes.verb, attributes.resource, attributes.group
    );
    let details =
        crate::status_error::details(&attributes.name, &attributes.group, &attributes.resource);
    StatusError::forbidden(message, details)
}

/// Decides what a user may do.
#[derive(Clone, Debug)]
pub enum Authorizer {
    /// The built-in rules.
    BuiltIn(BuiltInRules),
    /// The upstream, by `SubjectAccessReview`.
    Upstream(AccessReviews),
}

impl Authorizer {
    /// Decides whether `user` may make a request. Waits only for a review of the upstream.
    ///
    /// # Errors
    ///
    /// [`AccessReviewError`], when the upstream's review failed.
    pub async fn decide(
        &self,
        user: &User,
        wanted: &Attributes,
    ) -> Result<AccessDecision, AccessReviewError> {
        match self {
            Self::BuiltIn(rules) => Ok(AccessDecision::plain(rules.allow(user, wanted))),
            Self::Upstream(access) => access.decide(user, wanted).await,
        }
    }
}

/// The text of the 500 for a request for `target`, a path with its query, if nobody could decide about it.
pub fn undecided(target: &str, error: &AccessReviewError) -> String {
    let text = format!("Internal Server Error: {}: {error}\n", Quoted(target));
    escaped(&text)
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The built-in rules; see the documentation of the module.
#[derive(Clone, Debug, Default)]
pub struct BuiltInRules {
    /// Groups whose members may read hosted objects and the gateway's metrics.
    pub readers: Vec<String>,
}

impl BuiltInRules {
    /// Whether `user` may make a request with these attributes.
    pub fn allow(&self, user: &User, wanted: &Attributes) -> bool {
        user.in_group(User::MASTERS)
            || (wanted.is_resource && self.allow_resource(user, wanted))
            || (!wanted.is_resource && self.allow_path(user, wanted))
    }

    fn reads(&self, user: &User) -> bool {
        self.readers.iter().any(|group| user.in_group(group))
    }

    fn allow_resource(&self, user: &User, wanted: &Attributes) -> bool {
        if is_self_review(wanted) {
            return user.in_group(AUTHENTICATED);
        }
        let mut hosted = KINDS.iter().chain(&ADMISSION_KINDS);
        let hosted =
            hosted.any(|kind| kind.group == wanted.group && kind.plural == wanted.resource);
        hosted && ["get", "list", "watch"].contains(&wanted.verb.as_str()) && self.reads(user)
    }

    fn allow_path(&self, user: &User, wanted: &Attributes) -> bool {
        if !["get", "head"].contains(&wanted.verb.as_str()) {
            return false;
        }
        let below = |root: &str| {
            wanted
                .path
                .strip_prefix(root)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if ["/livez", "/readyz", "/healthz", "/version"]
            .iter()
            .any(|path| below(path))
        {
            return true;
        }
        if ["/api", "/apis", "/openapi"].iter().any(|path| below(path)) {
            return user.in_group(AUTHENTICATED);
        }
        below("/metrics") && self.reads(user)
    }

    /// The status of a `SelfSubjectRulesReview` of `user`, which `kubectl auth can-i --list` shows.
    pub(crate) fn listed(&self, user: &User, kinds: &[&Kind]) -> Value {
        let every = json!(["*"]);
        let mut resources = Vec::new();
        let mut paths = Vec::new();
        if user.in_group(AUTHENTICATED) {
            resources.push(
                json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}),
            );
            resources.push(
                json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"],
                "resources": ["selfsubjectreviews"]}),
            );
            paths.push(json!({"verbs": ["get"], "nonResourceURLs":
                ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]}));
        }
        paths.push(json!({"verbs": ["get"], "nonResourceURLs":
            ["/healthz", "/livez", "/readyz", "/version", "/version/"]}));
        if self.reads(user) {
            let mut by_group: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for kind in kinds.iter().filter(|kind| kind.storage == Storage::Stored) {
                by_group.entry(kind.group).or_default().push(kind.plural);
            }
            for (group, plurals) in by_group {
                resources.push(json!({"verbs": ["get", "list", "watch"],
                    "apiGroups": [group], "resources": plurals}));
            }
            paths.push(json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}));
        }
        if user.in_group(User::MASTERS) {
            resources.push(json!({"verbs": every, "apiGroups": every, "resources": every}));
            paths.push(json!({"verbs": every, "nonResourceURLs": every}));
        }
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
    }
}

fn is_self_review(wanted: &Attributes) -> bool {
    let kinds: &[&str] = match wanted.group.as_str() {
        "authorization.k8s.io" => &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "authentication.k8s.io" => &["selfsubjectreviews"],
        _ => return false,
    };
    wanted.verb == "create" && kinds.contains(&wanted.resource.as_str())
}

#[cfg(test)]
mod tests {
    use fairgate_core::digest::RequestInfo;

    use super::*;

    fn rules() -> BuiltInRules {
        BuiltInRules {
            readers: vec!["readers".to_owned()],
        }
    }

    fn wanted(method: &str, target: &str) -> Attributes {
        Attributes::of(&RequestInfo::from_target(method, target).unwrap())
    }

    #[test]
    fn users_may_do_what_their_groups_allow_and_no_more() {
        let masters = User::new("root", [User::MASTERS, AUTHENTICATED]);
        let reader = User::new("r", ["readers", AUTHENTICATED]);
        let alice = User::new("alice", [AUTHENTICATED]);
        let nobody = User::anonymous();
        let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let cases = [
            ("POST", schemas, [true, false, false, false]),
            ("GET", schemas, [true, true, false, false]),
            ("GET", "/apis", [true, true, true, false]),
            ("GET", "/openapi/v3", [true, true, true, false]),
            ("POST", review, [true, true, true, false]),
            ("GET", "/metrics", [true, true, false, false]),
            ("GET", "/livez/ping", [true, true, true, true]),
            ("HEAD", "/livez/ping", [true, true, true, true]),
            ("GET", "/livezx", [true, false, false, false]),
            ("GET", "/debug/x", [true, false, false, false]),
            ("GET", "/api/v1/pods", [true, false, false, false]),
        ];
        for (method, target, allowed) in cases {
            for (user, allowed) in [&masters, &reader, &alice, &nobody]
                .into_iter()
                .zip(allowed)
            {
                let is = rules().allow(user, &wanted(method, target));
                assert_eq!(is, allowed, "{} {method} {target}", user.name);
            }
        }
    }

    #[test]
    fn a_denial_names_the_user_and_the_request() {
        let alice = User::new("alice", [AUTHENTICATED]);
        let target = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/x/status";
        assert_eq!(
            forbidden(&wanted("GET", target), &alice, "").message,
            "flowschemas.flowcontrol.apiserver.k8s.io \"x\" is forbidden: User \"alice\" cannot get \
             resource \"flowschemas/status\" in API group \"flowcontrol.apiserver.k8s.io\" at the \
             cluster scope"
        );
        assert_eq!(
            forbidden(&wanted("GET", "/metrics"), &alice, "").message,
            "forbidden: User \"alice\" cannot get path \"/metrics\""
        );
        let reported = forbidden(&wanted("GET", "/metrics"), &alice, "not today");
        assert!(reported.message.ends_with("path \"/metrics\": not today"));
        let reported = forbidden(&wanted("GET", target), &alice, "not today");
        assert!(reported.message.ends_with("cluster scope: not today"));
    }
}
