//! The settings of admission policies for forwarded requests.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use fairgate_admission::{AdmissionMode, Fidelity};

/// Admission policies for forwarded requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// What becomes of verdicts; `None`: nothing is evaluated.
    pub mode: Option<AdmissionMode>,
    /// Where the policies and bindings come from.
    pub source: AdmissionSource,
    /// With [`AdmissionSource::Files`], files and directories of policies, bindings and nothing else.
    pub files: Vec<PathBuf>,
    /// For how long requests may be evaluated by policies that are not certain to be those of the source; `None`: for any time.
    pub max_staleness: Option<Duration>,
    /// How the objects that policies evaluate are obtained, unless a policy's annotation says otherwise.
    pub fidelity: Fidelity,
    /// Whether writes that were evaluated by the stored object fail if it has changed since.
    pub guard: bool,
    /// How up to date the namespaces and params are that policies ask for.
    pub reads: AdmissionReads,
    /// Bytes of the bodies that each data core may hold for policies.
    pub body_budget: u64,
    /// Threads for large bodies and for evaluations that take long; `None`: half as many as data cores.
    pub workers: Option<NonZeroU32>,
    /// Where what policies find is written.
    pub audit: AdmissionAuditConfig,
}

/// The audit log of admission policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionAuditConfig {
    /// The file; `-` is standard output. `None`: nothing is written.
    pub file: Option<PathBuf>,
    /// Bytes of a file before it is renamed.
    pub max_size: u64,
    /// Renamed files that are kept.
    pub max_files: u32,
}

/// Where the policies and bindings for forwarded requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionSource {
    /// From files.
    Files,
    /// From the gateway's own API.
    Hosted,
    /// From the upstream's API.
    Upstream,
}

/// How up to date the namespaces and params are by which a request is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionReads {
    /// As watches have delivered them.
    Cached,
    /// As they are when the request is evaluated: they are read for it.
    Consistent,
}
