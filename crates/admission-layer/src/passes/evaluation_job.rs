//! One pass of evaluating: from the objects of a request to a verdict that needs nothing of it any more. It can run on any
//! thread.

use std::{
    cell::{Cell, RefCell},
    mem::take,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fairgate_admission::{
    AdmissionAbort, AdmissionAttributes, AdmissionObjects, AdmissionVerdict, ClusterLookups,
    EvaluationBudgets, EvaluationPasses, PolicyFields, PolicyUsage, RecordedCheck,
};
use fairgate_apihttp::status_error::StatusError;
use fairgate_base::clock::Clock;
use fairgate_cel::{CelJson, JsonObject};
use fairgate_core::time::Time;
use http::StatusCode;
use serde_json::Value;

use crate::{
    cluster::cluster_state::ClusterState,
    cluster::published::ForwardedPolicies,
    limits::body_budget::BodyShare,
    limits::decoded::decoded_bytes,
    object::body_object::BodyObject,
    passes::evaluation_inputs::{EvaluationInputs, MissingInputs},
    request::facts::{HiddenMetrics, WriteFacts, equivalents},
    request::findings::FoundNamespace,
    upstream::conversion::ConvertedObjects,
};

/// A request that is to be evaluated, with its objects and what has been read for it.
#[derive(Debug)]
pub(crate) struct EvaluationJob {
    pub(crate) policies: Arc<ForwardedPolicies>,
    pub(crate) cluster: Arc<dyn ClusterState>,
    pub(crate) facts: Arc<WriteFacts>,
    /// A body that is to be read before the first pass.
    pub(crate) body: Option<BodyObject>,
    pub(crate) object: Option<Arc<Value>>,
    pub(crate) old_object: Option<Arc<Value>>,
    pub(crate) passes: EvaluationPasses,
    /// The object and the stored one in other versions that policies ask for.
    pub(crate) converted: Vec<ConvertedObjects>,
    pub(crate) clock: Clock,
    /// Counts what is read for it.
    pub(crate) share: BodyShare,
    /// Whether [`object`](Self::object) is counted in the budget.
    pub(crate) is_counted: bool,
    /// Set when nobody waits for the verdict any more.
    pub(crate) is_abandoned: Arc<AtomicBool>,
}

/// The result of a pass.
#[derive(Debug)]
pub(crate) enum EvaluationPass {
    Done(EvaluatedWrite),
    /// It took too long, and its verdict is that of an interrupted evaluation.
    Interrupted,
    /// It needs what is not known.
    Missing(MissingInputs),
}

/// What policies say about a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvaluatedWrite {
    /// Code and `Status` of the refusal.
    pub(crate) refusal: Option<(StatusCode, Value)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) annotations: Vec<(String, String)>,
    pub(crate) checks: Vec<RecordedCheck>,
    /// What policies may read of the object and a server may set in it.
    pub(crate) set_by_server: Vec<PolicyFields>,
    pub(crate) usage: Vec<PolicyUsage>,
    /// The policies whose texts may quote a Secret.
    pub(crate) secret_params: Vec<String>,
    /// The namespace of the request, if it was read for it.
    pub(crate) namespace: Option<FoundNamespace>,
}

impl EvaluatedWrite {
    /// Whether another one is recorded in the same words.
    pub(crate) fn says_same(&self, other: &Self) -> bool {
        let checks = |of: &Self| -> Vec<_> {
            let checks = of.checks.iter();
            let told = |check: &RecordedCheck| {
                let texts = [&check.policy, &check.binding, &check.message, &check.reason];
                (check.action, texts.map(String::clone))
            };
            checks.map(told).collect()
        };
        self.refusal == other.refusal
            && self.warnings == other.warnings
            && self.annotations == other.annotations
            && checks(self) == checks(other)
    }
}

