// SPDX-License-Identifier: GPL-2.0-only
//! The comparison as tables: one per case, measures down, policies across. The same rows make the
//! terminal's tables and those of the HTML report.

use crate::format::{amount, micros, percent, ratio};
use crate::kinds;
use crate::layout::{BOUND, Room, across, figure, is_narrow, lines, right, spanning, text_width};
use crate::results::{
    AgentResult, ClientResult, Comparison, DiskResult, HostResult, IoResult, Recognised, Run,
    SiblingResult, TaskResult, VmResult,
};
use crate::summary::{self, Spread};
use comfy_table::{Cell, Table};
use corun_model::counted;

/// VMs shown in a table; the rest is in `--json`.
const VMS_SHOWN: usize = 16;
/// Clients and channels shown in a table; the rest is in `--json`.
const CLIENTS_SHOWN: usize = 16;
/// How many VMs and clients are shown by themselves.
const SHOWN: [usize; 2] = [VMS_SHOWN, CLIENTS_SHOWN];
/// Characters of a measure on one line of a narrow terminal.
const MEASURE: usize = 18;
/// Host tasks shown in a table; the rest is in `--json`.
const TASKS_SHOWN: usize = 16;

/// The least share that has a digit as a percentage.
const SEEN: f64 = 0.0005;

/// A measure of a host or a VM under every policy.
pub(crate) struct Row {
    /// `host` or the VM's name; empty where it is that of the row above.
    pub(crate) of: String,
    /// What is measured.
    pub(crate) measure: String,
    /// Per policy: the value, and how it compares with the first policy's.
    pub(crate) cells: Vec<(String, Option<String>)>,
}

impl Row {
    /// What a terminal's table shows for a policy.
    fn cell(&self, at: usize) -> String {
        match &self.cells[at] {
            (value, Some(ratio)) => format!("{} {ratio:>6}", figure(value)),
            (value, None) => figure(value),
        }
    }
}

/// How a client's count is read.
type Count = fn(&ClientResult) -> f64;

/// How a measure is written.
type Show = fn(f64) -> String;

/// The tables for a terminal of `width` columns.
pub fn text(comparison: &Comparison, width: u16) -> String {
    let mut out = String::new();
    let kernels = kernels(comparison);
    let filled = |text: &str| textwrap::fill(text, text_width(width)) + "\n";
    for (at, case) in comparison.cases().into_iter().enumerate() {
        let policies = comparison.policies(case);
        let rows = rows(comparison, case);
        if !case.is_empty() {
            out += &format!("{case}\n");
        }
        for columns in columns(&rows, &policies, width) {
            out += &lines(one(&rows, &policies, &columns, width));
        }
        for more in left_out(comparison, case) {
            out += &format!("… and {more}: see --json\n");
        }
        if kinds::any(&runs(comparison, case), SHOWN) {
            out += &filled(
                "VMs whose names differ in their number only are together: numbers are means over them; each VM: \
                 --json or --csv.",
            );
        }
        if let Some(models) = kernels.get(at).filter(|models| !models.is_empty()) {
            out += &filled(models);
        }
    }
    if let Some(seeds) = summary::seeds(comparison) {
        out += &format!("Median over {seeds}, ± half of the range.\n");
    }
    out
}

/// What each case's policies model; where that is the same for all, it is stated for the last one only.
pub(crate) fn kernels(comparison: &Comparison) -> Vec<String> {
    let cases = comparison.cases().into_iter();
    let of = |case| summary::kernels(comparison.runs.iter().filter(|run| run.case == case));
    let mut all: Vec<String> = cases.map(of).collect();
    for at in 1..all.len() {
        if all[at - 1] == all[at] {
            all[at - 1].clear();
        }
    }
    all
}

/// Which policies go into which table, given the widths of rows and names.
fn columns(rows: &[Row], policies: &[&str], width: u16) -> Vec<Vec<usize>> {
    let mut labels = vec![Room::of(rows.iter().map(|row| &row.measure))];
    if !is_narrow(width) {
        labels.push(Room::of(rows.iter().map(|row| &row.of)));
    }
    let policy = |(at, name): (usize, &&str)| {
        let cells = rows.iter().map(|row| row.cell(at));
        Room::of(cells.chain([name.to_string()]))
    };
    let policies: Vec<Room> = policies.iter().enumerate().map(policy).collect();
    across(&labels, &policies, width)
}

