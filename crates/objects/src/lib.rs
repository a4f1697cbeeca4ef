//! What a Kubernetes API object is, without a server: tables of kinds, codecs, selectors, patches and
//! server-side apply.
//!
//! Objects are [`serde_json::Value`]s in the *canonical form* of their kind's table ([`schema`]).
//! A [`kind::Kind`] adds versions and rules to a table; [`kinds`] lists all kinds there are. Everything
//! else works on any kind: [`codec`] reads and writes JSON, YAML and protobuf, [`patch`] and [`ssa`]
//! change objects, [`selector`] selects them, [`metadata`] has the rules for names, labels and owners,
//! [`table`] prints objects as rows, [`defaults`] has the defaults of Kubernetes' kinds.
//!
//! Everything is pure: no clock, no random numbers, no I/O, no logging. Errors carry the texts of
//! kube-apiserver, because clients see them.
//!
//! Not here: HTTP, verbs, watches and documents (`fairgate-apiserver`), and where objects are kept
//! (`fairgate-store`).
//!
#![doc = include_str!("design.md")]

pub mod codec;
pub mod conditions;
pub mod conversion;
pub mod custom;
#[cfg(test)]
mod deep_documents;
pub mod defaults;
pub mod disruption_budget;
pub mod field_error;
pub mod go;
mod internal_form;
pub mod kind;
pub mod kinds;
pub mod label_selector;
pub mod metadata;
pub mod object;
pub mod patch;
pub mod schema;
pub mod selector;
pub mod ssa;
pub mod table;
