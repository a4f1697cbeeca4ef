//! Whether a schema can ever be reached.
//!
//! Each combination of a schema's rules is stood for by one request that no more special rule could
//! mean: names where the rule has names, and names that no rule mentions where it has wildcards. If
//! an earlier schema matches that request, it matches every request of the combination. So if all
//! these requests are taken, the schema is never reached. The converse does not hold: several
//! earlier schemas together may cover a wildcard, and then there is no warning.

use std::collections::BTreeSet;

use k8s_openapi::api::flowcontrol::v1::{
    NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject,
};

use super::{
    ACCOUNT_PREFIX, Classifier, NameScope, Request, UNKNOWN, account_namespace,
    numbering::verb_mask,
};
use crate::digest::User;

/// Combinations of one schema that are looked at before giving up.
const MAX_LOOKS: u32 = 4096;

/// How far earlier schemas take all requests of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// Some request may reach it.
    Open,
    /// No rule of it can match anything.
    Nothing,
    /// None reaches it; these schemas take them all.
    Whole(BTreeSet<u32>),
    /// As [`Self::Whole`], but for users who are neither in `system:authenticated` nor in
    /// `system:unauthenticated`. Servers put every user into one of the two.
    AllButGroupless(BTreeSet<u32>),
}

/// What has been found so far.
struct Search<'a> {
    classifier: &'a Classifier,
    schema: u32,
    looks: u32,
    takers: BTreeSet<u32>,
    groupless: bool,
}

/// Some request may get through; nothing more needs to be looked at.
struct Reached;

impl Classifier {
    /// Whether `schema`, which has these rules, can be reached.
    ///
    /// Most schemas are found reachable by the first request; others cost one lookup for each
    /// combination, up to a limit beyond which they count as reachable.
    pub(in crate::apf) fn cover(&self, schema: u32, rules: &[PolicyRulesWithSubjects]) -> Cover {
        let mut search = Search {
            classifier: self,
            schema,
            looks: 0,
            takers: BTreeSet::new(),
            groupless: false,
        };
        for rule in rules {
            if search.rule(rule).is_err() {
                return Cover::Open;
            }
        }
        if search.looks == 0 {
            Cover::Nothing
        } else if search.groupless {
            Cover::AllButGroupless(search.takers)
        } else {
            Cover::Whole(search.takers)
        }
    }
}