/// The table of these columns; on narrow terminals hosts and VMs have lines of their own above their rows.
fn one(rows: &[Row], policies: &[&str], columns: &[usize], width: u16) -> Table {
    let mut table = spanning(width);
    let above = is_narrow(width);
    let mut header = vec![Cell::new(""); if above { 1 } else { 2 }];
    header.extend(columns.iter().map(|&at| right(policies[at])));
    table.set_header(header);
    // The first row present says whose rows these are.
    let mut of = "";
    for row in rows {
        if !row.of.is_empty() {
            of = &row.of;
        }
        if columns.iter().all(|&at| row.cells[at].0 == NOTHING) {
            continue;
        }
        let of = std::mem::take(&mut of);
        if above && !of.is_empty() {
            table.add_row([of]);
        }
        let mut cells = match above {
            true => vec![Cell::new(below(&row.measure))],
            false => vec![Cell::new(of), Cell::new(&row.measure)],
        };
        cells.extend(columns.iter().map(|&at| right(row.cell(at))));
        table.add_row(cells);
    }
    table
}

/// A measure below the name it belongs to, a little to the right; a long one breaks before its unit.
fn below(measure: &str) -> String {
    let text = format!("{BOUND}{measure}");
    match text.chars().count() > MEASURE {
        true => text.replace(", ", &format!(",\n{BOUND}{BOUND}")),
        false => text,
    }
}

/// What the tables of a case do not show: `3 more VMs`.
pub(crate) fn left_out(comparison: &Comparison, case: &str) -> Vec<String> {
    let Some(run) = comparison.runs.iter().find(|run| run.case == case) else {
        return Vec::new();
    };
    let tasks = tasks(comparison, run).len();
    let all = [
        (
            kinds::beyond(&kinds::vms(run, VMS_SHOWN), VMS_SHOWN),
            "more VM",
        ),
        (tasks.saturating_sub(TASKS_SHOWN), "more task"),
        (
            kinds::beyond(&kinds::clients(run, CLIENTS_SHOWN), CLIENTS_SHOWN),
            "more client",
        ),
    ];
    all.into_iter()
        .filter(|(beyond, _)| *beyond > 0)
        .map(|(beyond, what)| counted(beyond, what))
        .collect()
}

/// The runs of a case, policy by policy.
fn runs<'a>(comparison: &'a Comparison, case: &str) -> Vec<Vec<&'a Run>> {
    let policies = comparison.policies(case);
    let of = |policy: &&str| comparison.of(case, policy);
    policies.iter().map(of).collect()
}

/// The host tasks that tables show: those that a scenario names. A recording has every thread of the host, hundreds
/// that nobody asks about.
fn tasks<'a>(comparison: &Comparison, run: &'a Run) -> &'a [TaskResult] {
    match comparison.replay {
        Some(_) => &[],
        None => &run.tasks,
    }
}

/// All rows of a case; if there are many VMs, one for those of a kind.
pub(crate) fn rows(comparison: &Comparison, case: &str) -> Vec<Row> {
    let all = runs(comparison, case);
    let together = kinds::together(&all, SHOWN);
    let runs = kinds::shown(together.as_ref(), &all);
    let mut rows = host_rows(&runs);
    let first = runs.first().and_then(|runs| runs.first());
    let vms = first.map_or(&[][..], |run| &run.vms[..]);
    for (index, vm) in vms.iter().enumerate().take(VMS_SHOWN) {
        let mut of_vm = vm_rows(&runs, index, vm);
        if let Some(row) = of_vm.first_mut() {
            row.of.clone_from(&vm.name);
        }
        rows.extend(of_vm);
    }
    let tasks = first.map_or(&[][..], |run| tasks(comparison, run));
    for (index, task) in tasks.iter().enumerate().take(TASKS_SHOWN) {
        rows.extend(task_rows(&runs, index, task));
    }
    let disks = first.map_or(&[][..], |run| &run.disks[..]);
    for (index, disk) in disks.iter().enumerate() {
        rows.extend(disk_rows(&runs, index, disk));
    }
    let clients = first.map_or(&[][..], |run| &run.clients[..]);
    for (index, client) in clients.iter().enumerate().take(CLIENTS_SHOWN) {
        let mut of_client = client_rows(&runs, index);
        if let Some(row) = of_client.first_mut() {
            row.of = format!("{} ({})", client.name, client.kind);
        }
        rows.extend(of_client);
    }
    rows
}

