// SPDX-License-Identifier: GPL-2.0-only
//! What corun shows of its results: the JSON object ([`Comparison`]), tables for terminals ([`table`]), a
//! self-contained page ([`html`]), comma-separated values ([`csv`]), timelines for Perfetto ([`timeline`]), the
//! verdicts on claims ([`claims`]) and tables of the documents ([`tables`]).
//!
//! This crate knows results, not the simulator: those of modelled and of recorded hosts look the same.

pub mod advice;
pub mod claims;
pub mod csv;
pub mod detail;
mod format;
pub mod html;
mod kinds;
mod layout;
mod markdown;
pub mod parameters;
mod perfetto;
pub mod replay;
mod results;
pub mod sensitivity;
mod summary;
pub mod table;
pub mod tables;
pub mod timeline;
pub mod workloads;

pub use layout::{grid, paragraphs};
pub use results::{
    AgentResult, Beside, ClientResult, Comparison, DiskResult, HostResult, IoResult, KernelResult,
    Recognised, ReplayCheck, Run, SiblingResult, Stacking, TaskResult, VcpuCheck, VmResult, round,
};
pub use summary::{Spread, sentences};

/// The JSON schema of [`Comparison`], as it is committed in `docs/schema`.
///
/// # Errors
/// If a schema cannot be written as JSON, which would be a defect of this crate.
pub fn schema() -> serde_json::Result<String> {
    let schema = schemars::schema_for!(Comparison);
    serde_json::to_string_pretty(&schema).map(|text| text + "\n")
}

/// The one object that `--json` prints.
///
/// # Errors
/// As for [`schema`].
pub fn json(comparison: &Comparison) -> serde_json::Result<String> {
    serde_json::to_string_pretty(comparison).map(|text| text + "\n")
}
