//! Compiling a set of objects into a policy.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::{
    api::flowcontrol::v1::{LimitedPriorityLevelConfiguration, PriorityLevelConfiguration},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use siphasher::sip128::{Hasher128, SipHasher13};

use super::{
    Compiled, Policy, PolicySettings, advice,
    candidates::{LevelCandidate, SchemaCandidate},
    level_by_name,
};
use crate::{
    apf::{
        classify::{Classifier, ClassifierSchema},
        objects::{
            CompactFlowSchema, EffectiveSet, FLOW_SCHEMA, Located, ObjectSet, PRIORITY_LEVEL,
            bootstrap,
        },
        spec::{LevelKind, LevelSpec, LimitResponse, Queuing, Schema, SchemaIndex},
    },
    finding::{Finding, Severity},
};

impl Policy {
    /// Compiles objects into a policy, with warnings about what is probably not intended.
    ///
    /// A schema whose level does not exist is left out. A mandatory object that is not given is added: schema
    /// `exempt` before all others, `catch-all` after them. Takes time and memory in proportion to the objects.
    ///
    /// # Errors
    ///
    /// Every finding about the set, including warnings, if one of them is an error.
    pub fn compile(
        objects: &ObjectSet,
        settings: &PolicySettings,
    ) -> Result<Compiled, Vec<Finding>> {
        Self::compile_after(None, objects, settings)
    }

    /// Like [`Self::compile`], with the same result. What this policy has computed for objects that the set
    /// shares with it is reused, so a change of a few objects costs about a third.
    ///
    /// # Errors
    ///
    /// Those of [`Self::compile`].
    pub fn recompile(
        &self,
        objects: &ObjectSet,
        settings: &PolicySettings,
    ) -> Result<Compiled, Vec<Finding>> {
        let same_key = self.settings.hash_key == settings.hash_key;
        Self::compile_after(same_key.then_some(self), objects, settings)
    }

    fn compile_after(
        before: Option<&Self>,
        objects: &ObjectSet,
        settings: &PolicySettings,
    ) -> Result<Compiled, Vec<Finding>> {
        let known = KnownSchemas::of(before);
        let EffectiveSet {
            flow_schemas,
            priority_levels,
            findings: left_out,
        } = objects.effective();
        let mut findings = objects.findings().to_vec();
        findings.extend(left_out);
        let levels = compile_levels(&priority_levels);
        let specs: Vec<LevelSpec> = levels.iter().map(|level| level.spec.clone()).collect();
        let unusable = UnusableLevels::of(&findings, objects.has_unread_documents());
        let mut dangling = Vec::new();
        let candidates = in_matching_order(
            flow_schemas,
            &specs,
            &known,
            &unusable,
            &mut dangling,
            &mut findings,
        );
        if findings.iter().any(Finding::is_error) {
            return Err(findings);
        }
        let is_catch_all = |c: &SchemaCandidate| &*c.schema.name == bootstrap::CATCH_ALL;
        let catch_all = candidates.iter().position(is_catch_all);
        debug_assert!(catch_all.is_some(), "the mandatory schema was put in");
        let catch_all = schema_index(catch_all.unwrap_or(candidates.len() - 1));
        let classifier = Classifier::new(
            before.map(|before| &before.classifier),
            &candidates_view(&candidates, &known),
            &specs,
            settings.hash_key,
        );
        findings.extend(advice::on_levels(&levels, &candidates, settings));
        findings.extend(advice::on_schemas(&candidates, &classifier));
        let (schemas, objects): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .map(|candidate| (candidate.schema, candidate.object))
            .unzip();
        let policy = Self {
            settings: settings.clone(),
            schemas: schemas.into(),
            objects: objects.into(),
            levels: specs.into(),
            catch_all,
            classifier,
        };
        Ok(Compiled {
            policy,
            findings,
            dangling,
        })
    }
}

fn schema_index(at: usize) -> SchemaIndex {
    SchemaIndex(u32::try_from(at).expect("fewer than 2^32 schemas"))
}

fn candidates_view<'a>(
    candidates: &'a [SchemaCandidate],
    known: &KnownSchemas<'_>,
) -> Vec<ClassifierSchema<'a>> {
    let schema = |candidate: &'a SchemaCandidate| ClassifierSchema {
        schema: &candidate.schema,
        rules: &candidate.object.object.rules,
        known: known.find(&candidate.object).map(|(index, _)| index),
    };
    candidates.iter().map(schema).collect()
}

/// The schemas of the policy before, by their objects.
struct KnownSchemas<'a>(HashMap<*const Located<CompactFlowSchema>, (SchemaIndex, &'a Schema)>);

