//! The rules of a FlowSchema in one piece of memory.
//!
//! As objects of the API they are dozens of small allocations, about ten times the bytes of the names in
//! them. A policy reads the rules of a schema when it changes, and to explain a match. In between they are
//! kept as the lengths and bytes of their texts.
//!
//! Absent lists become empty ones and an absent flag false, which mean the same. Of a subject only what
//! its kind is about is kept.

use k8s_openapi::api::flowcontrol::v1::{
    GroupSubject, NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule,
    ServiceAccountSubject, Subject, UserSubject,
};

/// The rules of a FlowSchema; equal if they mean the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::apf) struct PackedRules {
    bytes: Box<[u8]>,
}

const USER: u8 = 0;
const GROUP: u8 = 1;
const SERVICE_ACCOUNT: u8 = 2;
/// A subject of a kind that is not known, or without what its kind is about: it is nobody.
const NOBODY: u8 = 3;

impl PackedRules {
    /// Packs rules. Costs time in proportion to their texts.
    pub(in crate::apf) fn new(rules: &[PolicyRulesWithSubjects]) -> Self {
        let mut out = Packer(Vec::new());
        out.list(rules, |out, rule| {
            out.list(&rule.subjects, Packer::subject);
            let resources = rule.resource_rules.as_deref().unwrap_or_default();
            out.list(resources, |out, part| {
                out.texts(&part.verbs);
                out.texts(&part.api_groups);
                out.texts(&part.resources);
                out.texts(part.namespaces.as_deref().unwrap_or_default());
                out.0.push(u8::from(part.cluster_scope == Some(true)));
            });
            let paths = rule.non_resource_rules.as_deref().unwrap_or_default();
            out.list(paths, |out, part| {
                out.texts(&part.verbs);
                out.texts(&part.non_resource_urls);
            });
        });
        Self {
            bytes: out.0.into(),
        }
    }

    /// The rules. Costs an allocation for each list and text.
    pub(in crate::apf) fn unpack(&self) -> Vec<PolicyRulesWithSubjects> {
        let mut from = Unpacker(&self.bytes);
        from.list(|from| PolicyRulesWithSubjects {
            subjects: from.list(Unpacker::subject),
            resource_rules: Some(from.list(|from| ResourcePolicyRule {
                verbs: from.texts(),
                api_groups: from.texts(),
                resources: from.texts(),
                namespaces: Some(from.texts()),
                cluster_scope: Some(from.byte() != 0),
            })),
            non_resource_rules: Some(from.list(|from| NonResourcePolicyRule {
                verbs: from.texts(),
                non_resource_urls: from.texts(),
            })),
        })
    }
}

/// Writes lengths, seven bits to a byte with the least first, and texts.
struct Packer(Vec<u8>);

