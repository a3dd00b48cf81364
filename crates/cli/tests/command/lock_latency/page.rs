// SPDX-License-Identifier: GPL-2.0-only
//! Writes `docs/lock-latency.md`.

use super::locks::CASES;
use super::rotation::Seen;
use super::{ANY_TIME_RUNS, BALANCE_RUNS, CFS_RUNS, IN_STEP_RUNS, QUEUES, in_slots};
use corun_policies::analysis::lock_latency::{Period, Setting, equations};
use corun_policies::analysis::placements::{enumerate, out_of_step};
use std::fmt::Write;

const HEAD: &str = "\
<!-- SPDX-License-Identifier: GPL-2.0-only -->
<!-- Written by `CORUN_UPDATE=1 cargo test -p corun --test command lock_latency`; the test compares it with the runs. -->
# Lock latency: the analytic model, worked out and simulated

Sukwong and Kim (EuroSys 2011, §4.4 and Appendix A) calculate how long a vCPU waits for a lock whose holder was
preempted. In their model, each of C runqueues has R tasks that take turns of one slice, and all runqueues are in
step. vCPUs are in random places, but under balance scheduling never all in one runqueue. Here their equations are
compared with a count of all placements, and both with runs of the simulator. The formulas are in
`crates/policies/src/analysis`, the runs in `crates/cli/tests/command/lock_latency`.

";

const READINGS: &str = "
## The equations

In the text at hand the equations are damaged, so what is computed is a reading of them; and `T_P` is not defined. It
is either a runqueue's period, R slices, or one slice. Two vCPUs, four pCPUs, a lock of 1 µs, CFS's slices of 5/R ms;
*counted* is the mean over all placements, one by one. Latencies are in ms; *gain* is how much lower the latency is
under balance scheduling than under CFS.

";

const DIFFERENCES: &str = "
The paper says \"more than 14.4 %\" for four pCPUs and fewer than six tasks, and that the latency grows with the
runqueue. With `T_P` a period, only R = 2 has more than 14.4 %. With a slice all four have, but then the latency does
not grow, because slices shrink (with constant slices it does). Counting shows which parts of the reading describe the
model:

- stacked: exactly, with `T_P` a period. A vCPU that comes before the holder waits for its own next turn, so a slice
  is not what the model says;
- apart, before the holder: exactly;
- apart, at the same time: the equation has half of `T_H`/R, which is next to nothing;
- apart, after the holder: the equation has 1/(C − 1) of the count. In the reading, this term makes the latency under
  balance scheduling fall with more pCPUs. In the count it does not fall; only CFS's does, because stacking becomes
  rarer, which is the reason that the paper gives.

Counted, the gain is 12.5 % at most. We know no reading of the text that gives 14.4 %. With more than two vCPUs, the
reading and the count agree only in the probability of stacking.

";

const SIMULATED: &str = "
## Simulated

All tasks compute, each bound to a pCPU drawn at random, in random order (200 placements), under CFS with 5 ms and 1
ms as stated in the paper and ticks of 1 kHz; switches cost nothing. A vCPU that spins and one that holds a lock both
just want a pCPU, so the lock is added to the runs afterwards: at each beginning of a turn one vCPU has it and the
other one wants it. *In step*: all tasks start at once. *Out of step*: each starts at its own time, and ticks are
skewed. Then runqueues overlap, a waiter that runs when the holder comes gets the lock within a slice, and another
count applies. Four pCPUs, latencies in slices; tolerance, set before the first run: a tenth of a period.

";

const UNBOUND: &str = "
In the next table tasks are unbound, as in the paper. They start within 50 ms and are left to CFS, or to corun's
dispatcher with balance scheduling and slices of 5/R ms (60 runs each). CFS's runqueues become equally long, but which
tasks are on them is nearly left to chance. *Chance* is the model's probability of stacking.

";

const LOCKS: &str = "
## With a guest's locks

[`appendix-a.toml`](../experiments/balance/appendix-a.toml): two vCPUs of a guest that take a ticket lock for 1 µs
after every 100 µs, among hogs; medians over five seeds, lowest and highest in brackets. Of the four runqueues 25 %
are stacked if both vCPUs share one all the time. Waits last up to a period (under CFS slices end at ticks, so that
periods are 6, 6, 8 and 10 ms) plus the rest of the slice in which the vCPU came to the lock. Where even the median is
a period, each vCPU finds the lock holder preempted, turn after turn. This convoy takes most of the throughput, and
the model, whose lock holder is preempted once, cannot show it. With five seeds, chance decides which setting falls
into it.

