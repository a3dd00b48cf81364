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

/// Counts what decisions cost on hosts with these numbers of pCPUs, under every policy.
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

    fn row(&self) -> Vec<String> {
        let Cost { wakes, picks } = &self.cost;
        vec![
            format!("{}, {} pCPUs", self.policy, self.pcpus),
            format!("{:.1}", wakes.mean()),
            wakes.most.to_string(),
            format!("{:.1}", picks.mean()),
            picks.most.to_string(),
        ]
    }
}

/// A table.
pub(super) fn text(all: &[Decisions], width: u16) -> String {
    let heads = ["policy", "wake, mean", "most", "pick, mean", "most"];
    let rows: Vec<Vec<String>> = all.iter().map(Decisions::row).collect();
    format!(
        "\nexchanges per decision\n{}",
        corun_report::grid(&heads, &rows, &[0], width)
    )
}