impl Packer {
    fn length(&mut self, mut length: usize) {
        loop {
            let [low, ..] = length.to_le_bytes();
            length >>= 7;
            if length == 0 {
                self.0.push(low & 0x7f);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    fn list<T>(&mut self, items: &[T], item: impl Fn(&mut Self, &T)) {
        self.length(items.len());
        for one in items {
            item(self, one);
        }
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn texts(&mut self, texts: &[String]) {
        self.list(texts, |out, text| out.text(text));
    }

    fn subject(&mut self, subject: &Subject) {
        // Without `..`, so that a new field of the API does not compile before it is packed.
        let Subject {
            kind,
            group,
            service_account,
            user,
        } = subject;
        match (kind.as_str(), user, group, service_account) {
            // The kind alone decides whom a subject matches, whatever else is set.
            ("User", Some(user), _, _) => {
                self.0.push(USER);
                self.text(&user.name);
            }
            ("Group", _, Some(group), _) => {
                self.0.push(GROUP);
                self.text(&group.name);
            }
            ("ServiceAccount", _, _, Some(account)) => {
                self.0.push(SERVICE_ACCOUNT);
                self.text(&account.namespace);
                self.text(&account.name);
            }
            _ => self.0.push(NOBODY),
        }
    }
}

/// Reads what [`Packer`] has written, and nothing else: at the end of the bytes it reads zeros.
struct Unpacker<'a>(&'a [u8]);

impl Unpacker<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            debug_assert!(false, "packed rules are complete");
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn length(&mut self) -> usize {
        let mut length = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.byte();
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        length
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> T) -> Vec<T> {
        let length = self.length();
        (0..length).map(|_| item(self)).collect()
    }

    fn text(&mut self) -> String {
        let length = self.length();
        let (text, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn texts(&mut self) -> Vec<String> {
        self.list(Self::text)
    }

    fn subject(&mut self) -> Subject {
        let tag = self.byte();
        let mut subject = Subject::default();
        match tag {
            USER => {
                "User".clone_into(&mut subject.kind);
                subject.user = Some(UserSubject { name: self.text() });
            }
            GROUP => {
                "Group".clone_into(&mut subject.kind);
                subject.group = Some(GroupSubject { name: self.text() });
            }
            SERVICE_ACCOUNT => {
                "ServiceAccount".clone_into(&mut subject.kind);
                subject.service_account = Some(ServiceAccountSubject {
                    namespace: self.text(),
                    name: self.text(),
                });
            }
            _ => debug_assert_eq!(tag, NOBODY),
        }
        subject
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn texts() -> impl Strategy<Value = Vec<String>> {
        vec(".{0,40}", 0..4)
    }

    fn a_subject() -> impl Strategy<Value = Subject> {
        ("[a-z:*é]{0,200}", "[a-z]{0,9}", 0..4).prop_map(|(name, namespace, kind)| {
            let mut subject = Subject::default();
            match kind {
                0 => {
                    subject.kind = "User".to_owned();
                    subject.user = Some(UserSubject { name });
                }
                1 => {
                    subject.kind = "Group".to_owned();
                    subject.group = Some(GroupSubject { name });
                }
                2 => {
                    subject.kind = "ServiceAccount".to_owned();
                    subject.service_account = Some(ServiceAccountSubject { name, namespace });
                }
                _ => {}
            }
            subject
        })
    }

    prop_compose! {
        fn a_resource_rule()(
            verbs in texts(),
            api_groups in texts(),
            resources in texts(),
            namespaces in texts(),
            cluster_scope: bool,
        ) -> ResourcePolicyRule {
            ResourcePolicyRule {
                verbs,
                api_groups,
                resources,
                namespaces: Some(namespaces),
                cluster_scope: Some(cluster_scope),
            }
        }
    }

    prop_compose! {
        fn a_rule()(
            subjects in vec(a_subject(), 0..4),
            resources in vec(a_resource_rule(), 0..3),
            paths in vec((texts(), texts()), 0..3),
        ) -> PolicyRulesWithSubjects {
            let paths = paths.into_iter();
            let path = |(verbs, non_resource_urls)| NonResourcePolicyRule { verbs, non_resource_urls };
            PolicyRulesWithSubjects {
                subjects,
                resource_rules: Some(resources),
                non_resource_rules: Some(paths.map(path).collect()),
            }
        }
    }

    proptest! {
        #[test]
        fn rules_are_the_same_after_packing(rules in vec(a_rule(), 0..4)) {
            let packed = PackedRules::new(&rules);
            prop_assert_eq!(packed.unpack(), rules);
        }
    }

    #[test]
    fn long_lists_and_texts_keep_their_lengths() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let rule = PolicyRulesWithSubjects {
                non_resource_rules: Some(vec![NonResourcePolicyRule {
                    verbs: vec![String::new(); length],
                    non_resource_urls: vec!["/".repeat(length)],
                }]),
                resource_rules: Some(Vec::new()),
                ..Default::default()
            };
            let rules = [rule];
            assert_eq!(PackedRules::new(&rules).unpack(), rules, "{length}");
        }
    }

    #[test]
    fn what_is_absent_is_the_same_as_what_is_empty() {
        let absent = PolicyRulesWithSubjects {
            resource_rules: Some(vec![ResourcePolicyRule::default()]),
            ..Default::default()
        };
        let empty = PolicyRulesWithSubjects {
            resource_rules: Some(vec![ResourcePolicyRule {
                namespaces: Some(Vec::new()),
                cluster_scope: Some(false),
                ..Default::default()
            }]),
            non_resource_rules: Some(Vec::new()),
            ..Default::default()
        };
        assert_eq!(PackedRules::new(&[absent]), PackedRules::new(&[empty]));
        assert_eq!(PackedRules::new(&[]).unpack(), []);
    }
}
