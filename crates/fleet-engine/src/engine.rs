//! Where a fleet keeps its reports and its ledger: keys with revisions and compare-and-swap.
//!
//! Not here: what is stored (`fairgate-fleet`), and elections, which use [`FleetEngine::lease_call`].

use fairgate_election::LeaseCallError;
use fairgate_fleet::{identity::KeyRevision, records::FormatError};
use http::Method;
use serde_json::Value;

/// A key of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetKey {
    /// What the gateway of this name reports.
    Report(String),
    /// Who may use how many seats.
    Ledger,
}

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The document.
    pub value: Vec<u8>,
    /// Its revision; later writes of any key have greater ones.
    pub revision: KeyRevision,
}

/// The outcome of a write that the engine has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The value is stored, at this revision.
    Stored(KeyRevision),
    /// The key does not have the expected revision; nothing was changed.
    Conflict,
}

/// Why a call failed. A write may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct EngineError {
    /// What kind of failure it is.
    pub failure: EngineFailure,
    /// What the engine says, or what happened to the request.
    pub why: String,
    /// Whether a gateway of another version may be able to use what this one cannot.
    pub is_of_version: bool,
}

/// The kinds of failures of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineFailure {
    /// It cannot be reached, or does not answer in time.
    NoAnswer,
    /// It does not accept the gateway's credentials, or does not permit the call.
    Forbidden,
    /// It answers with another error.
    Failed,
    /// What it holds cannot be used: it is damaged, of another version, or of a gateway with other settings.
    Unusable,
}

impl EngineFailure {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::NoAnswer,
        Self::Forbidden,
        Self::Failed,
        Self::Unusable,
    ];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoAnswer => "engine-no-answer",
            Self::Forbidden => "engine-forbidden",
            Self::Failed => "engine-failed",
            Self::Unusable => "records-unusable",
        }
    }
}

impl EngineError {
    /// The engine answers with an error, which has this text.
    pub fn new(why: impl Into<String>) -> Self {
        Self::of(EngineFailure::Failed, why)
    }

    /// An error of this kind, with this text.
    pub fn of(failure: EngineFailure, why: impl Into<String>) -> Self {
        Self {
            failure,
            why: why.into(),
            is_of_version: false,
        }
    }

    /// A record, which is called `what`, cannot be read.
    pub(crate) fn of_record(what: &str, error: &FormatError) -> Self {
        Self {
            is_of_version: matches!(error, FormatError::Version { .. }),
            ..Self::of(EngineFailure::Unusable, format!("{what}: {error}"))
        }
    }
}

impl From<LeaseCallError> for EngineError {
    fn from(error: LeaseCallError) -> Self {
        let failure = match error.code {
            None => EngineFailure::NoAnswer,
            Some(401 | 403) => EngineFailure::Forbidden,
            Some(_) => EngineFailure::Failed,
        };
        Self::of(failure, error.why)
    }
}

/// The key-value store of one fleet. Reads are linearizable: they see every write that was acknowledged before they were sent.
pub trait FleetEngine: Send + Sync + 'static {
    /// What the engine is called in messages, such as `kubernetes`.
    fn name(&self) -> &'static str;

    /// Reads a key; `None` if it does not exist.
    fn read(
        &self,
        key: &FleetKey,
    ) -> impl Future<Output = Result<Option<StoredRecord>, EngineError>> + Send;

    /// Reads the reports of all gateways.
    fn read_reports(&self) -> impl Future<Output = Result<Vec<StoredRecord>, EngineError>> + Send;

    /// Writes a key if it has the expected revision; revision 0: if it does not exist.
    fn write(
        &self,
        key: &FleetKey,
        expected: KeyRevision,
        value: Vec<u8>,
    ) -> impl Future<Output = Result<StoreOutcome, EngineError>> + Send;

    /// A call about the `Lease` by which the coordinator is elected: GET, POST and PUT as Kubernetes understands them, with a number as
    /// `resourceVersion` that is never given twice.
    fn lease_call(
        &self,
        method: Method,
        lease: Option<&Value>,
    ) -> impl Future<Output = Result<Value, LeaseCallError>> + Send;

    /// The key of the fleet's flow hashes: the one that is stored, or else `proposal`, which is then stored. Whatever several gateways
    /// propose at the same time, all get the same.
    fn hash_key(
        &self,
        proposal: [u8; 16],
    ) -> impl Future<Output = Result<[u8; 16], EngineError>> + Send;
}

/// The hash key as text: 32 hex digits.
pub(crate) fn hash_key_to_text(key: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(key))
}

/// The hash key of such a text.
pub(crate) fn hash_key_of_text(text: &str) -> Result<[u8; 16], EngineError> {
    let is_key = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u128::from_str_radix(text, 16).ok().filter(|_| is_key);
    key.map(u128::to_be_bytes)
        .ok_or_else(|| EngineError::new("the stored hash key is not 32 hex digits"))
}
