// SPDX-License-Identifier: GPL-2.0-only
//! What the dispatcher's decisions cost, counted: the same on every machine.

use anyhow::anyhow;
use corun_sim::complexity::{self, Cost, Size, Tally};
use serde_json::{Value, json};

/// What decisions cost under a policy on a host.
pub(super) struct Decisions {
    policy: &'static str,
    pcpus: u32,
    cost: Cost,
}

/// Counts what decisions cost on hosts with so many pCPUs, under every policy.
pub(super) fn count(sizes: &[u32]) -> anyhow::Result<Vec<Decisions>> {
    let mut all = Vec::new();
    for policy in corun_policies::all() {
        for &pcpus in sizes {
            let size = Size::new(policy, pcpus, 4, 4);
            let cost = complexity::count(policy, size)
                .ok_or_else(|| anyhow!("no host can have {pcpus} pCPUs"))?;
            all.push(Decisions {
                policy: policy.name,
                pcpus,
                cost,
            });
        }
    }
    Ok(all)
}

impl Decisions {
    pub(super) fn json(&self) -> Value {
        let tally = |tally: &Tally| {
            json!({
                "decisions": tally.decisions,
                "exchanges_mean": tally.mean(),
                "exchanges_most": tally.most,
            })
        };
        json!({
            "policy": self.policy,
            "pcpus": self.pcpus,
            "wake": tally(&self.cost.wakes),
            "pick": tally(&self.cost.picks),
        })
    }

    fn line(&self, widest: usize) -> String {
        let name = format!("{}, {} pCPUs", self.policy, self.pcpus);
        let Cost { wakes, picks } = &self.cost;
        let means = format!("{:>14.1}{:>14}", wakes.mean(), wakes.most);
        format!(
            "{name:widest$}{means}{:>14.1}{:>14}\n",
            picks.mean(),
            picks.most
        )
    }
}

/// A table.
pub(super) fn text(all: &[Decisions], widest: usize) -> String {
    let heads = ["wake, mean", "most", "pick, mean", "most"].map(|head| format!("{head:>14}"));
    let lines: String = all.iter().map(|of| of.line(widest)).collect();
    format!(
        "\n{:widest$}{}\n{lines}",
        "exchanges per decision",
        heads.concat()
    )
}
