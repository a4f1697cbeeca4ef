//! Reports: the verdict first, the figures after.

mod text;

use serde::Serialize;

use crate::{figures::ClientFigures, verdict::Judgement};

pub(crate) use text::write_text;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunReport {
    pub(crate) scenario: String,
    pub(crate) title: String,
    pub(crate) about: String,
    /// Whether every expectation holds that can be known.
    pub(crate) passed: bool,
    /// The most important figure in one sentence.
    pub(crate) headline: Option<String>,
    pub(crate) expectations: Vec<Judgement>,
    /// What was measured, the one that is judged first.
    pub(crate) variants: Vec<VariantReport>,
    /// What a reader has to know.
    pub(crate) remarks: Vec<String>,
    /// Measured seconds of each slice, and how many slices there were of each variant.
    pub(crate) seconds: f64,
    pub(crate) rounds: u32,
}

/// The results of all clients against one target, or under one setting.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VariantReport {
    pub(crate) name: String,
    /// Medians over the rounds; counts are sums.
    pub(crate) clients: Vec<ClientFigures>,
}