impl Search<'_> {
    fn rule(&mut self, rule: &PolicyRulesWithSubjects) -> Result<(), Reached> {
        for subject in &rule.subjects {
            let Some(classes) = self.subject(subject) else {
                continue;
            };
            for part in rule.resource_rules.iter().flatten() {
                self.resource_part(&classes, part)?;
            }
            for part in rule.non_resource_rules.iter().flatten() {
                self.path_part(&classes, part)?;
            }
        }
        Ok(())
    }

    /// The classes of a user who matches only this subject; `None` if there is no such user.
    fn subject(&self, subject: &Subject) -> Option<Vec<u32>> {
        let class = |scope, name: &str| self.classifier.class(scope, name.as_bytes());
        let of_user = |name: &str| {
            let accounts = account_namespace(name).map(|ns| class(NameScope::ACCOUNTS, ns));
            let mut classes = vec![class(NameScope::USER, name)];
            classes.extend(accounts);
            classes
        };
        let mut classes = match subject.kind.as_str() {
            "User" => match subject.user.as_ref()?.name.as_str() {
                "*" => Vec::new(),
                name => of_user(name),
            },
            "Group" => match subject.group.as_ref()?.name.as_str() {
                "*" => Vec::new(),
                name => vec![class(NameScope::GROUP, name)],
            },
            "ServiceAccount" => {
                let account = subject.service_account.as_ref()?;
                if account.name == "*" {
                    vec![class(NameScope::ACCOUNTS, &account.namespace)]
                } else {
                    of_user(&format!(
                        "{ACCOUNT_PREFIX}{}:{}",
                        account.namespace, account.name
                    ))
                }
            }
            _ => return None,
        };
        classes.push(self.classifier.everybody);
        Some(classes)
    }

    fn resource_part(&mut self, subject: &[u32], part: &ResourcePolicyRule) -> Result<(), Reached> {
        let classifier = self.classifier;
        let class = |scope, name: &str| Some(classifier.class(scope, name.as_bytes()));
        let groups = values(&part.api_groups, |group| class(NameScope::API_GROUP, group));
        let resources = values(&part.resources, |resource| {
            let (resource, subresource) = match resource.split_once('/') {
                None => (resource, ""),
                Some((_, sub)) if sub.is_empty() || sub.contains('/') => return None,
                Some(both) => both,
            };
            Some(classifier.resource_class(resource.as_bytes(), subresource.as_bytes()))
        });
        let listed = part.namespaces.as_deref().unwrap_or_default();
        let mut places: Vec<Option<u32>> =
            values(listed, |namespace| class(NameScope::NAMESPACE, namespace))
                .into_iter()
                .map(Some)
                .collect();
        if part.cluster_scope == Some(true) {
            places.push(None);
        }
        for &group in &groups {
            for &resource in &resources {
                for &place in &places {
                    self.take(subject, verb_mask(&part.verbs), |verb| Request {
                        classifier,
                        info: None,
                        is_resource: true,
                        is_cluster: place.is_none(),
                        verb,
                        group: Some(group),
                        resource: Some(resource),
                        namespace: place,
                        path: None,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn path_part(&mut self, subject: &[u32], part: &NonResourcePolicyRule) -> Result<(), Reached> {
        let classifier = self.classifier;
        let mut paths = Vec::new();
        for url in &part.non_resource_urls {
            if url == "*" {
                paths.push((UNKNOWN, UNKNOWN));
                continue;
            }
            let mut directory = url.strip_suffix('*').unwrap_or(url).to_owned();
            if !directory.ends_with('/') {
                paths.push(classifier.walk(directory.as_bytes()));
                directory.push('/');
            }
            paths.push(classifier.walk(directory.as_bytes()));
        }
        for path in paths {
            self.take(subject, verb_mask(&part.verbs), |verb| Request {
                classifier,
                info: None,
                is_resource: false,
                is_cluster: true,
                verb,
                group: None,
                resource: None,
                namespace: None,
                path: Some(path),
            })?;
        }
        Ok(())
    }

    /// Notes who takes these requests, one for each verb.
    fn take<'r>(
        &mut self,
        subject: &[u32],
        verbs: u16,
        request: impl Fn(u16) -> Request<'r>,
    ) -> Result<(), Reached> {
        for verb in (0..u16::BITS)
            .map(|bit| 1 << bit & verbs)
            .filter(|&bit| bit != 0)
        {
            self.looks += 1;
            if self.looks > MAX_LOOKS {
                return Err(Reached);
            }
            if let Some(taker) = self.taker(subject, None, request(verb)) {
                self.takers.insert(taker);
                continue;
            }
            self.groupless = true;
            for group in [User::AUTHENTICATED, User::UNAUTHENTICATED] {
                let taker = self.taker(subject, Some(group), request(verb));
                self.takers.insert(taker.ok_or(Reached)?);
            }
        }
        Ok(())
    }

    /// The earlier schema that matches a request of this subject in this further group.
    fn taker(&self, subject: &[u32], group: Option<&str>, mut request: Request<'_>) -> Option<u32> {
        let group = group.map(|group| self.classifier.class(NameScope::GROUP, group.as_bytes()));
        let mut best = self.schema;
        for &class in subject.iter().chain(&group) {
            self.classifier.visit(class, &mut request, &mut best);
        }
        (best < self.schema).then_some(best)
    }
}

/// One number for each entry of a list that may be the wildcard.
fn values(list: &[String], number: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    if matches!(list, [only] if only == "*") {
        return vec![UNKNOWN];
    }
    list.iter().filter_map(|entry| number(entry)).collect()
}
