// SPDX-License-Identifier: GPL-2.0-only
//! How well a replay matches its recording: shown before any what-if, because a user must know how far to trust that.

use crate::advice::Confidence;
use crate::format::{amount, percent};
use crate::layout::{figure, lines, right, ruled, sentence};
use crate::results::{Beside, ReplayCheck, VcpuCheck};
use comfy_table::{Cell, Table};
use corun_model::counted;

/// vCPUs shown; the rest is in `--json`.
const VCPUS_SHOWN: usize = 32;

/// The check as text for a terminal of `width` columns.
pub fn text(check: &ReplayCheck, confidence: Option<&Confidence>, width: u16) -> String {
    let mut out = format!("{}\n", heading(check));
    out += &lines(table(check, width));
    if check.vcpus.len() > VCPUS_SHOWN {
        let more = check.vcpus.len() - VCPUS_SHOWN;
        out += &format!("… and {}: see --json\n", counted(more, "more vCPU"));
    }
    for text in confident(check, confidence) {
        out += &sentence(&text, width);
    }
    out + "\n"
}

/// The check for the page.
pub(crate) struct Shown {
    pub(crate) heading: String,
    pub(crate) rows: Vec<ShownVcpu>,
    pub(crate) sentences: Vec<String>,
}

/// A vCPU's row.
pub(crate) struct ShownVcpu {
    pub(crate) name: String,
    pub(crate) cells: Vec<String>,
}

pub(crate) fn shown(check: &ReplayCheck, confidence: Option<&Confidence>) -> Shown {
    let row = |vcpu: &VcpuCheck| ShownVcpu {
        name: vcpu.name.clone(),
        cells: cells(vcpu),
    };
    Shown {
        heading: heading(check),
        rows: check.vcpus.iter().take(VCPUS_SHOWN).map(row).collect(),
        sentences: confident(check, confidence),
    }
}

/// The check in words, with how far to trust what-ifs, if that is not stated elsewhere.
fn confident(check: &ReplayCheck, confidence: Option<&Confidence>) -> Vec<String> {
    let mut all = sentences(check);
    all.extend(confidence.map(Confidence::sentence));
    all
}

/// Run, ready and switches: recorded, replayed and error of each.
fn cells(vcpu: &VcpuCheck) -> Vec<String> {
    [vcpu.run_s, vcpu.ready_s, vcpu.switches]
        .into_iter()
        .flat_map(three)
        .collect()
}

fn heading(check: &ReplayCheck) -> String {
    let origin = match check.scheduler_is_recorded {
        true => "the recorded host's own scheduler".to_string(),
        false => format!("assumed: {}; --recorded-under names it", unknown(check)),
    };
    format!(
        "Replay under {} ({origin}):\nrecorded→replayed, error",
        check.scheduler
    )
}

/// Why it is not known which scheduler the host ran under when it was recorded.
pub(crate) fn unknown(check: &ReplayCheck) -> String {
    match check.recorded_scheduler.as_deref() {
        Some("corun") => {
            "recorded under corun, with a policy that the recording does not name".to_string()
        }
        Some(name) => format!("recorded under {name:?}, which has no model"),
        None => "the recording does not name its scheduler".to_string(),
    }
}

/// The check in words: errors of all vCPUs together, stacking, what recordings cannot tell.
pub fn sentences(check: &ReplayCheck) -> Vec<String> {
    let error = |error: Option<f64>| error.map_or_else(|| "none recorded".to_string(), percent);
    let mut sentences = vec![
        format!(
            "Error over all vCPUs: run {}, ready {}, switches {}.",
            error(check.run_error),
            error(check.ready_error),
            error(check.switches_error)
        ),
        match check.ready_error {
            Some(ready) => format!(
                "Ready times under different policies that differ by less than {} of themselves say nothing: \
                 that is the replay's own error.",
                percent(ready).trim_start_matches('<')
            ),
            None => "No vCPU was ready in the recording: what ready times of replays are worth is not known."
                .to_string(),
        },
        format!(
            "Stacked {} of runqueue time as recorded, {} replayed.",
            percent(check.stacking_probability.recorded),
            percent(check.stacking_probability.replayed)
        ),
    ];
    sentences.extend(check.notes.iter().map(|note| format!("Note: {note}")));
    sentences
}

fn table(check: &ReplayCheck, width: u16) -> Table {
    let mut table = ruled(width);
    let mut header = vec![Cell::new("vCPU")];
    header.extend(["run, s", "ready, s", "switches"].map(right));
    table.set_header(header);
    for vcpu in check.vcpus.iter().take(VCPUS_SHOWN) {
        let mut row = vec![Cell::new(&vcpu.name)];
        for beside in [vcpu.run_s, vcpu.ready_s, vcpu.switches] {
            let [recorded, replayed, error] = three(beside);
            row.push(right(format!(
                "{recorded}→{replayed} {}",
                figure(&format!("{error:>7}"))
            )));
        }
        table.add_row(row);
    }
    table
}

/// Recorded, replayed, relative error with its sign.
fn three(beside: Beside) -> [String; 3] {
    let error = match beside.recorded {
        0.0 if beside.replayed == 0.0 => "0 %".to_string(),
        0.0 => "new".to_string(),
        recorded => format!("{:+.1} %", (beside.replayed - recorded) / recorded * 100.0),
    };
    [amount(beside.recorded), amount(beside.replayed), error]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_errors_side_by_side() {
        let check = ReplayCheck {
            scheduler: "eevdf".to_string(),
            scheduler_is_recorded: true,
            run_error: Some(0.05),
            ready_error: None,
            vcpus: vec![VcpuCheck {
                name: "vm1/0".to_string(),
                run_s: Beside {
                    recorded: 2.0,
                    replayed: 2.1,
                },
                ready_s: Beside {
                    recorded: 0.0,
                    replayed: 0.3,
                },
                switches: Beside::default(),
            }],
            ..ReplayCheck::default()
        };
        let text = text(&check, None, 80);
        for part in [
            "own scheduler",
            "2.10",
            "2.00→2.10  +5.0 %",
            "new",
            "run 5.0 %",
            "none recorded",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