fn host_rows(runs: &[Vec<&Run>]) -> Vec<Row> {
    let host = |measure: &str, show: Show, of: fn(&HostResult) -> Option<f64>| {
        row(runs, measure, show, move |run| of(&run.host))
    };
    let mut rows = vec![
        host("stacked", percent, |host| Some(host.stacking_probability)),
        host("vCPU switches/s", amount, |host| {
            Some(host.vcpu_switches_per_s)
        }),
        host("switches/s", amount, |host| Some(host.switches_per_s)),
        plain(host("idle", percent, |host| Some(host.idle_share))),
    ];
    if runs.iter().flatten().any(|run| run.policy == "vsmtio") {
        let between = host("between vCPUs/s", amount, |host| {
            Some(host.switches_between_vcpus_per_s)
        });
        rows.insert(rows.len() - 1, between);
    }
    rows.extend(worth_showing(host("lock wait, mean", micros, |host| {
        host.lock_wait_mean_us
    })));
    if let Some(row) = rows.first_mut() {
        row.of = "host".to_string();
    }
    rows
}

fn vm_rows(runs: &[Vec<&Run>], index: usize, vm: &VmResult) -> Vec<Row> {
    let measure = |measure: &str, show: Show, of: fn(&VmResult) -> Option<f64>| {
        row(runs, measure, show, move |run| of(run.vms.get(index)?))
    };
    let throughput = format!("throughput, {}", vm.throughput_unit);
    let mut rows = vec![measure(&throughput, amount, |vm| Some(vm.throughput))];
    rows.extend(vm.other_throughputs.keys().map(|unit| {
        let rate = |run: &Run| run.vms.get(index)?.other_throughputs.get(unit).copied();
        row(runs, &format!("throughput, {unit}"), amount, rate)
    }));
    let share = |what: &str, of: fn(&VmResult) -> Option<f64>| plain(measure(what, percent, of));
    rows.push(share("utilisation (run)", |vm| Some(vm.utilisation)));
    rows.push(share("ready", |vm| Some(vm.ready_share)));
    rows.push(share("wait", |vm| Some(vm.wait_share)));
    rows.extend(unused_rows(runs, index));
    let waits = [
        measure("ready wait, p50", micros, |vm| vm.ready_wait_p50_us),
        measure("ready wait, p99", micros, |vm| vm.ready_wait_p99_us),
        measure("lock wait, p50", micros, |vm| vm.lock_wait_p50_us),
        measure("lock wait, p99", micros, |vm| vm.lock_wait_p99_us),
    ];
    rows.extend(waits.into_iter().filter_map(worth_showing));
    if beside(runs, &["cosched"]) {
        rows.extend(
            sibling_rows(runs, index)
                .into_iter()
                .filter_map(worth_showing),
        );
    }
    if beside(runs, &SLICING) {
        rows.extend(
            slice_rows(runs, index)
                .into_iter()
                .filter_map(worth_showing),
        );
    }
    rows.extend(io_rows(runs, index).into_iter().filter_map(worth_showing));
    rows.extend(
        agent_rows(runs, index)
            .into_iter()
            .filter_map(worth_showing),
    );
    rows
}

/// On pCPUs with nothing to do; and, where a policy divides cores, on which of their hardware threads.
fn unused_rows(runs: &[Vec<&Run>], index: usize) -> Vec<Row> {
    let share = |measure: &str, of: fn(&VmResult) -> f64| {
        let share = move |run: &Run| Some(of(run.vms.get(index)?));
        let mut all = runs.iter().flatten().filter_map(|run| share(run));
        let seen = all.any(|share| share >= SEEN);
        seen.then(|| plain(row(runs, measure, percent, share)))
    };
    let mut rows = vec![
        share("spun", |vm| {
            vm.kernel.as_ref().map_or(0.0, |it| it.spin_share)
        }),
        share("polled", |vm| vm.polled_share),
        share("retained", |vm| vm.retained_share),
    ];
    if runs.iter().flatten().any(|run| run.policy == "vsmtio") {
        rows.extend([
            share("on second threads", |vm| vm.second_share),
            share("on second, retained", |vm| vm.second_retained_share),
            share("lent", |vm| vm.lent_share),
        ]);
    }
    rows.into_iter().flatten().collect()
}

