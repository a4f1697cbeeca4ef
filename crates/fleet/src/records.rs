//! What gateways and the coordinator write to the engine: reports and ledgers.
//!
//! Both are JSON documents with a format version. Unknown fields are ignored, so that a version may gain fields; a document
//! of a version that this program does not know is refused with [`FormatError::Version`].
//!
//! Flows and tenants are keyed hashes: records hold no user names. Not here: what the records mean for the bound
//! (`book`), and how they are stored.

use fairgate_core::apf::Seats;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    grants::Grants,
    identity::{Epoch, Fence, GatewayRun},
};

/// The version of the format that this program writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// What a gateway tells the coordinator, under `report/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Who reports.
    pub gateway: GatewayRun,
    /// Counts the reports of this incarnation, from 1.
    pub sequence: u64,
    /// The last ledger that the gateway applied.
    pub epoch: Epoch,
    /// max(limit in force, seats executing), over all levels.
    pub held: Seats,
    /// Whether the grant has expired: it counts again after a ledger that acknowledges this report.
    pub lapsed: bool,
    /// Whether it has run for so long that requests of earlier runs have ended for certain.
    #[serde(default)]
    pub settled: bool,
    /// Whether the gateway shuts down: it dispatches nothing any more.
    pub leaving: bool,
    /// [`Settings::terms`](crate::settings::Settings::terms): all members must have the same.
    #[serde(default)]
    pub terms: String,
    /// The seats of the servers that it reaches, 0 if it reaches none; `None` if it cannot tell them apart: then all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Seats>,
    /// Tells apart the keys with which gateways hash flows; `None` until the gateway has that of its fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_key_mark: Option<u64>,
    /// By level.
    #[serde(default)]
    pub levels: Vec<LevelLoad>,
    /// The most active flows.
    #[serde(default)]
    pub flows: Vec<FlowLoad>,
    /// Of the other flows, those of the tenants that have the most of them.
    #[serde(default)]
    pub tenants: Vec<TenantLoad>,
}

/// One priority level at a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LevelLoad {
    /// The name of the PriorityLevelConfiguration.
    pub level: String,
    /// max(limit in force, seats executing).
    pub held: Seats,
    /// Seats executing and seats that waiting requests ask for: the most of the last second.
    pub demand: Seats,
    /// What flows ask for that the report does not name; `None` if flows are not told apart: then all that named ones do not ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unnamed: Option<Seats>,
    /// How many tenants have flows of which neither the report's flows nor its tenants tell.
    #[serde(default)]
    pub unnamed_tenants: u32,
}

/// One flow at a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowLoad {
    /// The name of its level.
    pub level: String,
    /// The keyed hash of FlowSchema and flow distinguisher.
    pub flow: u64,
    /// The keyed hash of the tenant that owns it.
    pub tenant: u64,
    /// Seats executing and seats that waiting requests ask for.
    pub demand: Seats,
    /// What it received at this gateway since the gateway started, in seat-milliseconds.
    pub work: u64,
}

/// The flows of one tenant at a gateway that are not reported one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantLoad {
    /// The name of their level.
    pub level: String,
    /// The keyed hash of the tenant that owns them.
    pub tenant: u64,
    /// How many are active.
    pub flows: u32,
    /// Seats that they use, and that their waiting requests ask for.
    pub demand: Seats,
}

/// Who may use how many seats, under `ledger`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeatLedger {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// The number of this ledger.
    pub epoch: Epoch,
    /// The coordinator that wrote it.
    pub fence: Fence,
    /// All gateways that have seats besides the floors of those that are not listed.
    pub entries: Vec<LedgerEntry>,
    /// What flows that use several gateways received at each of them.
    #[serde(default)]
    pub flows: Vec<FlowWork>,
    /// How many flows tenants have that use several gateways.
    #[serde(default)]
    pub tenants: Vec<TenantFlows>,
}

/// What a run of a gateway has to do with the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Standing {
    /// It reports.
    Member,
    /// It does not report; its seats but for the floor have been taken back.
    Silent,
    /// Another run has taken its name; what it held is still reserved, because its requests may execute.
    Gone,
}