impl<'a> KnownSchemas<'a> {
    fn of(policy: Option<&'a Policy>) -> Self {
        let schemas = policy.into_iter().flat_map(|policy| {
            let objects = policy.objects.iter().map(Arc::as_ptr);
            let schemas = (0..).map(SchemaIndex).zip(&policy.schemas);
            objects.zip(schemas)
        });
        Self(schemas.collect())
    }

    /// The schema of the same object. The policy before keeps its objects, so an address is of one object.
    fn find(&self, object: &Arc<Located<CompactFlowSchema>>) -> Option<(SchemaIndex, &'a Schema)> {
        self.0.get(&Arc::as_ptr(object)).copied()
    }
}

fn compile_levels(given: &[Arc<Located<PriorityLevelConfiguration>>]) -> Vec<LevelCandidate> {
    let mut levels: Vec<LevelCandidate> = given.iter().map(|level| compile_level(level)).collect();
    for built_in in bootstrap::priority_levels() {
        let name = built_in.metadata.name.as_deref().unwrap_or_default();
        if bootstrap::is_mandatory(name) && !levels.iter().any(|l| &*l.spec.name == name) {
            levels.push(compile_level(&Located::built_in(built_in)));
        }
    }
    levels.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
    levels
}

fn compile_level(given: &Located<PriorityLevelConfiguration>) -> LevelCandidate {
    let object = &given.object;
    let spec = object.spec.clone().unwrap_or_default();
    // An exempt level without its part is as the built-in one: a server would repair it.
    let exempt = spec.exempt.unwrap_or_default();
    let (shares, lendable_percent, kind) = match &spec.limited {
        Some(limited) => (
            limited.nominal_concurrency_shares,
            limited.lendable_percent,
            limited_kind(limited),
        ),
        None => (
            exempt.nominal_concurrency_shares,
            exempt.lendable_percent,
            LevelKind::Exempt,
        ),
    };
    LevelCandidate {
        spec: LevelSpec {
            uid: uid(&object.metadata),
            name: name(&object.metadata),
            shares: natural(shares),
            lendable_percent: natural(lendable_percent),
            kind,
        },
        origin: Arc::clone(&given.origin),
        is_built_in: is_built_in(object),
    }
}

/// Whether a level is as it is built in.
fn is_built_in(level: &PriorityLevelConfiguration) -> bool {
    let name = level.metadata.name.as_deref().unwrap_or_default();
    bootstrap::priority_level(name).is_some_and(|built_in| built_in.spec == level.spec)
}

fn limited_kind(limited: &LimitedPriorityLevelConfiguration) -> LevelKind {
    let queuing = limited
        .limit_response
        .as_ref()
        .and_then(|response| response.queuing.as_ref());
    LevelKind::Limited {
        borrowing_limit_percent: limited.borrowing_limit_percent.map(|p| natural(Some(p))),
        response: match queuing {
            None => LimitResponse::Reject,
            Some(queuing) => LimitResponse::Queue(Queuing {
                queues: natural(queuing.queues),
                hand_size: natural(queuing.hand_size),
                queue_length_limit: natural(queuing.queue_length_limit),
            }),
        },
    }
}

/// The schemas that take part, by precedence and then name, with the mandatory ones at the ends.
fn in_matching_order(
    given: Vec<Arc<Located<CompactFlowSchema>>>,
    levels: &[LevelSpec],
    known: &KnownSchemas<'_>,
    unusable: &UnusableLevels,
    dangling: &mut Vec<Arc<str>>,
    findings: &mut Vec<Finding>,
) -> Vec<SchemaCandidate> {
    let mut candidates = Vec::with_capacity(given.len() + 2);
    for located in given {
        let has_level = unusable.may_have(&located.object.level);
        match compile_schema(located, levels, known) {
            Ok(candidate) => candidates.push(candidate),
            Err(missing) => {
                dangling.push(missing.name.as_str().into());
                // One that has errors is not missing.
                if !has_level {
                    findings.push(*missing);
                }
            }
        }
    }
    candidates.sort_by(
        |SchemaCandidate { schema: a, .. }, SchemaCandidate { schema: b, .. }| {
            (a.precedence, &a.name).cmp(&(b.precedence, &b.name))
        },
    );
    let has = |name: &str| candidates.iter().any(|c| &*c.schema.name == name);
    let first =
        (!has(bootstrap::EXEMPT)).then(|| mandatory_candidate(bootstrap::EXEMPT, levels, known));
    let last = (!has(bootstrap::CATCH_ALL))
        .then(|| mandatory_candidate(bootstrap::CATCH_ALL, levels, known));
    first
        .into_iter()
        .flatten()
        .chain(candidates)
        .chain(last.into_iter().flatten())
        .collect()
}