/// Is one of these policies compared, corun's own or the same done to another scheduler (`cfs-…`, `credit-…`)?
fn beside(runs: &[Vec<&Run>], policies: &[&str]) -> bool {
    let mut all = runs.iter().flatten();
    all.any(|run| policies.iter().any(|name| run.policy.contains(name)))
}

/// Policies that are about slices.
const SLICING: [&str; 4] = ["aql", "vslicer", "vturbo", "microsliced"];

/// How long turns are, and what vCPUs were taken for.
fn slice_rows(runs: &[Vec<&Run>], index: usize) -> [Row; 8] {
    let turn = |measure: &str, of: fn(&VmResult) -> Option<f64>| {
        row(runs, measure, micros, move |run| of(run.vms.get(index)?))
    };
    let taken = |what: &str, of: fn(&Recognised) -> f64| {
        let share = move |run: &Run| Some(of(run.vms.get(index)?.recognised.as_ref()?));
        plain(row(runs, what, percent, move |run| {
            share(run).filter(|share| *share > 0.0)
        }))
    };
    [
        turn("turn, p50", |vm| vm.turn_p50_us),
        turn("turn, p99", |vm| vm.turn_p99_us),
        taken("taken for IOInt", |it| it.ioint),
        taken("taken for ConSpin", |it| it.conspin),
        taken("taken for LLCF", |it| it.llcf),
        taken("taken for LLCO", |it| it.llco),
        taken("taken for LoLCF", |it| it.lolcf),
        plain(row(runs, "pool changes/s", amount, move |run| {
            Some(run.vms.get(index)?.recognised.as_ref()?.pool_changes_per_s)
        })),
    ]
}

/// How far siblings ran apart: shown where co-scheduling is among what is compared.
fn sibling_rows(runs: &[Vec<&Run>], index: usize) -> [Row; 6] {
    let measure = |measure: &str, show: Show, of: fn(&SiblingResult) -> Option<f64>| {
        let of = move |run: &Run| of(run.vms.get(index)?.siblings.as_ref()?);
        row(runs, measure, show, of)
    };
    let share =
        |what: &str, of: fn(&SiblingResult) -> Option<f64>| plain(measure(what, percent, of));
    [
        measure("co-start skew, mean", micros, |it| it.co_start_skew_mean_us),
        measure("co-start skew, p99", micros, |it| it.co_start_skew_p99_us),
        share("never co-started", |it| it.co_start_never_share),
        share("co-run", |it| it.co_run_share),
        measure("progress skew, max", micros, |it| it.progress_skew_max_us),
        // Policies that hold nobody back have none: no row full of zeros.
        share("co-stop", |it| {
            Some(it.co_stop_share).filter(|share| *share > 0.0)
        }),
    ]
}

fn io_rows(runs: &[Vec<&Run>], index: usize) -> [Row; 5] {
    let measure = |measure: &str, show: Show, of: fn(&IoResult) -> Option<f64>| {
        let of = move |run: &Run| of(run.vms.get(index)?.io.as_ref()?);
        row(runs, measure, show, of)
    };
    [
        measure("I/O, operations/s", amount, |io| Some(io.operations_per_s)),
        measure("I/O, MB/s", amount, |io| Some(io.bytes_per_s / 1e6)),
        measure("I/O wait, p50", micros, |io| io.wait_p50_us),
        measure("I/O wait, p99", micros, |io| io.wait_p99_us),
        plain(measure("I/O inactivity", percent, |io| {
            Some(io.inactivity_share)
        })),
    ]
}

fn agent_rows(runs: &[Vec<&Run>], index: usize) -> [Row; 5] {
    let measure = |measure: &str, show: Show, of: fn(&AgentResult) -> Option<f64>| {
        let of = move |run: &Run| of(run.vms.get(index)?.agent.as_ref()?);
        row(runs, measure, show, of)
    };
    let share = |what: &str, of: fn(&AgentResult) -> Option<f64>| plain(measure(what, percent, of));
    [
        measure("task moves/s", amount, |it| Some(it.migrations_per_s)),
        measure("task moves/s, pulls", amount, |it| Some(it.pulls_per_s)),
        measure("cost of a move", micros, |it| it.migration_cost_mean_us),
        share("agent's own time", |it| Some(it.work_share)),
        share("ballooned", |it| Some(it.ballooned_share)),
    ]
}

