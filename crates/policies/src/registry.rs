// SPDX-License-Identifier: GPL-2.0-only
//! The list of all policies: name, summary, source, parameters, and how each is made. Scenarios, `corun host` and
//! `corun policies` find them here.

use crate::{
    Affinity, Aql, Balance, BalanceLoad, Calm, CoschedDemand, CoschedDt, CoschedRelaxed,
    CoschedRelaxedAll, CoschedStrict, Fair, Jupiter, JupiterParams, Microsliced, Policy, Settings,
    VSlicer, VTurbo, VsmtIo, VsmtIoParams,
};
use corun_model::Parameter;

/// How far a policy goes beyond fair order: the less, the less can go wrong. Of policies that help equally, hosts are
/// advised to take the one that goes least far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// It is fair order.
    Nothing,
    /// It decides where vCPUs wait, or for how long they run.
    Places,
    /// It binds them to pCPUs.
    Binds,
    /// It decides which vCPU runs next, or how much a vCPU runs.
    Orders,
    /// It keeps vCPUs from running although they could.
    Stops,
}

/// A policy that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// What users type.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// It schedules cores with this many hardware threads, and is plain fair order on others. 1: on any.
    pub threads: u32,
    /// How far it goes beyond fair order.
    pub reach: Reach,
    /// Its parameters (`[policy.NAME]` in a scenario), with defaults and sources.
    pub parameters: fn() -> Vec<Parameter>,
    /// Makes one with these settings.
    pub make: fn(&Settings) -> Box<dyn Policy>,
}

impl PolicyInfo {
    /// Does it look at [`corun_model::Signals`], set like this?
    pub fn wants_signals(&self, settings: &Settings) -> bool {
        (self.make)(settings).wants_signals()
    }
}

static ALL: [PolicyInfo; 15] = [
    PolicyInfo {
        name: "fair",
        summary: "plain fair order, vCPUs go wherever there is least to do",
        source: "baseline",
        threads: 1,
        reach: Reach::Nothing,
        parameters: Vec::new,
        make: |_| Box::new(Fair),
    },
    PolicyInfo {
        name: "affinity",
        summary: "each vCPU has a pCPU of its own, as many on each, siblings apart",
        source: "Sukwong & Kim, EuroSys 2011, §2.2 (affinity-based); practice: virsh vcpupin",
        threads: 1,
        reach: Reach::Binds,
        parameters: Vec::new,
        make: |_| Box::<Affinity>::default(),
    },
    PolicyInfo {
        name: "balance",
        summary: "no two vCPUs of a VM wait or run on the same pCPU",
        source: "Sukwong & Kim, \"Is Co-scheduling Too Expensive for SMP VMs?\", EuroSys 2011",
        threads: 1,
        reach: Reach::Places,
        parameters: Vec::new,
        make: |_| Box::new(Balance),
    },
    PolicyInfo {
        name: "balance-load",
        summary: "as balance, but siblings share a pCPU rather than go where there is much to do",
        source: "Kim et al., \"Demand-based coordinated scheduling for SMP VMs\", ASPLOS 2013",
        threads: 1,
        reach: Reach::Places,
        parameters: BalanceLoad::parameters,
        make: |settings| Box::new(settings.balance_load),
    },
    PolicyInfo {
        name: "cosched-dt",
        summary: "when the first vCPU of a VM starts, its siblings are called to start as well",
        source: "Sukwong & Kim, EuroSys 2011, §5.2.2 (dynamic time-slice co-scheduling)",
        threads: 1,
        reach: Reach::Orders,
        parameters: Vec::new,
        make: |_| Box::new(CoschedDt),
    },
    PolicyInfo {
        name: "cosched-strict",
        summary: "time slots: the ready vCPUs of a VM start together or not at all",
        source: "Ousterhout 1982; Sukwong & Kim, EuroSys 2011, §3 (co-scheduling)",
        threads: 1,
        reach: Reach::Stops,
        parameters: CoschedStrict::parameters,
        make: |settings| Box::new(settings.cosched_strict),
    },
    PolicyInfo {
        name: "cosched-demand",
        summary: "a vCPU that a sibling wakes, or waits for, runs at once, for a short while",
        source: "Kim et al., \"Demand-based coordinated scheduling for SMP VMs\", ASPLOS 2013",
        threads: 1,
        reach: Reach::Orders,
        parameters: CoschedDemand::parameters,
        make: |settings| Box::new(settings.cosched_demand),
    },
    PolicyInfo {
        name: "cosched-relaxed",
        summary: "a vCPU that is ahead of its siblings stops until they catch up",
        source: "VMware ESX 4, as in Sukwong & Kim, EuroSys 2011, §6",
        threads: 1,
        reach: Reach::Stops,
        parameters: CoschedRelaxed::parameters,
        make: |settings| Box::new(settings.cosched_relaxed),
    },
    PolicyInfo {
        name: "cosched-relaxed-all",
        summary: "when a vCPU is ahead of its siblings all stop, and those that lag start together",
        source: "VMware ESX 3, as in Sukwong & Kim, EuroSys 2011, §6",
        threads: 1,
        reach: Reach::Stops,
        parameters: CoschedRelaxedAll::parameters,
        make: |settings| Box::new(settings.cosched_relaxed_all),
    },
    PolicyInfo {
        name: "jupiter",
        summary: "balance, and each vCPU has the weight and latency its progress needs; VMs lend time",
        source: "dissertation (vMigrater, vSMT-IO, Jupiter), ch. 4",
        threads: 1,
        reach: Reach::Orders,
        parameters: JupiterParams::parameters,
        make: |settings| Box::new(Jupiter::new(settings.jupiter)),
    },
    PolicyInfo {
        name: "aql",
        summary: "recognises what each vCPU runs and serves it in a pool with the slice that suits it",
        source: "Teabe, Tchana & Hagimont, \"Application-specific quantum for multi-core platform \
                  scheduler\", EuroSys 2016",
        threads: 1,
        reach: Reach::Binds,
        parameters: Aql::parameters,
        make: |settings| Box::new(Aql::new(settings.aql)),
    },
    PolicyInfo {
        name: "vsmtio",
        summary: "halted I/O vCPUs keep a hardware thread beside vCPUs that compute",
        source: "vSMT-IO, USENIX ATC 2020; dissertation (vMigrater, vSMT-IO, Jupiter), ch. 3",
        threads: 2,
        reach: Reach::Orders,
        parameters: VsmtIoParams::parameters,
        make: |settings| Box::new(VsmtIo::new(settings.vsmtio)),
    },
    PolicyInfo {
        name: "vslicer",
        summary: "short slices for vCPUs that do I/O, so that their turn comes more often",
        source: "Xu et al., \"vSlicer\", HPDC 2012, as in AQL_Sched, §4.2",
        threads: 1,
        reach: Reach::Places,
        parameters: VSlicer::parameters,
        make: |settings| {
            Box::new(VSlicer::new(
                settings.vslicer,
                settings.aql.calibration.limits,
            ))
        },
    },
    PolicyInfo {
        name: "vturbo",
        summary: "a pCPU with short slices for vCPUs that do I/O",
        source: "Xu et al., \"vTurbo\", USENIX ATC 2013, as in AQL_Sched, §4.2",
        threads: 1,
        reach: Reach::Binds,
        parameters: VTurbo::parameters,
        make: |settings| {
            Box::new(VTurbo::new(
                settings.vturbo,
                settings.aql.calibration.limits,
            ))
        },
    },
    PolicyInfo {
        name: "microsliced",
        summary: "short slices for everybody",
        source: "Ahn, Park & Huh, MICRO 2014, as in AQL_Sched, §4.2",
        threads: 1,
        reach: Reach::Places,
        parameters: Microsliced::parameters,
        make: |settings| Box::new(settings.microsliced),
    },
];

