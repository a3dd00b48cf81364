// SPDX-License-Identifier: GPL-2.0-only
//! What policies' control loops cost on a host of 512 vCPUs, as a share of one pCPU. The machine measured is this one,
//! so the figure depends on what else it does, and the best of several rounds counts.

use anyhow::anyhow;
use corun_model::time::MS;
use corun_policies::bench::{ControlLoop, PCPUS, SIBLINGS, VMS};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// A policy's decisions.
pub(super) struct Loop {
    policy: &'static str,
    /// How often it is asked, ms.
    period_ms: f64,
    /// What one decision takes, us.
    decision_us: f64,
}

/// Times `decisions` decisions of every policy, `rounds` times.
pub(super) fn measure(rounds: u32, decisions: u32) -> anyhow::Result<Vec<Loop>> {
    let mut all = Vec::new();
    for info in corun_policies::all() {
        let name = info.name;
        let mut host = ControlLoop::new(info, VMS).map_err(|fault| anyhow!("{name}: {fault}"))?;
        // What is done only once does not count.
        (0..decisions).for_each(|_| drop(black_box(host.decide())));
        let mut fastest = f64::INFINITY;
        for _ in 0..rounds {
            let start = Instant::now();
            (0..decisions).for_each(|_| drop(black_box(host.decide())));
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        all.push(Loop {
            policy: name,
            period_ms: host.period() as f64 / MS as f64,
            decision_us: fastest * 1e6 / f64::from(decisions.max(1)),
        });
    }
    Ok(all)
}

impl Loop {
    /// Percent of a pCPU.
    fn percent(&self) -> f64 {
        self.decision_us / 10.0 / self.period_ms
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "policy": self.policy,
            "period_ms": self.period_ms,
            "decision_us": self.decision_us,
            "pcpu_percent": self.percent(),
        })
    }
}

/// A table.
pub(super) fn text(all: &[Loop], width: u16) -> String {
    let title = format!("control loop, {} vCPUs, {PCPUS} pCPUs", VMS * SIBLINGS);
    let heads = ["policy", "us/decision", "every ms", "% of a pCPU"];
    let row = |of: &Loop| {
        vec![
            of.policy.to_string(),
            format!("{:.1}", of.decision_us),
            format!("{:.0}", of.period_ms),
            format!("{:.3}", of.percent()),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    format!(
        "\n{title}\n{}",
        corun_report::grid(&heads, &rows, &[0], width)
    )
}