/// One run of one gateway in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Which run.
    pub gateway: GatewayRun,
    /// What it has to do with the fleet.
    pub standing: Standing,
    /// Its seats. 0 if it is gone.
    pub grant: Seats,
    /// How its grant is divided among levels. It may lend seats from one to another.
    #[serde(default)]
    pub levels: Vec<LevelGrant>,
    /// The last report that the coordinator knew.
    pub reported: Reported,
    /// The grants that it may be using.
    pub outstanding: Grants,
}

/// What matters of a report to the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// [`Report::sequence`]; 0: none.
    pub sequence: u64,
    /// [`Report::epoch`].
    pub epoch: Epoch,
    /// [`Report::held`].
    pub held: Seats,
    /// [`Report::leaving`].
    pub leaving: bool,
}

/// Seats of one level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LevelGrant {
    /// The name of the PriorityLevelConfiguration.
    pub level: String,
    /// Its part of the grant.
    pub seats: Seats,
}

/// What one flow received at each gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowWork {
    /// The name of its level.
    pub level: String,
    /// [`FlowLoad::flow`].
    pub flow: u64,
    /// By gateway: [`FlowLoad::work`].
    pub work: Vec<(GatewayRun, u64)>,
}

/// The active flows of one tenant that uses several gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantFlows {
    /// The name of the level.
    pub level: String,
    /// [`FlowLoad::tenant`].
    pub tenant: u64,
    /// How many in the fleet.
    pub flows: u32,
    /// How many at each gateway that has some: its place among the ledger's [`entries`](SeatLedger::entries), and their number.
    pub at: Vec<(usize, u32)>,
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum FormatError {
    /// Another version of fairgate wrote it.
    #[error(
        "the record has format version {found}, and this fairgate reads version {FORMAT_VERSION}; upgrade the older gateways"
    )]
    Version { found: u32 },
    /// It is not a record.
    #[error("the record cannot be read; has something else written under this key?")]
    Malformed { source: serde_json::Error },
}

/// All that is read of a record before its version is known.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if it has another version or is no report.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        parse(bytes)
    }

    /// What matters of it to the bound.
    pub(crate) fn summary(&self) -> Reported {
        Reported {
            sequence: self.sequence,
            epoch: self.epoch,
            held: self.held,
            leaving: self.leaving,
        }
    }
}

impl SeatLedger {
    /// Reads a ledger.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if it has another version or is no ledger. A gateway then keeps its grant and goes on reporting; a
    /// process that would be coordinator must not be.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        parse(bytes)
    }

    /// The entry of this run.
    pub fn entry(&self, gateway: &GatewayRun) -> Option<&LedgerEntry> {
        self.entries.iter().find(|entry| entry.gateway == *gateway)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FormatError> {
    let malformed = |source| FormatError::Malformed { source };
    // Read twice: as a whole, a record of another version would be called malformed, which says nothing about upgrading.
    let Versioned { version } = serde_json::from_slice(bytes).map_err(malformed)?;
    if version != FORMAT_VERSION {
        return Err(FormatError::Version { found: version });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_of_another_version_is_refused_with_both_versions() {
        let error = SeatLedger::parse(br#"{"version": 2, "shape": "unknown"}"#).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("version 2") && text.contains("version 1"),
            "{text}"
        );
    }

    #[test]
    fn a_report_may_have_fields_that_this_program_does_not_know() {
        let text = br#"{"version": 1, "gateway": {"name": "a", "incarnation": 7}, "sequence": 3, "epoch": 9, "held": 4,
            "lapsed": false, "leaving": false, "colour": "red"}"#;
        let report = Report::parse(text).unwrap();
        assert_eq!((report.epoch, report.held), (Epoch(9), 4));
        let again = Report::parse(&serde_json::to_vec(&report).unwrap()).unwrap();
        assert_eq!(again, report);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let error = Report::parse(b"hello").unwrap_err();
        assert!(matches!(error, FormatError::Malformed { .. }));
    }
}
