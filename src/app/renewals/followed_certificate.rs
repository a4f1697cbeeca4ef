//! A certificate of the gateway that is renewed while it runs: when it expires, and whether peers refuse it.

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;

use fairgate_base::clock::Clock;
use fairgate_config::{CertificateAndKey, CertificateUse, CertificateValidity};
use fairgate_observe::{GatewayMetrics, HealthChecks, catalogue};

/// Where a certificate comes from, and what it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateRole {
    /// The section of the configuration that names its file.
    pub(crate) key: &'static str,
    /// The value of the metric's label: `serving`, `admin` or `upstream`.
    pub(crate) label: &'static str,
    pub(crate) usage: CertificateUse,
}

/// A certificate in use; clones see when it is renewed.
#[derive(Clone, Debug)]
pub(crate) struct FollowedCertificate {
    role: CertificateRole,
    file: PathBuf,
    validity: Arc<ArcSwap<CertificateValidity>>,
    clock: Clock,
}

impl FollowedCertificate {
    /// Follows `own`: exposes when it expires, and warns if peers refuse it.
    pub(crate) fn register(
        metrics: &GatewayMetrics,
        role: CertificateRole,
        own: &CertificateAndKey,
        clock: &Clock,
    ) -> Self {
        let validity = CertificateValidity::of(&own.chain, role.usage);
        let followed = Self {
            role,
            file: own.files[0].path.clone(),
            validity: Arc::new(ArcSwap::from_pointee(validity)),
            clock: clock.clone(),
        };
        let read = Arc::clone(&followed.validity);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics.observe_labelled_gauge(
            &catalogue::CERTIFICATE_EXPIRY,
            ("certificate", role.label),
            move || read.load().expiry() as f64,
        );
        followed.warn();
        followed
    }

    /// It was renewed.
    pub(crate) fn set(&self, chain: &[CertificateDer<'_>]) {
        let validity = CertificateValidity::of(chain, self.role.usage);
        self.validity.store(Arc::new(validity));
        self.warn();
    }

    /// Why peers refuse it now: the file, its key, what is wrong, and what to do.
    fn problem(&self) -> Option<String> {
        let wrong = self.validity.load().problem(self.clock.unix_seconds())?;
        let (file, key) = (self.file.display(), self.role.key);
        Some(format!("{file} ({key}) {wrong}"))
    }

    fn warn(&self) {
        if let Some(problem) = self.problem() {
            let peers = match self.role.usage {
                CertificateUse::Server => "clients refuse",
                CertificateUse::Client => "the upstream refuses",
            };
            tracing::warn!(%problem, "{peers} the gateway's certificate");
        }
    }
}

/// Adds the certificates to the health checks, if there are any.
pub(crate) fn add_health_check(
    certificates: Vec<FollowedCertificate>,
    checks: HealthChecks,
) -> HealthChecks {
    if certificates.is_empty() {
        return checks;
    }
    checks.note("certificates", move || {
        let problems = certificates.iter().filter_map(FollowedCertificate::problem);
        let problems: Vec<String> = problems.collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    })
}
