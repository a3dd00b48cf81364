// SPDX-License-Identifier: GPL-2.0-only
//! Every policy by name.

use crate::{Affinity, Balance, Fair, Policy};

/// A policy that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// What users type.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Makes one.
    pub make: fn() -> Box<dyn Policy>,
}

static ALL: [PolicyInfo; 3] = [
    PolicyInfo {
        name: "fair",
        summary: "plain fair order, vCPUs go wherever there is least to do",
        source: "baseline",
        make: || Box::new(Fair),
    },
    PolicyInfo {
        name: "affinity",
        summary: "each vCPU has a pCPU of its own, as many on each, siblings apart",
        source: "Sukwong & Kim, EuroSys 2011, §2.2 (affinity-based); practice: virsh vcpupin",
        make: || Box::<Affinity>::default(),
    },
    PolicyInfo {
        name: "balance",
        summary: "no two vCPUs of a VM wait or run on the same pCPU",
        source: "Sukwong & Kim, \"Is Co-scheduling Too Expensive for SMP VMs?\", EuroSys 2011",
        make: || Box::new(Balance),
    },
];

/// All policies, the baseline first.
pub fn all() -> &'static [PolicyInfo] {
    &ALL
}

/// The policy of this name.
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    ALL.iter().find(|policy| policy.name == name)
}

/// Their names, for messages: `fair, affinity, balance`.
pub fn names() -> String {
    ALL.map(|policy| policy.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in all() {
            assert_eq!(find(policy.name).unwrap().summary, policy.summary);
            assert!((policy.make)().period() > 0);
        }
        assert!(find("random").is_none());
        assert_eq!(names(), "fair, affinity, balance");
    }
}