";

fn table(text: &mut String, heads: &[&str], rows: Vec<Vec<String>>) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    *text += &line(&heads.iter().map(ToString::to_string).collect::<Vec<_>>());
    *text += &line(&vec!["---".to_string(); heads.len()]);
    rows.iter().for_each(|row| *text += &line(row));
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// With three digits.
fn digits(value: f64) -> String {
    let places = (2 - libm::log10(value.abs().max(1e-9)).floor() as i32).clamp(0, 3) as usize;
    format!("{value:.places$}")
}

/// The middle of sorted values, and the outer ones where they differ.
fn spread(values: &[f64]) -> String {
    let (low, high) = (values[0], values[values.len() - 1]);
    let middle = digits(values[values.len() / 2]);
    match digits(low) == digits(high) {
        true => middle,
        false => format!("{middle} ({}–{})", digits(low), digits(high)),
    }
}

fn readings() -> Vec<Vec<String>> {
    let row = |queue: u32| {
        let setting = Setting::figure_4(4, queue);
        let all = [
            equations(&setting, Period::Runqueue),
            equations(&setting, Period::Slice),
            enumerate(&setting),
        ];
        let mut row = vec![queue.to_string(), percent(all[0].stacking)];
        for expected in all {
            let times = [expected.default_scheduler(), expected.balance];
            row.extend(times.map(|time| digits(time / 1e6)));
            row.push(percent(expected.improvement()));
        }
        row
    };
    (1..=5).map(row).collect()
}

fn bound() -> Vec<Vec<String>> {
    let runs = QUEUES
        .into_iter()
        .zip(IN_STEP_RUNS.iter().zip(&*ANY_TIME_RUNS));
    let row = |(queue, (step, any)): (u32, (&Seen, &Seen))| {
        let expected = in_slots(4, queue);
        vec![
            queue.to_string(),
            digits(expected.stacked),
            digits(step.stacked),
            digits(expected.balance),
            digits(step.apart),
            digits(out_of_step(queue)),
            digits(any.apart),
        ]
    };
    runs.map(row).collect()
}

fn unbound() -> Vec<Vec<String>> {
    let runs = QUEUES.into_iter().zip(CFS_RUNS.iter().zip(&*BALANCE_RUNS));
    let row = |(queue, (cfs, balance)): (u32, (&Seen, &Seen))| {
        vec![
            queue.to_string(),
            percent(in_slots(4, queue).stacking),
            percent(cfs.stacking),
            digits(cfs.slot / 1e6),
            digits(cfs.all),
            digits(cfs.apart),
            percent(balance.stacking),
            digits(balance.slot / 1e6),
            digits(balance.all),
        ]
    };
    runs.map(row).collect()
}

fn locks() -> Vec<Vec<String>> {
    let row = |case: &super::locks::Case| {
        vec![
            case.queue.to_string(),
            case.policy.to_string(),
            spread(&case.stacked),
            spread(&case.median),
            spread(&case.long),
            spread(&case.rounds),
        ]
    };
    CASES.iter().map(row).collect()
}

/// The page.
pub fn page() -> String {
    let mut text = HEAD.trim_end().to_string() + "\n" + READINGS;
    let heads = [
        "R",
        "stacked",
        "`T_P` a period: CFS",
        "balance",
        "gain",
        "`T_P` a slice: CFS",
        "balance",
        "gain",
        "counted: CFS",
        "balance",
        "gain",
    ];
    table(&mut text, &heads, readings());
    text.write_str(DIFFERENCES.trim_end()).unwrap();
    text = text + "\n" + SIMULATED;
    let heads = [
        "R",
        "stacked: counted",
        "simulated",
        "apart, in step: counted",
        "simulated",
        "out of step: counted",
        "simulated",
    ];
    table(&mut text, &heads, bound());
    text += UNBOUND;
    let heads = [
        "R",
        "stacked: chance",
        "CFS",
        "slice, ms",
        "latency, slices",
        "those apart",
        "stacked: balance",
        "slice, ms",
        "latency, slices",
    ];
    table(&mut text, &heads, unbound());
    text += LOCKS;
    let heads = [
        "R",
        "policy",
        "stacked runqueues, %",
        "wait, median, ms",
        "99 %, ms",
        "rounds/s",
    ];
    table(&mut text, &heads, locks());
    text
}
