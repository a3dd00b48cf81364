// SPDX-License-Identifier: GPL-2.0-only
//! Advice for a terminal: the answer first, then the evidence.

use super::{Advice, Open, Overcommit, PolicyAdvice, Range, Verdict, VmAdvice};
use crate::format::{amount, micros, percent};
use crate::layout::{figure, lines, right, ruled, sentence, unbroken};
use crate::replay;
use comfy_table::{Cell, Table};
use corun_model::counted;

/// VMs shown; the rest is in `--json`.
const VMS_SHOWN: usize = 16;
/// Columns below which there is room for less.
const NARROW: u16 = 76;

/// The advice as text for a terminal of `width` columns.
pub fn text(advice: &Advice, width: u16) -> String {
    let mut out = String::new();
    for text in &advice.summary {
        out += &sentence(&format!("• {text}"), width);
    }
    out += &sentence(&advice.confidence.sentence(), width);
    out += "\nPolicies, the least waiting first\n";
    out += &lines(policies(advice, width));
    let kernels = advice.kernels();
    if !kernels.is_empty() {
        out += &sentence(&kernels, width);
    }
    out += "\nReady time of each VM\n";
    out += &vms(advice, width, |vm| {
        let ready = vm.ready_share;
        format!("{} {}", share(ready.median), ends(&ready))
    });
    out += "\nWork of each VM, s/s\n";
    out += &vms(advice, width, |vm| {
        let said = match vm.work_verdict {
            Verdict::Better => "more ",
            Verdict::Worse => "less ",
            Verdict::Own | Verdict::Same => "",
        };
        let Range {
            median,
            least,
            most,
        } = vm.work;
        format!(
            "{said}{} ({}–{})",
            amount(median),
            amount(least),
            amount(most)
        )
    });
    out += "\nWaits of each VM for a pCPU, 99th percentile\n";
    out += &vms(advice, width, |vm| {
        let said = if vm.waits_multiply { "longer " } else { "" };
        said.to_string() + &figure(&micros(vm.ready_wait_p99_us.median))
    });
    for overcommit in &advice.overcommit {
        out += &format!(
            "\nMore VMs under {}, target {}\n",
            overcommit.policy,
            percent(overcommit.target)
        );
        out += &lines(steps(overcommit, width));
    }
    for open in &advice.open {
        out.push('\n');
        out += &sentence(&format!("Not known: {}", open.question), width);
        out += &lines(answers(open, width));
    }
    out.push('\n');
    for text in replay::sentences(&advice.replay) {
        out += &sentence(&text, width);
    }
    if !advice.next.is_empty() {
        out += "\nTo go on\n";
    }
    for step in &advice.next {
        // A command is copied: it stays one line.
        out += &sentence(&format!("• {}:", step.what), width);
        out += &format!("  {}\n", step.command);
    }
    out
}

/// A share as one word.
fn share(value: f64) -> String {
    figure(&percent(value))
}

fn table(header: &[&str], width: u16) -> Table {
    let mut table = ruled(width);
    table.set_header(
        header
            .iter()
            .enumerate()
            .map(|(at, &text)| aligned(at, text)),
    );
    table
}

/// Names to the left, numbers to the right.
fn aligned(column: usize, text: &str) -> Cell {
    match column {
        0 => Cell::new(text),
        _ => right(text),
    }
}

