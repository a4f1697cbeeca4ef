//! When the gateway's certificates expire, for a metric.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use rustls::pki_types::CertificateDer;

use fairgate_observe::{GatewayMetrics, catalogue};

/// The time at which a certificate expires; it changes when the certificate is renewed.
#[derive(Clone, Debug)]
pub(super) struct CertificateExpiry(Arc<AtomicI64>);

impl CertificateExpiry {
    /// Exposes when `chain` expires. `name` is the value of the label: `serving`, `admin` or `upstream`.
    pub(super) fn register(
        metrics: &GatewayMetrics,
        name: &'static str,
        chain: &[CertificateDer<'_>],
    ) -> Self {
        let expiry = Self(Arc::new(AtomicI64::new(earliest_end(chain))));
        let read = Arc::clone(&expiry.0);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        metrics.observe_labelled_gauge(
            &catalogue::CERTIFICATE_EXPIRY,
            ("certificate", name),
            move || read.load(Ordering::Relaxed) as f64,
        );
        expiry
    }

    /// Records the expiry of a renewed certificate.
    pub(super) fn set(&self, chain: &[CertificateDer<'_>]) {
        self.0.store(earliest_end(chain), Ordering::Relaxed);
    }
}

/// The earliest expiry of the certificates of `chain`, in seconds since 1970; 0 if none can be read.
fn earliest_end(chain: &[CertificateDer<'_>]) -> i64 {
    let end = |der: &CertificateDer<'_>| {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    chain.iter().filter_map(end).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn ending(year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 2);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_chain_expires_with_the_first_of_its_certificates() {
        let chain = [ending(2031), ending(2030)];
        assert_eq!(earliest_end(&chain), 1_893_542_400); // 2030-01-02
        assert_eq!(earliest_end(&chain[..1]), 1_925_078_400); // 2031-01-02
        assert_eq!(earliest_end(&[]), 0);
    }
}
