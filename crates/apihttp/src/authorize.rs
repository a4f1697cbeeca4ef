//! Authorization of requests: by built-in rules, or by the upstream.
//!
//! The built-in rules: `system:masters` may do everything. Only the groups that the configuration names may read
//! hosted objects and metrics, because names of schemas and levels reveal what a cluster runs. Discovery, OpenAPI and
//! reviews of oneself are for authenticated users, health checks and `/version` for everybody.

use std::{collections::BTreeMap, iter};

use serde_json::{Value, json};

use crate::status_error::StatusError;
use fairgate_core::digest::User;
use fairgate_gotext::Quoted;
use fairgate_objects::kind::Kind;
use fairgate_upstream::access_review::{
    AccessDecision, AccessReviewError, AccessReviews, Attributes,
};

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// The 403 for a request that is denied, in kube-apiserver's words; `reason` may be empty.
pub fn forbidden(attributes: &Attributes, user: &User, reason: &str) -> StatusError {
    let why = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    // As in kube-apiserver, only this sentence is escaped: neither the name in front of it nor the authorizer's
    // reason.
    let sentence = escaped(&sentence(attributes, user));
    if !attributes.is_resource {
        return StatusError::forbidden(format!("forbidden: {sentence}{why}"), json!({}));
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
    let message = format!("{dotted}{named} is forbidden: {sentence}{why}");
    let details =
        crate::status_error::details(&attributes.name, &attributes.group, &attributes.resource);
    StatusError::forbidden(message, details)
}

/// What the user cannot do.
fn sentence(attributes: &Attributes, user: &User) -> String {
    let (who, verb) = (Quoted(&user.name), &attributes.verb);
    if !attributes.is_resource {
        return format!("User {who} cannot {verb} path {}", Quoted(&attributes.path));
    }
    let resource = match attributes.subresource.as_str() {
        "" => attributes.resource.clone(),
        subresource => format!("{}/{subresource}", attributes.resource),
    };
    let place = match attributes.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", Quoted(namespace)),
    };
    format!(
        "User {who} cannot {verb} resource {} in API group {} {place}",
        Quoted(&resource),
        Quoted(&attributes.group)
    )
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
    // Go's `http.Error` appends the line feed.
    let text = format!("Internal Server Error: {}: {error}\n", Quoted(target));
    escaped(&text)
}

/// `text` without markup, as in kube-apiserver: a message that quotes a request must not look like HTML to a browser.
pub fn escaped(text: &str) -> String {
    // `&` comes first, because the other two replacements insert it.
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The built-in rules; see the documentation of the module.
#[derive(Clone, Debug, Default)]
pub struct BuiltInRules {
    /// Groups whose members may read hosted objects and the gateway's metrics.
    pub readers: Vec<String>,
    /// The kinds of the hosted objects.
    pub kinds: Vec<&'static Kind>,
}

/// To whom a rule applies.
#[derive(Clone, Copy)]
enum Audience {
    Everybody,
    Authenticated,
    Readers,
}

/// A rule about resources.
struct ResourceRule<'a> {
    audience: Audience,
    verbs: &'static [&'static str],
    group: &'a str,
    resource: &'a str,
    /// The rule is about this subresource, or if empty, about the resource itself.
    subresource: &'static str,
}

const READ: &[&str] = &["get", "list", "watch"];
/// The groups and resources of the reviews of oneself.
// As with the ClusterRole `system:basic-user`, which a cluster binds to all authenticated users.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

// The verb of a request for a path is its method in lower case. So a HEAD has a verb of its own, unlike one for a
// resource.
const READ_PATHS: &[&str] = &["get", "head"];
/// These paths, and all below them, may be read.
// As with the ClusterRoles `system:public-info-viewer` and `system:discovery`.
const PATHS: [(Audience, &[&str]); 3] = [
    (
        Audience::Everybody,
        &["/healthz", "/livez", "/readyz", "/version"],
    ),
    (Audience::Authenticated, &["/api", "/apis", "/openapi"]),
    (Audience::Readers, &["/metrics"]),
];

impl BuiltInRules {
    /// Whether `user` may make a request with these attributes.
    pub fn allow(&self, user: &User, wanted: &Attributes) -> bool {
        user.in_group(User::MASTERS)
            || if wanted.is_resource {
                self.allow_resource(user, wanted)
            } else {
                self.allow_path(user, wanted)
            }
    }