fn policies(advice: &Advice, width: u16) -> Table {
    let header = ["", "ready", "(range)", "work, s/s", "fairness", "waiting"];
    // Without the range there is room for names.
    let narrow = width < NARROW;
    let kept = |at: &usize| !(narrow && *at == 2);
    let header: Vec<&str> = (0..header.len())
        .filter(kept)
        .map(|at| header[at])
        .collect();
    let mut table = table(&header, width);
    for policy in &advice.policies {
        let cells = [
            policy.policy.clone(),
            share(policy.ready_share.median),
            ends(&policy.ready_share),
            amount(policy.work.median),
            format!("{:.3}", policy.fairness.median),
            advice.said(policy).to_string(),
        ];
        let cells = (0..cells.len())
            .filter(kept)
            .map(|at| aligned(at, &cells[at]));
        table.add_row(cells);
    }
    for one in &advice.left_out {
        let cells = [&one.policy, "–", "", "–", "–", "left out"];
        let kept = (0..cells.len()).filter(kept);
        table.add_row(kept.map(|at| aligned(at, cells[at])));
    }
    let left_out = advice.left_out.iter().map(|one| one.policy.as_str());
    let tried = advice.policies.iter().map(|p| p.policy.as_str());
    unbroken(&mut table, 0, longest(tried.chain(left_out)), width);
    table
}

fn longest<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0)
}

fn ends(range: &Range) -> String {
    format!("({:.1}–{:.1})", range.least * 100.0, range.most * 100.0)
}

/// The host's own scheduler, the policy compared with it, and the best others, as many as there is room for.
fn shown(advice: &Advice, width: u16) -> Vec<&PolicyAdvice> {
    let most = if width < NARROW { 1 } else { 2 };
    let rival = advice.rival().map(|rival| rival.policy.as_str());
    let other = |policy: &&PolicyAdvice| {
        policy.verdict != Verdict::Own && Some(policy.policy.as_str()) != rival
    };
    let others = advice.policies.iter().filter(other);
    let others = advice.rival().into_iter().chain(others).take(most);
    advice.own().into_iter().chain(others).collect()
}

/// VM by VM, the text of `cell` under each policy.
fn vms(advice: &Advice, width: u16, cell: impl Fn(&VmAdvice) -> String) -> String {
    let shown = shown(advice, width);
    let mut header = vec!["", "vCPUs"];
    header.extend(shown.iter().map(|policy| policy.policy.as_str()));
    let mut table = table(&header, width);
    let Some(first) = shown.first() else {
        return String::new();
    };
    for (at, vm) in first.vms.iter().enumerate().take(VMS_SHOWN) {
        let mut cells = vec![vm.name.clone(), vm.vcpus.to_string()];
        let of = shown.iter().map(|policy| policy.vms.get(at));
        cells.extend(of.map(|vm| vm.map_or_else(String::new, &cell)));
        table.add_row(cells.iter().enumerate().map(|(at, text)| aligned(at, text)));
    }
    let mut out = lines(table);
    if first.vms.len() > VMS_SHOWN {
        out += &format!(
            "… and {}: see --json\n",
            counted(first.vms.len() - VMS_SHOWN, "more VM")
        );
    }
    out
}

fn steps(overcommit: &Overcommit, width: u16) -> Table {
    let mut table = table(
        &["added", "vCPUs per pCPU", "worst VM", "its ready time", ""],
        width,
    );
    for step in &overcommit.steps {
        let ready = &step.worst_ready_share;
        let above = ready.median > overcommit.target;
        let cells = [
            step.added.clone().unwrap_or_else(|| "–".to_string()),
            amount(step.vcpus_per_pcpu),
            step.worst_vm.clone(),
            format!("{} {}", share(ready.median), ends(ready)),
            if above { "above" } else { "" }.to_string(),
        ];
        table.add_row(cells.iter().enumerate().map(|(at, text)| aligned(at, text)));
    }
    table
}

fn answers(open: &Open, width: u16) -> Table {
    let first = open.answers.first();
    let named = first.map_or(&[][..], |answer| &answer.policies[..]);
    let mut header = vec!["if"];
    header.extend(named.iter().map(|it| it.policy.as_str()));
    let mut table = table(&header, width);
    for answer in &open.answers {
        let mut cells = vec![answer.assumed.clone()];
        let ready = answer.policies.iter().map(|it| it.ready_share);
        cells.extend(ready.map(|ready| format!("{} {}", share(ready.median), ends(&ready))));
        table.add_row(cells.iter().enumerate().map(|(at, text)| aligned(at, text)));
    }
    table
}
