//! What needs the whole protocol: the search for schedules that break it, and its figures. And what several tests need.

mod figures;
mod search;

use crate::{
    identity::{Epoch, GatewayRun},
    records::{FORMAT_VERSION, Report},
};

/// The first report of the first run of a gateway, of nothing.
pub(crate) fn report_of(name: &str) -> Report {
    Report {
        version: FORMAT_VERSION,
        gateway: GatewayRun {
            name: name.to_owned(),
            incarnation: 1,
        },
        sequence: 1,
        epoch: Epoch(0),
        held: 0,
        lapsed: false,
        settled: true,
        leaving: false,
        terms: String::new(),
        reach: None,
        hash_key_mark: None,
        levels: Vec::new(),
        flows: Vec::new(),
        tenants: Vec::new(),
    }
}