const CALM: PolicyInfo = PolicyInfo {
    name: "calm",
    summary: "long slices for vCPUs that compute all the time",
    source: "the worked example of docs/write-a-policy.md",
    threads: 1,
    reach: Reach::Places,
    parameters: Vec::new,
    make: |_| Box::new(Calm),
};

/// Policies to learn from (docs/write-a-policy.md). They run by name wherever others do, but hosts are not advised to
/// use them, nor are papers compared with them.
static EXAMPLES: &[PolicyInfo] = &[CALM];

/// All published policies, the baseline first.
pub fn all() -> &'static [PolicyInfo] {
    &ALL
}

/// All that run by name: the published ones, then the examples.
pub fn known() -> impl Iterator<Item = &'static PolicyInfo> {
    ALL.iter().chain(EXAMPLES)
}

/// The policy of this name, published or an example.
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    known().find(|policy| policy.name == name)
}

/// Their parameters, policy by policy.
pub fn parameters() -> Vec<Parameter> {
    known().flat_map(|policy| (policy.parameters)()).collect()
}

/// What cannot be set: assumptions that several policies share, and those of each policy.
pub fn constants() -> Vec<Parameter> {
    [
        crate::weighing::constants(),
        crate::wanting::constants(),
        crate::vmigrater::constants(),
        crate::aql::vtrs::constants(),
        crate::vsmtio::constants(),
        crate::jupiter::constants(),
    ]
    .concat()
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
        for policy in known() {
            assert_eq!(find(policy.name).unwrap().summary, policy.summary);
            assert!((policy.make)(&Settings::default()).period() > 0);
            for parameter in (policy.parameters)() {
                let section = format!("policy.{}.", policy.name);
                assert!(parameter.key.starts_with(&section), "{parameter:?}");
            }
        }
        let wants = |policy: &&PolicyInfo| policy.wants_signals(&Settings::default());
        let wanting: Vec<_> = known().filter(wants).map(|policy| policy.name).collect();
        assert_eq!(wanting, ["aql", "vsmtio", "vslicer", "vturbo"]);
        assert!(find("random").is_none());
        assert!(names().starts_with("fair, affinity, balance, "));
    }
}
