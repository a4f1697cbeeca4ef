//! Migrates the keys of an older format.
//!
//! The marker is replaced by a key that an older fairgate takes for foreign, so its replicas stop writing at
//! once: each of their writes is conditional on the marker. Then every object is moved to its new key, each
//! in one transaction, and finally the marker of the new format is written. Several replicas may do this at
//! once, and continue what another has begun.

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};

use super::{
    Shared,
    keys::{FORMAT, FORMAT_1, KeyKind},
};
use crate::{error::StoreError, migration::key_from_format_1};

/// How many objects are read at once.
const PAGE: i64 = 100;

impl Shared {
    /// Begins the migration of keys of format 1.
    pub(super) async fn begin_migration(&self) -> Result<(), StoreError> {
        let (marker, migrating) = (self.keys.marker(), self.keys.migrating());
        let is_old = Compare::value(marker.clone(), CompareOp::Equal, FORMAT_1);
        let begin = [
            TxnOp::delete(marker, None),
            TxnOp::put(migrating, FORMAT_1, None),
        ];
        let begin = Txn::new().when([is_old]).and_then(begin);
        self.link.commit(&begin).await?;
        tracing::info!("migrating the keys in etcd to {FORMAT:?}; older replicas stop writing");
        Ok(())
    }

    /// Moves all objects to their new keys and writes the marker.
    pub(super) async fn finish_migration(&self) -> Result<(), StoreError> {
        let migrating = self.keys.migrating();
        let is_migrating = || Compare::version(migrating.clone(), CompareOp::Greater, 0);
        let end = self.keys.end("/")?;
        let mut start = self.keys.full("/");
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE);
            let found = self.link.get(start.clone(), Some(options)).await?;
            for found in found.kvs() {
                let KeyKind::Object(key) = self.keys.kind(found.key())? else {
                    continue;
                };
                if is_present_format(&key) {
                    continue;
                }
                let unchanged =
                    Compare::mod_revision(found.key(), CompareOp::Equal, found.mod_revision());
                let moved = [
                    TxnOp::put(
                        self.keys.full(&key_from_format_1(&key)),
                        found.value(),
                        None,
                    ),
                    TxnOp::delete(found.key(), None),
                ];
                // If another replica has moved it, there is nothing to do.
                let transaction = Txn::new().when([is_migrating(), unchanged]).and_then(moved);
                self.link.commit(&transaction).await?;
            }
            let Some(last) = found.kvs().last().filter(|_| found.more()) else {
                break;
            };
            start = [last.key(), &[0]].concat();
        }
        let finish = [
            TxnOp::delete(migrating.clone(), None),
            TxnOp::put(self.keys.marker(), FORMAT, None),
        ];
        let finish = Txn::new().when([is_migrating()]).and_then(finish);
        self.link.commit(&finish).await?;
        tracing::info!("migrated the keys in etcd to {FORMAT:?}");
        Ok(())
    }
}

/// Whether a key was moved already: keys of format 1 have two segments, later ones at least three.
fn is_present_format(key: &str) -> bool {
    key.split('/').skip(1).count() > 2
}