/// Where a host task's time went.
fn task_rows(runs: &[Vec<&Run>], index: usize, task: &TaskResult) -> [Row; 3] {
    let share = |measure: &str, of: fn(&TaskResult) -> f64| {
        let share = move |run: &Run| Some(of(run.tasks.get(index)?));
        plain(row(runs, measure, percent, share))
    };
    let mut rows = [
        share("run", |task| task.run_share),
        share("ready", |task| task.ready_share),
        share("wait", |task| task.wait_share),
    ];
    rows[0].of = format!("{} (task)", task.name);
    rows
}

/// A disk's rows, in the order of the scenario.
fn disk_rows(runs: &[Vec<&Run>], index: usize, disk: &DiskResult) -> Vec<Row> {
    let measure = |measure: &str, show: Show, of: fn(&DiskResult) -> f64| {
        row(runs, measure, show, move |run| {
            Some(of(run.disks.get(index)?))
        })
    };
    let mut rows = vec![
        measure("MB/s", amount, |disk| disk.bytes_per_s / 1e6),
        plain(measure("busy", percent, |disk| disk.utilisation)),
        plain(measure("anticipating", percent, |disk| {
            disk.anticipation_share
        })),
        measure("seeks/s", amount, |disk| disk.seeks_per_s),
    ];
    if let Some(row) = rows.first_mut() {
        row.of.clone_from(&disk.name);
    }
    rows
}

fn client_rows(runs: &[Vec<&Run>], index: usize) -> Vec<Row> {
    let measure = |measure: &str, show: Show, of: fn(&ClientResult) -> Option<f64>| {
        row(runs, measure, show, move |run| {
            of(run.clients.get(index)?)
        })
    };
    let rows = [
        measure("replies/s", amount, |client| client.replies_per_s),
        measure("response, p50", micros, |client| client.response_p50_us),
        measure("response, p95", micros, |client| client.response_p95_us),
        measure("response, p99", micros, |client| client.response_p99_us),
        measure("response, max", micros, |client| client.response_max_us),
    ];
    let mut rows: Vec<Row> = rows.into_iter().filter_map(worth_showing).collect();
    let counts: [(&str, Count); 3] = [
        ("given up or lost", |client| client.timeouts as f64),
        ("retransmissions", |client| client.retransmissions as f64),
        ("MB/s", |client| client.bytes_per_s / 1e6),
    ];
    for (what, of) in counts {
        let clients = runs
            .iter()
            .flatten()
            .filter_map(|run| run.clients.get(index));
        if clients.map(of).any(|value| value > 0.0) {
            let of = move |run: &Run| run.clients.get(index).map(of);
            rows.push(row(runs, what, amount, of));
        }
    }
    rows
}

/// Without comparison: shares can be compared by looking at them.
fn plain(mut row: Row) -> Row {
    row.cells.iter_mut().for_each(|cell| cell.1 = None);
    row
}

/// The row, unless nothing was measured.
fn worth_showing(row: Row) -> Option<Row> {
    row.cells
        .iter()
        .any(|(value, _)| value != NOTHING)
        .then_some(row)
}

const NOTHING: &str = "–";

fn row(runs: &[Vec<&Run>], measure: &str, show: Show, of: impl Fn(&Run) -> Option<f64>) -> Row {
    let spreads: Vec<_> = runs
        .iter()
        .map(|runs| Spread::of(runs.iter().filter_map(|run| of(run))))
        .collect();
    let reference = spreads.first().copied().flatten();
    let cell = |(at, spread): (usize, &Option<Spread>)| match spread {
        None => (NOTHING.to_string(), None),
        Some(spread) => {
            let base = reference.filter(|base| at > 0 && base.median > 0.0);
            let compared = base.map(|base| ratio(spread.median / base.median));
            (shown(spread, show), compared)
        }
    };
    Row {
        of: String::new(),
        measure: measure.to_string(),
        cells: spreads.iter().enumerate().map(cell).collect(),
    }
}

fn shown(spread: &Spread, show: Show) -> String {
    // Below three digits the spread cannot be seen.
    match spread.half_range > spread.median.abs() * 5e-4 {
        true => format!("{} ±{}", show(spread.median), show(spread.half_range)),
        false => show(spread.median),
    }
}
