//! Admission policies: `ValidatingAdmissionPolicy`, evaluated as kube-apiserver does.
//!
//! # How policies work
//!
//! A *policy* has expressions in CEL about an object that is to be written. It is in force through *bindings*, which say
//! for which requests, with which *params* and what to do when a validation fails: deny the request, warn the client,
//! write to the audit event.
//!
//! A [`PolicySet`] is compiled once from policies and bindings. For each write:
//!
//! 1. [`PolicySet::may_match`] says whether any policy may match the request, before a body is read.
//! 2. [`PolicySet::evaluate`] matches each policy and binding, collects params, evaluates, and returns an
//!    [`AdmissionVerdict`]: denials, of which the client gets the first; warnings; audit annotations; what to count.
//!
//! One evaluation, of one policy with one param, has four parts: matchConditions, validations, messages, audit annotations.
//! In each, variables are computed when they are first used and then kept. Every expression may cost 1 000 000 CEL
//! cost units, and so may every variable; the parts together have [`EvaluationBudgets`].
//!
//! # Differences from kube-apiserver
//!
//! `tests/it/known_differences.json` lists what the comparison with the original shows. Besides: variables that use
//! each other may nest only so deep that a thread's usual stack suffices; the original grows its stack.
//! An annotation's value that is too long is cut between characters, not within one.
//!
//! # How this crate works
//!
//! Everything here is pure: what evaluating needs, such as namespaces and params, comes from [`AdmissionInputs`], which the
//! host answers from what it knows. [`ClusterLookups`] answers for namespaces and params, and notes what it has no answer
//! for, so that the host can read it and evaluate again. There is no clock, no I/O, and no random number. Texts that clients see are
//! kube-apiserver's.
//!
//! Source: the sources of Kubernetes 1.36, and what its dispatcher makes of the cases in `oracle/`.
//!
//! Not here: reading policies, converting objects between versions, HTTP, watches.

mod absences;
mod attributes;
pub mod audit;
mod built_in;
mod cluster_objects;
mod declared_type;
mod early;
mod environment;
mod evaluate;
mod evaluation;
mod expression;
mod inputs;
pub mod kinds;
mod lookups;
mod matching;
mod mode;
mod observer;
mod params;
mod passes;
mod pattern_limits;
mod policy;
mod reads;
mod record;
mod set;
mod set_by_server;
mod set_fields;
mod type_checking;
pub mod validate;
mod verdict;
mod warnings;

pub use absences::{AbsentPart, expressions_that_fail_without};
pub use attributes::{
    AdmissionAttributes, AdmissionObjects, AdmissionOperation, GroupVersionKind,
    GroupVersionResource,
};
pub use built_in::{BuiltInResource, built_in_resource, built_in_resources, typed_kinds};
pub use cluster_objects::{
    ClusterObjects, KnownFuture, ListFuture, LookupFuture, SharedObject, object_bytes,
    unknown_param_kind,
};
pub use declared_type::{CheckedKind, DeclaredType, DeclaredTypeError, OpenApiDocument};
pub use evaluation::{
    AnnotationResult, DecisionKind, EvaluationBudgets, EvaluationCosts, PartCost,
    PolicyAnnotationResult, PolicyDecision, PolicyDecisions, PolicyEvaluation,
};
pub use inputs::{
    AdmissionInputs, ClusterInputs, ConversionFailure, EquivalentResource, InputFailure,
    LookupLack, ParamScope, PolicyParamKind,
};
pub use lookups::{ClusterLookups, KnownLookups, MissingLookup};
pub use mode::{AdmissionMode, Fidelity};
pub use observer::{EvaluationObserver, ExpressionRole, ExpressionStep};
pub use passes::{AnswerFuture, AuthorizesChecks, EvaluationPasses, KnownAnswers, MissingSupplies};
pub use record::{
    AdmissionDecision, AdmissionRecord, AdmissionRecorder, PolicyFields, RecordedCheck,
    RecordedRequest, WriteGuard,
};
pub use set::{PolicyMismatch, PolicySet, PolicySetSource, PossiblePolicy};
pub use set_by_server::FieldSetByServer;
pub use set_fields::{ExpressionFields, expressions_about_set_fields};
pub use type_checking::{
    KindSchema, PolicyKinds, expression_warnings, further_expression_warnings, object_kinds,
    params_kind,
};
pub use verdict::{
    AdmissionAbort, AdmissionVerdict, EnforcementAction, PolicyCheck, PolicyDenial, PolicyUsage,
    VALIDATION_FAILURE,
};
pub use warnings::warning_headers;
