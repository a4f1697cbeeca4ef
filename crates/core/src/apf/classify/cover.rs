//! Whether a schema can ever be reached.
//!
//! Each combination of a schema's rules is represented by one request that no more specific rule could
//! match: names where the rule has names, and names that no rule mentions where it has wildcards. If
//! an earlier schema matches that request, it matches every request of the combination. So if all
//! these requests are taken, the schema is never reached. The converse does not hold: several
//! earlier schemas together may cover a wildcard, and then there is no warning.

use std::collections::BTreeSet;

use super::{
    Classifier, NameScope, Request, UNKNOWN, account_namespace,
    numbering::{NumberedRule, PathPart, ResourcePart, Set},
};
use crate::digest::User;

/// The maximum number of combinations of one schema that are examined.
const MAX_SCANS: u32 = 4096;

/// How far earlier schemas match all requests of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// Some request may reach it.
    Open,
    /// No rule of it can match anything.
    Nothing,
    /// No request reaches it; these schemas match them all.
    Whole(BTreeSet<u32>),
    /// As [`Self::Whole`], but for users who are neither in `system:authenticated` nor in
    /// `system:unauthenticated`. Servers put every user into one of the two.
    AllButGroupless(BTreeSet<u32>),
}

/// What has been found so far.
struct Search<'a> {
    classifier: &'a Classifier,
    schema: u32,
    scans: u32,
    takers: BTreeSet<u32>,
    groupless: bool,
}

/// Some request may not be covered; nothing more needs to be examined.
struct Reached;

impl Classifier {
    /// Whether a schema can be reached.
    ///
    /// Most schemas are found reachable by the first request; others cost one lookup for each
    /// combination, up to a limit beyond which they count as reachable.
    pub(in crate::apf) fn cover(&self, schema: u32) -> Cover {
        let mut search = Search {
            classifier: self,
            schema,
            scans: 0,
            takers: BTreeSet::new(),
            groupless: false,
        };
        for rule in self.rules[schema as usize].iter() {
            if search.rule(rule).is_err() {
                return Cover::Open;
            }
        }
        if search.scans == 0 {
            Cover::Nothing
        } else if search.groupless {
            Cover::AllButGroupless(search.takers)
        } else {
            Cover::Whole(search.takers)
        }
    }
}

impl Classifier {
    /// The class of each name in a list; [`UNKNOWN`], that of names that no rule mentions, for the wildcard.
    fn classes_in(&self, set: &Set) -> impl Iterator<Item = u32> {
        let any = set.any.then_some(UNKNOWN);
        let listed = set.values.iter();
        any.into_iter()
            .chain(listed.map(|&name| self.classes[name as usize]))
    }
}

/// The classes of a user who matches only one subject, which may be [`UNKNOWN`].
type UserClasses = [u32; 3];

impl Search<'_> {
    fn rule(&mut self, rule: &NumberedRule) -> Result<(), Reached> {
        for &subject in &rule.subjects {
            let classes = self.user(subject);
            for part in &rule.resources {
                self.resource_part(classes, part)?;
            }
            for part in &rule.paths {
                self.path_part(classes, part)?;
            }
        }
        Ok(())
    }

    fn user(&self, subject: u32) -> UserClasses {
        let classifier = self.classifier;
        let (scope, name) = classifier.numbering.names.get(subject);
        // A user may be a service account, which subjects of that kind match, too.
        let account = match std::str::from_utf8(name) {
            Ok(name) if scope == NameScope::USER => account_namespace(name),
            _ => None,
        };
        let accounts = account.map_or(UNKNOWN, |namespace| {
            classifier.class(NameScope::ACCOUNTS, namespace.as_bytes())
        });
        let own = classifier.classes[subject as usize];
        [own, accounts, classifier.everybody]
    }

    fn resource_part(&mut self, user: UserClasses, part: &ResourcePart) -> Result<(), Reached> {
        let classifier = self.classifier;
        let namespaces = classifier.classes_in(&part.namespaces).map(Some);
        let cluster = part.cluster_scope.then_some(None);
        for place in namespaces.chain(cluster) {
            for group in classifier.classes_in(&part.groups) {
                for resource in classifier.classes_in(&part.resources) {
                    self.take(user, part.verbs, |verb| Request {
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

    fn path_part(&mut self, user: UserClasses, part: &PathPart) -> Result<(), Reached> {
        let classifier = self.classifier;
        let any = part.paths.any.then_some((UNKNOWN, UNKNOWN));
        let listed = part.paths.values.iter().map(|&path| {
            let (scope, _) = classifier.numbering.names.get(path);
            match scope.directory_of_file() {
                Some(directory) => (classifier.classes[path as usize], directory),
                None => (UNKNOWN, path),
            }
        });
        for path in any.into_iter().chain(listed) {
            self.take(user, part.verbs, |verb| Request {
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
        user: UserClasses,
        verbs: u16,
        request: impl Fn(u16) -> Request<'r>,
    ) -> Result<(), Reached> {
        for verb in (0..u16::BITS)
            .map(|bit| 1 << bit & verbs)
            .filter(|&bit| bit != 0)
        {
            self.scans += 1;
            if self.scans > MAX_SCANS {
                // A warning must be certain, so a search that is given up says nothing.
                return Err(Reached);
            }
            if let Some(taker) = self.taker(user, None, request(verb)) {
                self.takers.insert(taker);
                continue;
            }
            self.groupless = true;
            for group in [User::AUTHENTICATED, User::UNAUTHENTICATED] {
                let taker = self.taker(user, Some(group), request(verb));
                self.takers.insert(taker.ok_or(Reached)?);
            }
        }
        Ok(())
    }

    /// The earlier schema that matches a request of this subject in this further group.
    fn taker(
        &self,
        user: UserClasses,
        group: Option<&str>,
        mut request: Request<'_>,
    ) -> Option<u32> {
        let group = group.map(|group| self.classifier.class(NameScope::GROUP, group.as_bytes()));
        let mut best = self.schema;
        for &class in user.iter().chain(&group) {
            self.classifier.visit(class, &mut request, &mut best);
        }
        (best < self.schema).then_some(best)
    }
}