impl EvaluationJob {
    /// Reads the body, if that is to be done yet.
    ///
    /// # Errors
    ///
    /// What the client gets if it cannot be read.
    pub(crate) fn read_body(&mut self) -> Result<(), StatusError> {
        if let Some(mut body) = self.body.take() {
            let facts = Arc::make_mut(&mut self.facts);
            let object = body.read(facts, self.old_object.as_deref())?;
            self.object = Some(Arc::new(object));
        }
        Ok(())
    }

    /// How many bytes are decoded for its next pass.
    pub(crate) fn decoded_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.bytes.len())
    }

    /// Counts the object, and what is noted of it, in the budget, where it is not counted yet: it stays decoded until the next pass. Returns `false` if
    /// there is no room for it.
    pub(crate) fn count_object(&mut self) -> bool {
        let decoded = [self.object.as_ref(), self.facts.metrics.known()];
        let decoded = decoded.into_iter().flatten();
        let bytes = if self.is_counted {
            0
        } else {
            decoded.map(|one| decoded_bytes(one)).sum()
        };
        self.is_counted = self.share.take_decoded(bytes);
        self.is_counted
    }

    /// Frees the objects once there is a verdict.
    pub(crate) fn forget_objects(&mut self) {
        (self.object, self.old_object) = (None, None);
        if self.facts.metrics.known().is_some() {
            Arc::make_mut(&mut self.facts).metrics = HiddenMetrics::None;
        }
        self.passes = EvaluationPasses::default();
        self.converted.clear();
    }

    /// Evaluates once, until `until`, after which expressions are interrupted.
    pub(crate) fn pass(&self, until: Time) -> EvaluationPass {
        let facts = &*self.facts;
        let options = facts.options.as_ref().map(read);
        let must_stop = || self.is_abandoned.load(Ordering::Relaxed) || self.clock.now() >= until;
        let equivalents = equivalents(facts.served.as_deref());
        let converted = self.converted.iter().map(|one| match &one.objects {
            Ok(objects) => objects.each_ref().map(|one| one.as_deref().map(read)),
            Err(_) => [None, None],
        });
        let inputs = EvaluationInputs {
            lookups: ClusterLookups::new(&*self.cluster, self.passes.lookups()),
            conversions: &self.converted,
            kind: facts.group_version_kind(),
            objects: [&self.object, &self.old_object].map(|one| one.as_deref().map(read)),
            converted: converted.collect(),
            equivalents: &equivalents,
            answers: Arc::clone(self.passes.answers()),
            must_stop: &must_stop,
            clock: &self.clock,
            unconverted: RefCell::default(),
            was_stopped: Cell::new(false),
        };
        let attributes = facts.attributes(options.as_ref());
        let budgets = EvaluationBudgets::default();
        let verdict = self.policies.set.evaluate(&attributes, &inputs, budgets);
        let missing = inputs.take_missing();
        // The verdict is worth nothing then: it was reached as if what is missing did not exist.
        if !missing.is_empty() {
            return EvaluationPass::Missing(missing);
        }
        let [object, old_object] = &inputs.objects;
        let objects = AdmissionObjects {
            object: object.as_ref(),
            old_object: old_object.as_ref(),
        };
        let mut evaluated = match verdict {
            Ok(verdict) => EvaluatedWrite::of(verdict, &attributes, objects),
            Err(abort) => EvaluatedWrite::aborted(&abort),
        };
        let namespace = self.passes.lookups().namespace(&facts.namespace);
        evaluated.namespace = namespace.map(FoundNamespace::of);
        if inputs.was_stopped.get() {
            EvaluationPass::Interrupted
        } else {
            EvaluationPass::Done(evaluated)
        }
    }
}

/// A value as expressions see it; it borrows the texts.
fn read(value: &Value) -> CelJson<'_> {
    match value {
        Value::Null => CelJson::Null,
        Value::Bool(flag) => CelJson::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            // As Kubernetes decodes JSON: what does not fit into an int64 is a float64, also a large whole number.
            (Some(integer), _) => CelJson::Int(integer),
            (None, Some(float)) => CelJson::Double(float),
            (None, None) => CelJson::Null,
        },
        Value::String(text) => CelJson::String(text.into()),
        Value::Array(items) => CelJson::Array(items.iter().map(read).collect()),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| (name.into(), read(value)));
            CelJson::Object(JsonObject::of_distinct(members.collect()))
        }
    }
}

