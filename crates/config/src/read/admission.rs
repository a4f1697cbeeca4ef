//! Reads `admission`: admission policies for forwarded requests.

use std::{num::NonZeroU32, path::Path, time::Duration};

use crate::{
    admission::{AdmissionAuditConfig, AdmissionConfig, AdmissionSource},
    config::{Config, GatewayMode},
    section::{ConfigReader, ConfigSection},
};
use fairgate_admission::AdmissionMode;

/// The shortest limit of staleness: a list takes a moment.
const LEAST_STALENESS: Duration = Duration::from_secs(5);

pub(super) fn admission(section: &mut ConfigSection<'_>) -> AdmissionConfig {
    let (source, files, max_staleness) = section.section("policies", |policies| {
        let source = policies.get("source");
        let files = policies.paths("files");
        let max: Duration = policies.get("maxStaleness");
        (source, files, Some(max).filter(|max| !max.is_zero()))
    });
    AdmissionConfig {
        mode: section.get("mode"),
        source,
        files,
        max_staleness,
        fidelity: section.get("fidelity"),
        guard: section.get("guard"),
        reads: section.get("reads"),
        body_budget: section.get("bodyBudget"),
        workers: NonZeroU32::new(section.get("workers")),
        audit: section.section("audit", audit),
    }
}

fn audit(section: &mut ConfigSection<'_>) -> AdmissionAuditConfig {
    AdmissionAuditConfig {
        file: section.path_or_dash("file"),
        max_size: section.get("maxSize"),
        max_files: section.get("maxFiles"),
    }
}

/// Reports what contradicts other keys, and what has no effect.
pub(super) fn validate(reader: &mut ConfigReader, config: &Config) {
    let admission = &config.admission;
    validate_source(reader, config);
    if admission
        .max_staleness
        .is_some_and(|max| max < LEAST_STALENESS)
    {
        reader.error(
            "admission.policies.maxStaleness",
            "too short: policies are listed again every third of it, so it would be exceeded again and again",
            "set it to 5s or more, or to 0s for no limit",
        );
    }
    let directory = admission.audit.file.as_deref().and_then(Path::parent);
    if directory.is_some_and(|directory| !directory.as_os_str().is_empty() && !directory.is_dir()) {
        reader.error(
            "admission.audit.file",
            "its directory does not exist",
            "create it, or check the path, which is relative to the directory of the configuration file",
        );
    }
    if admission.mode.is_none() {
        // What hosted policies say about hosted objects is in it, too.
        if admission.audit.file.is_some() && config.has_upstream {
            reader.warning(
                "admission.audit.file",
                "has no effect: admission.mode is off",
                "set admission.mode to audit or enforce, or remove it",
            );
        }
        if !admission.files.is_empty() {
            reader.warning(
                "admission.policies.files",
                "has no effect: admission.mode is off",
                "set admission.mode to audit or enforce, or remove it",
            );
        }
        return;
    }
    if admission.max_staleness.is_some() && admission.mode == Some(AdmissionMode::Audit) {
        reader.warning(
            "admission.policies.maxStaleness",
            "has no effect: with admission.mode: audit no request is refused",
            "remove it, or set admission.mode to enforce",
        );
    }
    if admission.guard && admission.mode == Some(AdmissionMode::Audit) {
        reader.warning(
            "admission.guard",
            "has no effect: with admission.mode: audit requests are forwarded as they are",
            "remove it, or set admission.mode to enforce",
        );
    }
    if !config.has_upstream {
        reader.error(
            "admission.mode",
            "without an upstream no requests are forwarded; hosted policies are enforced on hosted objects in any case",
            "set upstream.url, or set it to off",
        );
    } else if !config.upstream.url.tls && !reader.is_set("upstream.tokenFile") {
        reader.warning(
            "admission.mode",
            "the gateway has no credential for the upstream, where it reads namespaces and objects in its own name",
            "set upstream.tokenFile, or use https and upstream.clientCertificate",
        );
    }
}

fn validate_source(reader: &mut ConfigReader, config: &Config) {
    let admission = &config.admission;
    let is_files = admission.source == AdmissionSource::Files;
    if admission.mode.is_some() && is_files && admission.files.is_empty() {
        reader.error(
            "admission.policies.files",
            "empty: there are no policies",
            "list files or directories of policies and bindings, or set admission.policies.source to hosted or upstream",
        );
    }
    if !is_files && !admission.files.is_empty() {
        reader.error(
            "admission.policies.files",
            "set, and admission.policies.source is not files",
            "remove it, or set admission.policies.source to files",
        );
    }
    for path in &admission.files {
        if !path.exists() {
            reader.no_policies(
                "admission.policies.files",
                format!("{} does not exist", path.display()),
                config.state_directory.is_some(),
            );
        }
    }
    if admission.source == AdmissionSource::Hosted && !config.mode.hosts() {
        let now = match config.mode {
            GatewayMode::Sidecar => "sidecar",
            _ => "files",
        };
        reader.error(
            "admission.policies.source",
            format!("with mode: {now} the gateway has no API that could host policies"),
            "set mode to standalone or overlay, or set it to files or upstream",
        );
    }
    if admission.source == AdmissionSource::Upstream && !config.has_upstream {
        reader.error(
            "admission.policies.source",
            "there is no upstream",
            "set upstream.url, or set it to files or hosted",
        );
    }
}