/// The levels that are not in the set because they have errors, also one in the kind or the name.
struct UnusableLevels {
    /// Their names, as [`Self::like`] has them.
    names: HashSet<String>,
    /// Whether there may be others, whose names are not known.
    may_be_any: bool,
}

impl UnusableLevels {
    fn of(findings: &[Finding], has_unread_documents: bool) -> Self {
        let of_levels =
            (findings.iter()).filter(|finding| finding.is_error() && finding.kind != FLOW_SCHEMA);
        let names: HashSet<String> = of_levels.map(|finding| Self::like(&finding.name)).collect();
        Self {
            may_be_any: has_unread_documents || names.contains(""),
            names,
        }
    }

    /// Whether a level of this name may be one of them.
    fn may_have(&self, name: &str) -> bool {
        self.may_be_any || self.names.contains(&Self::like(name))
    }

    /// A name without the mistakes that are hard to see.
    fn like(name: &str) -> String {
        name.trim().to_lowercase()
    }
}

fn mandatory_candidate(
    name: &str,
    levels: &[LevelSpec],
    known: &KnownSchemas<'_>,
) -> Option<SchemaCandidate> {
    let built_in = Located::built_in(CompactFlowSchema::built_in_of(name)?);
    compile_schema(Arc::new(built_in), levels, known).ok()
}

/// The schema, or the finding that its level does not exist.
fn compile_schema(
    given: Arc<Located<CompactFlowSchema>>,
    levels: &[LevelSpec],
    known: &KnownSchemas<'_>,
) -> Result<SchemaCandidate, Box<Finding>> {
    let object = &given.object;
    let level_name = &*object.level;
    let Some(level) = level_by_name(levels, level_name) else {
        return Err(Box::new(Finding {
            severity: Severity::Warning,
            origin: given.origin.to_string(),
            kind: FLOW_SCHEMA.to_owned(),
            name: object.name.to_string(),
            field: "spec.priorityLevelConfiguration.name".to_owned(),
            message: format!(
                "names the PriorityLevelConfiguration {level_name:?}, which does not exist, so the \
                 schema matches nothing"
            ),
            remedy: "add that level or name an existing one".to_owned(),
        }));
    };
    if let Some((_, schema)) = known.find(&given) {
        let schema = Schema {
            level,
            ..schema.clone()
        };
        return Ok(SchemaCandidate {
            schema,
            object: given,
        });
    }
    let uid = match &*object.uid {
        "" => stable_uid(FLOW_SCHEMA, &object.name).into(),
        _ => Arc::clone(&object.uid),
    };
    let schema = Schema {
        uid,
        name: Arc::clone(&object.name),
        precedence: object.precedence,
        level,
        distinguisher: object.distinguisher,
        tenant: object.tenant.as_ref().copied().unwrap_or_default(),
    };
    Ok(SchemaCandidate {
        schema,
        object: given,
    })
}

fn name(metadata: &ObjectMeta) -> Arc<str> {
    metadata.name.as_deref().unwrap_or_default().into()
}

fn uid(metadata: &ObjectMeta) -> Arc<str> {
    match metadata.uid.as_deref() {
        None | Some("") => stable_uid(PRIORITY_LEVEL, &name(metadata)).into(),
        Some(uid) => uid.into(),
    }
}

/// A UUID of version 8 (RFC 9562: "vendor-specific") that is always the same for a kind and name.
///
/// It contains no secret, so that all gateways send the same UIDs to clients.
fn stable_uid(kind: &str, name: &str) -> String {
    let mut hasher = SipHasher13::new_with_key(b"fairgate.uid.v1\0");
    for part in [kind.as_bytes(), b"\0", name.as_bytes()] {
        std::hash::Hasher::write(&mut hasher, part);
    }
    let mut bytes = hasher.finish128().as_bytes();
    bytes[6] = 0x80 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// A number that validation has found not to be negative; absent is 0.
fn natural(number: Option<i32>) -> u32 {
    number.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_uid_is_well_formed_and_depends_only_on_kind_and_name() {
        let uid = stable_uid(FLOW_SCHEMA, "exempt");
        assert_eq!(uid, stable_uid(FLOW_SCHEMA, "exempt"));
        assert_ne!(uid, stable_uid(PRIORITY_LEVEL, "exempt"));
        assert_ne!(uid, stable_uid(FLOW_SCHEMA, "exempu"));
        let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&uid[14..15], "8", "version");
        assert!("89ab".contains(&uid[19..20]), "variant");
    }
}