    fn includes(&self, audience: Audience, user: &User) -> bool {
        match audience {
            Audience::Everybody => true,
            Audience::Authenticated => user.in_group(AUTHENTICATED),
            Audience::Readers => self.readers.iter().any(|group| user.in_group(group)),
        }
    }

    /// All rules about resources, but that of `system:masters`.
    fn resource_rules(&self) -> impl Iterator<Item = ResourceRule<'_>> {
        let reviews = SELF_REVIEWS.iter().map(|(group, resource)| ResourceRule {
            audience: Audience::Authenticated,
            verbs: &["create"],
            group,
            resource,
            subresource: "",
        });
        let read = |kind: &Kind, subresource| ResourceRule {
            audience: Audience::Readers,
            verbs: READ,
            group: kind.group,
            resource: kind.plural,
            subresource,
        };
        let kinds = self.kinds.iter().flat_map(move |kind| {
            let status = kind.has_status.then(|| read(kind, "status"));
            iter::once(read(kind, "")).chain(status)
        });
        reviews.chain(kinds)
    }

    fn allow_resource(&self, user: &User, wanted: &Attributes) -> bool {
        self.resource_rules().any(|rule| {
            rule.group == wanted.group
                && rule.resource == wanted.resource
                // As in RBAC, a rule for a resource does not cover its subresources.
                && rule.subresource == wanted.subresource
                && rule.verbs.contains(&wanted.verb.as_str())
                && self.includes(rule.audience, user)
        })
    }

    fn allow_path(&self, user: &User, wanted: &Attributes) -> bool {
        let is_at_or_below = |root: &&str| {
            let rest = wanted.path.strip_prefix(*root);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        READ_PATHS.contains(&wanted.verb.as_str())
            && PATHS.iter().any(|(audience, roots)| {
                roots.iter().any(is_at_or_below) && self.includes(*audience, user)
            })
    }

    /// The status of a `SelfSubjectRulesReview` of `user`, which `kubectl auth can-i --list` shows.
    pub fn listed(&self, user: &User) -> Value {
        let every = json!(["*"]);
        let mut resources = Vec::new();
        let mut paths = Vec::new();
        if user.in_group(User::MASTERS) {
            resources.push(json!({"verbs": every, "apiGroups": every, "resources": every}));
            paths.push(json!({"verbs": every, "nonResourceURLs": every}));
        }
        let rules = self.resource_rules();
        let mut grouped: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for rule in rules.filter(|rule| self.includes(rule.audience, user)) {
            let resource = match rule.subresource {
                "" => rule.resource.to_owned(),
                subresource => format!("{}/{subresource}", rule.resource),
            };
            let key = (rule.group, rule.verbs);
            grouped.entry(key).or_default().push(resource);
        }
        for ((group, verbs), names) in grouped {
            resources.push(json!({"verbs": verbs, "apiGroups": [group], "resources": names}));
        }
        for (_, roots) in PATHS
            .iter()
            .filter(|(audience, _)| self.includes(*audience, user))
        {
            let urls = roots
                .iter()
                .flat_map(|root| [(*root).to_owned(), format!("{root}/*")]);
            let urls: Vec<String> = urls.collect();
            paths.push(json!({"verbs": READ_PATHS, "nonResourceURLs": urls}));
        }
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::digest::RequestInfo;
    use fairgate_objects::kinds::{FLOW_CONTROL, KINDS};

    use super::*;

    fn rules() -> BuiltInRules {
        BuiltInRules {
            readers: vec!["readers".to_owned()],
            kinds: KINDS.to_vec(),
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

    #[test]
    fn a_denial_quotes_names_as_go_does_and_then_replaces_markup() {
        let user = User::new("a\"b\\<c>\u{a0}", [AUTHENTICATED]);
        let who = r#""a\"b\\&lt;c&gt;\u00a0""#;
        let path = Attributes {
            verb: "x&y".to_owned(),
            path: "/\"<\n".to_owned(),
            ..Attributes::default()
        };
        assert_eq!(
            forbidden(&path, &user, "<reason>").message,
            format!(r#"forbidden: User {who} cannot x&amp;y path "/\"&lt;\n": <reason>"#)
        );
        let resource = Attributes {
            verb: "get".to_owned(),
            is_resource: true,
            group: "g\"&".to_owned(),
            resource: "r<".to_owned(),
            subresource: "s\"".to_owned(),
            namespace: "n\">".to_owned(),
            name: "o\"<".to_owned(),
            ..Attributes::default()
        };
        let what = r#"resource "r&lt;/s\"" in API group "g\"&amp;" in the namespace "n\"&gt;""#;
        // What precedes the sentence keeps its markup.
        assert_eq!(
            forbidden(&resource, &user, "").message,
            format!(r#"r<.g"& "o\"<" is forbidden: User {who} cannot get {what}"#)
        );
    }

    /// What `listed` says of a user, checked as RBAC reads such rules.
    struct ListedRules(Value);

    impl ListedRules {
        fn of(rules: &BuiltInRules, user: &User) -> Self {
            Self(rules.listed(user))
        }

        fn allow(&self, wanted: &Attributes) -> bool {
            let has = |rule: &Value, field: &str, item: &str| {
                let listed = rule[field].as_array().unwrap();
                listed.iter().any(|listed| listed == "*" || listed == item)
            };
            let paths = |rule: &Value| {
                let listed = rule["nonResourceURLs"].as_array().unwrap();
                listed.iter().map(|url| url.as_str().unwrap()).any(|url| {
                    url.strip_suffix('*')
                        .map_or(url == wanted.path, |prefix| wanted.path.starts_with(prefix))
                })
            };
            let resource = match wanted.subresource.as_str() {
                "" => wanted.resource.clone(),
                subresource => format!("{}/{subresource}", wanted.resource),
            };
            let all = |field: &str| self.0[field].as_array().unwrap().clone();
            if wanted.is_resource {
                all("resourceRules").iter().any(|rule| {
                    has(rule, "verbs", &wanted.verb)
                        && has(rule, "apiGroups", &wanted.group)
                        && has(rule, "resources", &resource)
                })
            } else {
                let mut rules = all("nonResourceRules").into_iter();
                rules.any(|rule| has(&rule, "verbs", &wanted.verb) && paths(&rule))
            }
        }
    }

    #[test]
    fn what_is_listed_is_what_is_allowed() {
        let flow_control = "/apis/flowcontrol.apiserver.k8s.io/v1";
        let budgets = "/apis/policy/v1/namespaces/n/poddisruptionbudgets";
        let mut targets: Vec<String> = Vec::new();
        for root in [
            "/livez", "/readyz", "/healthz", "/version", "/metrics", "/api", "/apis", "/openapi",
            "/debug", "/logs",
        ] {
            targets.extend(["", "/", "/x", "/x/y", "z"].map(|rest| format!("{root}{rest}")));
        }
        for resource in ["flowschemas", "prioritylevelconfigurations", "others"] {
            let base = format!("{flow_control}/{resource}");
            targets.extend(["", "/a", "/a/status", "/a/scale"].map(|rest| format!("{base}{rest}")));
        }
        targets.extend(["", "/a", "/a/status"].map(|rest| format!("{budgets}{rest}")));
        for review in [
            "authorization.k8s.io/v1/selfsubjectaccessreviews",
            "authorization.k8s.io/v1/selfsubjectrulesreviews",
            "authorization.k8s.io/v1/subjectaccessreviews",
            "authentication.k8s.io/v1/selfsubjectreviews",
            "authentication.k8s.io/v1/selfsubjectreviews/a/b",
        ] {
            targets.push(format!("/apis/{review}"));
        }
        let mut allowed_requests = 0;
        for user in [
            User::new("root", [User::MASTERS, AUTHENTICATED]),
            User::new("r", ["readers", AUTHENTICATED]),
            User::new("alice", [AUTHENTICATED]),
            User::new("r", ["readers"]),
            User::anonymous(),
        ] {
            for kinds in [&KINDS[..], &FLOW_CONTROL] {
                let rules = BuiltInRules {
                    kinds: kinds.to_vec(),
                    ..rules()
                };
                let listed = ListedRules::of(&rules, &user);
                for (target, method) in requests(&targets) {
                    let wanted = wanted(method, target);
                    let is = rules.allow(&user, &wanted);
                    assert_eq!(listed.allow(&wanted), is, "{} {method} {target}", user.name);
                    allowed_requests += u32::from(is);
                }
            }
        }
        assert!(allowed_requests > 1000, "{allowed_requests}");
    }

    /// These targets with every method.
    fn requests(targets: &[String]) -> impl Iterator<Item = (&str, &'static str)> {
        const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
        let targets = targets.iter();
        targets.flat_map(|target| METHODS.map(|method| (target.as_str(), method)))
    }
}
