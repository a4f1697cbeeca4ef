//! Whether all members hash flows with the same key, as they must for what flows receive at several gateways to be added up.

use fairgate_fleet::records::{Report, SeatLedger, Standing};

/// Two members whose keys of flow hashes differ, and what to do; `None` if there are none.
pub(crate) fn other_hash_keys<'a>(
    ledger: &SeatLedger,
    reports: impl Iterator<Item = &'a Report>,
) -> Option<String> {
    let is_member = |report: &&Report| {
        let entry = ledger.entry(&report.gateway);
        entry.is_some_and(|entry| entry.standing == Standing::Member)
    };
    let marked = |report: &'a Report| Some((&report.gateway.name, report.hash_key_mark?));
    let mut marks = reports.filter(is_member).filter_map(marked);
    let (first, key) = marks.next()?;
    let (other, _) = marks.find(|(_, mark)| *mark != key)?;
    Some(format!(
        "gateways {first} and {other} hash flows with different keys, so who uses both has a share at each: set flowControl.hashKey to the same at all gateways, or at none, and restart those that had another"
    ))
}
