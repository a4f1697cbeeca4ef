//! What a connection keeps of its peer's certificate, so that a chain is not verified per request.
//!
//! A judgement holds for one set of settings and to the first end of validity in the chain. A refusal
//! is looked at again after a short while, since a certificate may not be valid *yet*.

use std::sync::Arc;

use super::{Identity, front_proxy::FrontProxyError, mtls::CertificateError};

/// What was made of the peer's certificate; owned by the connection, empty at its start.
///
/// It is valid for one connection only: a peer cannot change its certificate within one.
#[derive(Debug, Default)]
pub struct PeerIdentityCache {
    version: u64,
    pub(super) front_proxy: Slot<(), FrontProxyError>,
    pub(super) user: Slot<Option<Arc<Identity>>, CertificateError>,
}

/// A result, and the last second since 1970 at which it is sure to hold.
pub(super) type Judgement<T, E> = Result<(T, i64), E>;

/// One judgement, kept while it holds.
#[derive(Debug)]
pub(super) struct Slot<T, E>(Option<Kept<T, E>>);

#[derive(Debug)]
struct Kept<T, E> {
    from: i64,
    until: i64,
    verdict: Result<T, E>,
}

/// For how many seconds a refusal is not looked at again.
const REFUSAL_SECONDS: i64 = 10;

impl PeerIdentityCache {
    /// Forgets everything unless it was made under settings of this version.
    pub(super) fn at(&mut self, version: u64) -> &mut Self {
        if self.version != version {
            *self = Self {
                version,
                ..Self::default()
            };
        }
        self
    }
}

impl<T, E> Slot<T, E> {
    /// The judgement that holds at this second, made anew if need be.
    pub(super) fn get(
        &mut self,
        unix_seconds: i64,
        judge: impl FnOnce() -> Judgement<T, E>,
    ) -> Result<&T, &E> {
        let holds = |kept: &Kept<T, E>| (kept.from..=kept.until).contains(&unix_seconds);
        if !self.0.as_ref().is_some_and(holds) {
            self.0 = None;
        }
        self.0
            .get_or_insert_with(|| match judge() {
                Ok((value, until)) => Kept {
                    from: unix_seconds,
                    until,
                    verdict: Ok(value),
                },
                Err(error) => Kept {
                    from: unix_seconds,
                    until: unix_seconds.saturating_add(REFUSAL_SECONDS),
                    verdict: Err(error),
                },
            })
            .verdict
            .as_ref()
    }
}

impl<T, E> Default for Slot<T, E> {
    fn default() -> Self {
        Self(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgement_holds_to_its_end_and_not_before_its_beginning() {
        let mut slot: Slot<u32, ()> = Slot::default();
        let mut made = 0;
        for (now, count) in [(100, 1), (105, 1), (110, 1), (111, 2), (120, 2), (90, 3)] {
            let got = slot.get(now, || {
                made += 1;
                Ok((made, now + 10))
            });
            assert_eq!(got, Ok(&count), "at {now}");
        }
    }

    #[test]
    fn a_refusal_is_soon_looked_at_again() {
        let mut slot: Slot<(), u32> = Slot::default();
        let mut made = 0;
        for (now, count) in [(100, 1), (110, 1), (111, 2)] {
            let got = slot.get(now, || {
                made += 1;
                Err(made)
            });
            assert_eq!(got, Err(&count), "at {now}");
        }
    }
}