impl EvaluatedWrite {
    fn of(
        verdict: AdmissionVerdict<'_>,
        attributes: &AdmissionAttributes<'_>,
        objects: AdmissionObjects<'_>,
    ) -> Self {
        let refusal = verdict.denials.first().map(|denial| {
            let code = StatusCode::from_u16(denial.code());
            let code = code.unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
            (code, denial.status(attributes, objects))
        });
        Self {
            refusal,
            checks: RecordedCheck::of(&verdict),
            set_by_server: PolicyFields::of(&verdict, attributes, objects),
            usage: verdict.usage(),
            secret_params: verdict.secret_params,
            warnings: verdict.warnings,
            annotations: verdict.audit_annotations,
            namespace: None,
        }
    }

    fn aborted(abort: &AdmissionAbort) -> Self {
        let status = abort.status();
        let code = status["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        Self {
            refusal: Some((code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), status)),
            ..Self::default()
        }
    }

    /// About how many bytes it takes, apart from the refusal, of which one is kept, and sums for each policy.
    pub(crate) fn bytes(&self) -> usize {
        // A `String` takes 24 bytes besides its text.
        let warnings: usize = self.warnings.iter().map(|one| one.len() + 24).sum();
        let annotations = self.annotations.iter();
        let annotations: usize = annotations
            .map(|(key, value)| key.len() + value.len() + 48)
            .sum();
        let checks = self.checks.iter().map(|check| {
            let texts = [&check.policy, &check.binding, &check.message, &check.reason];
            size_of::<RecordedCheck>() + texts.into_iter().map(String::len).sum::<usize>()
        });
        let fields = self.set_by_server.iter();
        let fields = fields.map(|one| one.policy.len() + 48 + 8 * one.fields.len());
        warnings + annotations + checks.sum::<usize>() + fields.sum::<usize>()
    }

    /// Takes what a record has and the response does not need; the warnings are for both.
    pub(crate) fn take_recorded(&mut self) -> Self {
        Self {
            warnings: self.warnings.clone(),
            annotations: take(&mut self.annotations),
            checks: take(&mut self.checks),
            set_by_server: take(&mut self.set_by_server),
            usage: take(&mut self.usage),
            secret_params: take(&mut self.secret_params),
            ..Self::default()
        }
    }

    /// Keeps only the refusal and the sums for each policy.
    pub(crate) fn forget_texts(&mut self) {
        self.warnings.clear();
        self.annotations.clear();
        self.checks.clear();
        self.set_by_server.clear();
    }

    /// Adds what policies say about another object of the same request. The first refusal counts.
    pub(crate) fn add(&mut self, other: Self) {
        self.refusal = self.refusal.take().or(other.refusal);
        self.warnings.extend(other.warnings);
        self.checks.extend(other.checks);
        self.set_by_server.extend(other.set_by_server);
        for policy in other.secret_params {
            if !self.secret_params.contains(&policy) {
                self.secret_params.push(policy);
            }
        }
        for (key, value) in other.annotations {
            if self.annotations.iter().all(|(known, _)| *known != key) {
                self.annotations.push((key, value));
            }
        }
        for one in other.usage {
            one.add_to(&mut self.usage);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_read_as_its_text_is() {
        let many: Value = (0..40)
            .map(|at| (format!("k{}", at * 7 % 40), json!(at)))
            .collect();
        let value = json!({
            "numbers": [0, -1, i64::MIN, i64::MAX, u64::MAX, 1.0, -0.0, 1e300, 1.5],
            "texts": ["", "é", "\n"],
            "others": [null, true, false, [], {}],
            "many": many,
        });
        assert_eq!(
            Ok(read(&value)),
            CelJson::deserialize(&value).map_err(|_| ())
        );
    }
}
