// SPDX-License-Identifier: GPL-2.0-only
//! From a policy's name to a host scheduler: models of Linux' and Xen's, or corun's dispatcher
//! steered by a policy.

use super::setup::host_params;
use corun_model::{DispatcherParams, Parameter};
use corun_scenario::{Case, Located, Problem, Problems, Schedulers, Vm, or_nearest};
use corun_sim::Simulation;
use corun_sim::host::{HostParams, Observer};
use corun_sim::load::Load;
use corun_sim::sched::HostScheduler;
use corun_sim::sched::cfs::{self, Cfs, CfsParams, Gangs, Generation, Siblings, SteeredCfs};
use corun_sim::sched::credit::{Credit, CreditParams};
use corun_sim::sched::dispatcher::Dispatcher;
use corun_sim::sched::eevdf::{self, Eevdf, EevdfParams};
use corun_sim::sched::rr::{Rr, RrParams};

/// A policy as users see it.
pub struct PolicyInfo {
    /// What it is called.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// The parameters that can be set for it, if it steers corun's dispatcher; for models see [scheduler.NAME].
    pub parameters: fn() -> Vec<Parameter>,
}

/// Jupiter within the model of CFS.
const CFS_JUPITER: &str = "cfs-jupiter";

/// Schedulers of Linux and Xen, as models.
const MODELS: [PolicyInfo; 13] = [
    PolicyInfo {
        name: "cfs",
        summary: "Linux' Completely Fair Scheduler, as the papers' hosts ran it (a model)",
        source: "Linux 2.6.33 (unless scheduler.cfs.preset names a later one) to 6.5, kernel/sched/fair.c; parameters: [scheduler.cfs]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "cfs-balance",
        summary: "balance scheduling as its paper has it: CFS with affinity masks (a model)",
        source: "Sukwong & Kim, EuroSys 2011, §5.2.1; parameters: [scheduler.cfs]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "cfs-affinity",
        summary: "affinity-based scheduling as that paper has it: CFS and vcpupin (a model)",
        source: "Sukwong & Kim, EuroSys 2011, §5.2.3; parameters: [scheduler.cfs]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "cfs-cosched-dt",
        summary: "dynamic time-slice co-scheduling as its paper has it: built into CFS (a model)",
        source: "Sukwong & Kim, EuroSys 2011, §5.2.2; parameters: [scheduler.cfs]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "cfs-cosched-demand",
        summary: "demand-based co-scheduling as its paper has it: built into CFS (a model)",
        source: "Kim et al., ASPLOS 2013; parameters: [scheduler.cfs], [policy.cosched-demand]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: CFS_JUPITER,
        summary: "Jupiter as its dissertation has it: a patch of CFS, siblings kept apart (a model)",
        source: "dissertation, ch. 4; parameters: [scheduler.cfs], [policy.jupiter]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "eevdf",
        summary: "Linux' present scheduler: earliest eligible virtual deadline first (a model)",
        source: "Linux 6.6 to 7.x, kernel/sched/fair.c; parameters: [scheduler.eevdf]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "rr",
        summary: "cfs with SCHED_RR for `realtime` VMs: an imitation of co-scheduling (a model)",
        source: "Sukwong & Kim, EuroSys 2011, App. B; Linux 2.6.33, kernel/sched_rt.c; parameters: [scheduler.rr]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "credit",
        summary: "Xen's Credit scheduler with BOOST, the baseline of many papers (a model)",
        source: "Xen, xen/common/sched/credit.c; parameters: [scheduler.credit]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "credit-aql",
        summary: "AQL_Sched as its paper has it: pools within Xen's Credit (a model)",
        source: "Teabe, Tchana & Hagimont, EuroSys 2016; parameters: [scheduler.credit], [policy.aql]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "credit-vslicer",
        summary: "vSlicer within Xen's Credit, as in the comparisons of AQL_Sched's paper (a model)",
        source: "Xu et al., HPDC 2012; parameters: [scheduler.credit], [policy.vslicer]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "credit-vturbo",
        summary: "vTurbo within Xen's Credit, as in the comparisons of AQL_Sched's paper (a model)",
        source: "Xu et al., USENIX ATC 2013; parameters: [scheduler.credit], [policy.vturbo]",
        parameters: Vec::new,
    },
    PolicyInfo {
        name: "credit-microsliced",
        summary: "Microsliced within Xen's Credit, as in the comparisons of AQL_Sched's paper (a model)",
        source: "Ahn, Park & Huh, MICRO 2014; parameters: [scheduler.credit], [policy.microsliced]",
        parameters: Vec::new,
    },
];

/// Everything that can be compared: models of host schedulers, then corun's policies, examples last.
pub fn policies() -> Vec<PolicyInfo> {
    let ours = corun_policies::known().map(|policy| PolicyInfo {
        name: policy.name,
        summary: policy.summary,
        source: policy.source,
        parameters: policy.parameters,
    });
    MODELS.into_iter().chain(ours).collect()
}

/// Is there such a policy?
///
/// # Errors
/// What is accepted.
pub fn known_policy(name: &str) -> Result<(), String> {
    let models = MODELS.iter().map(|policy| policy.name);
    let ours = corun_policies::known().map(|policy| policy.name);
    let known: Vec<&str> = models.chain(ours).collect();
    match known.contains(&name) {
        true => Ok(()),
        false => Err(format!(
            "unknown policy {name:?}, {}",
            accepted(name, &known)
        )),
    }
}

/// What may have been meant by the policy `name`, and all that are accepted; for the examples it only says that there
/// are some.
pub fn accepted(name: &str, known: &[&str]) -> String {
    let is_example = |name: &&&str| {
        let published = corun_policies::all()
            .iter()
            .any(|policy| policy.name == **name);
        !published && corun_policies::find(name).is_some()
    };
    let all = or_nearest(name, known);
    let examples = known.iter().filter(is_example);
    examples.fold(all, |all, example| {
        all.replace(
            &format!(", {example}"),
            &format!(", and {example}, the example of docs/write-a-policy.md"),
        )
    })
}

/// The policy that a real host can run under.
///
/// # Errors
/// What is accepted.
pub fn known_host_policy(name: &str) -> Result<&'static corun_policies::PolicyInfo, String> {
    let known: Vec<&str> = corun_policies::known().map(|policy| policy.name).collect();
    let is_model = MODELS.iter().any(|model| model.name == name);
    corun_policies::find(name).ok_or_else(|| match is_model {
        true => format!(
            "{name:?} is a model of another scheduler, for `corun compare` only; {}",
            accepted(name, &known)
        ),
        false => format!("unknown policy {name:?}, {}", accepted(name, &known)),
    })
}

/// A host under `policy`, with `load` to carry, in the run with `seed`.
///
/// # Errors
/// As [`check`] and [`known_policy`].
pub fn put_together(
    params: HostParams,
    policy: &str,
    said: &Schedulers,
    seed: u64,
    load: Box<dyn Load>,
    observer: Option<Box<dyn Observer>>,
) -> Result<Simulation, Problems> {
    // Policies about slices and pools can steer Credit, too, and Jupiter CFS: the papers use them there.
    let within_credit = policy.strip_prefix("credit-");
    let within_cfs = (policy == CFS_JUPITER).then_some("jupiter");
    let steered = corun_policies::find(within_credit.or(within_cfs).unwrap_or(policy));
    let sched: Box<dyn HostScheduler> = match policy {
        "cfs" | "cfs-balance" | "cfs-affinity" | "cfs-cosched-dt" | "cfs-cosched-demand" => {
            let (siblings, gangs) = siblings(policy, said);
            let cfs = CfsParams {
                siblings,
                gangs,
                ..cfs_params(said, &params)?
            };
            Box::new(Cfs::new(cfs, &params))
        }
        CFS_JUPITER => Box::new(SteeredCfs::new(cfs_params(said, &params)?, &params)),
        "eevdf" => Box::new(Eevdf::new(eevdf_params(said, &params)?, &params)),
        "rr" => Box::new(Rr::new(
            rr_params(said),
            cfs_params(said, &params)?,
            &params,
        )),
        _ if policy == "credit" || within_credit.is_some() => {
            Box::new(Credit::new(credit_params(said), seed, &params))
        }
        _ if steered.is_some() => Box::new(Dispatcher::new(dispatcher_params(said), &params)),
        other => return Err(elsewhere(&format!("unknown policy {other:?}"))),
    };
    let simulation = Simulation::new(params, sched, load, observer);
    Ok(match steered {
        Some(policy) => simulation.with_policy((policy.make)(&said.policies.settings)),
        None => simulation,
    })
}

/// What a variant of CFS does about sibling vCPUs.
fn siblings(policy: &str, said: &Schedulers) -> (Siblings, Gangs) {
    let demand = &said.policies.settings.cosched_demand;
    match policy {
        "cfs-balance" => (Siblings::Apart, Gangs::None),
        "cfs-affinity" => (Siblings::Bound, Gangs::None),
        "cfs-cosched-dt" => (Siblings::Apart, Gangs::Dynamic),
        "cfs-cosched-demand" => (Siblings::Light(demand.light), Gangs::Demand(demand.boost)),
        _ => (Siblings::Free, Gangs::None),
    }
}

/// What policies cannot do of what is asked for, for people to know: each thing once, however many VMs and policies it
/// applies to.
#[derive(Default)]
pub struct Unheeded(Vec<Note>);

enum Note {
    /// For a policy as a whole.
    Whole(String),
    /// For a key of VMs.
    Of {
        key: &'static str,
        vms: Vec<String>,
        policies: Vec<String>,
        /// What is true of one policy: "has no …".
        lack: String,
    },
}

impl Unheeded {
    fn whole(&mut self, note: String) {
        let same = |known: &Note| matches!(known, Note::Whole(known) if *known == note);
        if !self.0.iter().any(same) {
            self.0.push(Note::Whole(note));
        }
    }

    /// Notes that `policy` lacks what `key` of `vm` is about.
    fn of(&mut self, key: &'static str, vm: &str, policy: &str, lack: &str) {
        let known = self.0.iter_mut().find_map(|note| match note {
            Note::Of {
                key: k,
                vms,
                policies,
                lack: l,
            } if *k == key && l == lack && *policies == [policy] => Some(vms),
            _ => None,
        });
        match known {
            Some(vms) if vms.iter().any(|known| known == vm) => {}
            Some(vms) => vms.push(vm.to_string()),
            None => self.0.push(Note::Of {
                key,
                vms: vec![vm.to_string()],
                policies: vec![policy.to_string()],
                lack: lack.to_string(),
            }),
        }
    }

    /// In words; policies that lack the same thing are named together.
    pub fn told(self) -> Vec<String> {
        let mut all: Vec<Note> = Vec::new();
        for note in self.0 {
            let same = |known: &&mut Note| match (&**known, &note) {
                (
                    Note::Of { key, vms, lack, .. },
                    Note::Of {
                        key: k,
                        vms: v,
                        lack: l,
                        ..
                    },
                ) => (key, vms, lack) == (k, v, l),
                _ => false,
            };
            match (all.iter_mut().find(same), note) {
                (Some(Note::Of { policies, .. }), Note::Of { policies: more, .. }) => {
                    policies.extend(more);
                }
                (_, note) => all.push(note),
            }
        }
        all.into_iter().map(Note::told).collect()
    }
}

impl Note {
    fn told(self) -> String {
        let (key, vms, policies, lack) = match self {
            Self::Whole(note) => return note,
            Self::Of {
                key,
                vms,
                policies,
                lack,
            } => (key, vms, policies, lack),
        };
        let each: Vec<String> = vms.iter().map(|vm| format!("vm.{vm}{key}")).collect();
        let whose = match &each[..] {
            [first, .., last] if each.len() > 3 => format!("{first} … {last} ({} VMs)", each.len()),
            few => few.join(", "),
        };
        let lack = match (policies.len(), lack.split_once(' ')) {
            (2.., Some(("has", what))) => format!("have {what}"),
            (2.., Some(("knows", what))) => format!("know {what}"),
            (2.., Some(("counts", what))) => format!("count {what}"),
            _ => lack,
        };
        format!("{whose}: {} {lack}", policies.join(", "))
    }
}

/// Adds what `policy` cannot do of what the VMs ask for.
pub fn unheeded(policy: &str, case: &Case, unheeded: &mut Unheeded) {
    let task_slices = policy == "eevdf"
        && eevdf_params(&case.schedulers, &host_params(case))
            .is_ok_and(|params| params.task_slices);
    if policy == "rr" && !case.vms.iter().any(|vm| vm.realtime) {
        unheeded.whole("rr: no VM is `realtime`, so it does what cfs does".to_string());
    }
    let idle = corun_policies::find(policy).and_then(|policy| idles(policy, case));
    idle.into_iter().for_each(|note| unheeded.whole(note));
    for vm in &case.vms {
        if vm.realtime && policy != "rr" {
            unheeded.of(".realtime", &vm.name, policy, "has no SCHED_RR");
        }
        if vm.cap.is_some() && !policy.starts_with("credit") {
            unheeded.of(".cap", &vm.name, policy, "has no caps");
        }
        if let Some(lack) = ungrouped(policy, vm) {
            unheeded.of("", &vm.name, policy, &lack);
        }
        if counts_one_by_one(policy, vm, case) {
            let lack = "counts its vCPUs one by one against other VMs' weights, since it has none (each counts less under \
                        corun's own policies: docs/contract.md)";
            unheeded.of("", &vm.name, policy, lack);
        }
        if vm.slice.is_some() && !task_slices {
            let lack = "has no slices per task (eevdf since 6.12 has)";
            unheeded.of(".slice", &vm.name, policy, lack);
        }
    }
}

/// What `policy` ignores in the settings of a VM's cgroup. corun's policies and the models of CFS and EEVDF heed
/// everything.
fn ungrouped(policy: &str, vm: &Vm) -> Option<String> {
    let keys = vm.cgroup?;
    if policy == "rr" {
        let lack = "knows no group, cpu_max, vcpu_max or cpu_idle (corun's own policies do)";
        return Some(lack.to_string());
    }
    if !policy.starts_with("credit") {
        return None;
    }
    let said = [
        (keys.within.is_some(), "group"),
        (keys.burst > 0, "cpu_burst"),
        (keys.idle, "cpu_idle"),
        (vm.vcpu_max.is_some(), "vcpu_max"),
    ];
    let said = said.iter().filter(|(said, _)| *said).map(|(_, key)| *key);
    let said: Vec<&str> = said.collect();
    (!said.is_empty()).then(|| format!("knows no {}, only cpu_max, as a cap", said.join(" or ")))
}

/// Does a whole other VM count no more for `policy` than each single vCPU of `vm`? That is so if the other VM has a
/// cgroup, and `vm` has none.
fn counts_one_by_one(policy: &str, vm: &Vm, case: &Case) -> bool {
    let has_cgroup = |vm: &Vm| vm.weight.is_some() || vm.cgroup.is_some();
    let of_kernel = ["cfs", "eevdf", "rr"].contains(&policy) || policy.starts_with("cfs-");
    let is_above = policy == "rr" && vm.realtime;
    of_kernel && !is_above && vm.vcpus > 0 && !has_cgroup(vm) && case.vms.iter().any(has_cgroup)
}

/// Why one of corun's policies is plain fair order on this host, if so.
fn plain(policy: &corun_policies::PolicyInfo, case: &Case) -> Option<String> {
    let (threads, topology) = (policy.threads, case.host.topology);
    (threads > 1 && topology.threads_per_core() != threads).then(|| {
        format!(
            "needs cores with {threads} hardware threads, those of {topology} have {}: it does what fair does",
            topology.threads_per_core()
        )
    })
}

/// Why replays of a recorded host say nothing about a policy, if so.
pub fn blind(policy: &str, case: &Case) -> Option<String> {
    let within_credit = policy.strip_prefix("credit-");
    let policy = corun_policies::find(within_credit.unwrap_or(policy))?;
    // Replays know when vCPUs ran and waited, but have no other counters.
    let not_told = || {
        policy
            .wants_signals(&case.schedulers.policies.settings)
            .then(|| {
                "a recording does not have what tells vCPUs apart, such as I/O events, so that all would be alike"
                    .to_string()
            })
    };
    plain(policy, case).or_else(not_told)
}

/// Why one of corun's policies has nothing to do on this host, if so.
fn idles(policy: &corun_policies::PolicyInfo, case: &Case) -> Option<String> {
    let name = policy.name;
    if let Some(why) = plain(policy, case) {
        return Some(format!("{name}: {why}"));
    }
    let told = |vm: &Vm| {
        vm.guest
            .idle
            .as_ref()
            .is_some_and(|idle| idle.value == "told")
    };
    let guests = name == "vsmtio" && case.schedulers.policies.settings.vsmtio.guests;
    (guests && !case.vms.iter().any(told)).then(|| {
        "policy.vsmtio.guests: guests are to retain their contexts, and none has guest.idle = \"told\": nothing is retained"
            .to_string()
    })
}

/// Does a run under `policy` depend on a key, if it is one of a scheduler's or policy's keys?
pub fn heeds(policy: &str, key: &str) -> bool {
    let mut parts = key.split('.').map(|part| part.trim_matches(['"', '\'']));
    let (section, name) = (parts.next(), parts.next().unwrap_or_default());
    let is_or_has = |name: &str| {
        let rest = policy.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    match (section, name) {
        (Some("scheduler"), "cfs") => is_or_has("cfs") || policy == "rr",
        (Some("scheduler"), "credit") => is_or_has("credit"),
        (Some("scheduler"), "eevdf" | "rr") => policy == name,
        (Some("scheduler"), "corun") => corun_policies::find(policy).is_some(),
        (Some("policy"), name) if !name.is_empty() => {
            let mut within = ["credit-", "cfs-"].iter();
            let within = within.find_map(|model| policy.strip_prefix(model));
            within.unwrap_or(policy) == name
        }
        _ => true,
    }
}

/// What `--set` sets for schedulers and policies that are not among `policies`, for people to know.
pub fn sets_unheeded(sets: &[String], policies: &[&str]) -> Vec<String> {
    let is_unheeded = |set: &&String| {
        let key = set.split('=').next().unwrap_or_default().trim();
        !policies.iter().any(|policy| heeds(policy, key))
    };
    let unheeded = sets.iter().filter(is_unheeded);
    unheeded
        .map(|set| {
            format!(
                "--set {set}: none of the policies heeds it: {}",
                policies.join(", ")
            )
        })
        .collect()
}

/// Are the schedulers' parameters fit for this host?
///
/// # Errors
/// Everything wrong with them.
pub fn check(said: &Schedulers, host: &HostParams) -> Result<(), Problems> {
    let mut problems = Problems::default();
    problems.take(cfs_params(said, host));
    problems.take(eevdf_params(said, host));
    problems.or_ok(())
}

/// The kernel that a policy models, or is based on, for people to know: without a preset, `cfs` is of 2010.
pub fn kernel(policy: &str, said: &Schedulers) -> Option<String> {
    Some(match kernel_preset(policy, said)? {
        "2.6.33-as-stated" => "Linux 2.6.33, with latencies as its paper states them".to_string(),
        "rhel-virtual-host" => "Linux 4.x, tuned as RHEL's virtual-host".to_string(),
        preset => format!("Linux {preset}"),
    })
}

/// Its version alone, for a recording to name it.
pub fn kernel_version<'a>(policy: &str, said: &'a Schedulers) -> Option<&'a str> {
    Some(match kernel_preset(policy, said)? {
        "2.6.33-as-stated" => "2.6.33",
        "rhel-virtual-host" => "4.x",
        preset => preset,
    })
}

/// The preset for a kernel that a policy uses.
fn kernel_preset<'a>(policy: &str, said: &'a Schedulers) -> Option<&'a str> {
    let (preset, default) = match policy {
        "eevdf" => (&said.eevdf.preset, eevdf::DEFAULT_PRESET),
        "cfs" | "rr" => (&said.cfs.preset, cfs::DEFAULT_PRESET),
        _ if policy.starts_with("cfs-") => (&said.cfs.preset, cfs::DEFAULT_PRESET),
        _ => return None,
    };
    Some(preset.as_ref().map_or(default, |said| said.value.as_str()))
}

fn cfs_params(said: &Schedulers, host: &HostParams) -> Result<CfsParams, Problems> {
    let keys = &said.cfs;
    let pcpus = host.topology.pcpus();
    let name = keys
        .preset
        .as_ref()
        .map_or(cfs::DEFAULT_PRESET, |preset| preset.value.as_str());
    let Some(mut params) = CfsParams::preset(name, pcpus) else {
        return Err(unknown(keys.preset.as_ref(), &CfsParams::PRESETS));
    };
    set(&mut params.latency, keys.latency);
    set(&mut params.min_granularity, keys.min_granularity);
    if let Some(said) = &keys.idle_min_granularity {
        if params.idle_min_granularity.is_none() {
            let message = format!(
                "found it with preset {name:?}, which has no least slice, expected it with preset \"5.x\""
            );
            return Err(said.problem(message).into());
        }
        params.idle_min_granularity = Some(said.value);
    }
    set(&mut params.wakeup_granularity, keys.wakeup_granularity);
    set(&mut params.migration_cost, keys.migration_cost);
    if let Some(said) = &keys.search_cost {
        if params.generation == Generation::Linux2_6_33 {
            let message = format!(
                "found it with preset {name:?}, which does not search so, expected it with presets \
                 \"4.x\", \"5.x\" or \"rhel-virtual-host\""
            );
            return Err(said.problem(message).into());
        }
        params.search_cost = said.value;
    }
    set(&mut params.gentle_fair_sleepers, keys.gentle_fair_sleepers);
    params.sleeper_credit = keys.sleeper_credit;
    set(&mut params.start_debit, keys.start_debit);
    set(&mut params.wakeup_preemption, keys.wakeup_preemption);
    params.balance_interval = keys.balance_interval.or(params.balance_interval);
    Ok(params)
}

fn eevdf_params(said: &Schedulers, host: &HostParams) -> Result<EevdfParams, Problems> {
    let keys = &said.eevdf;
    let pcpus = host.topology.pcpus();
    let name = keys
        .preset
        .as_ref()
        .map_or(eevdf::DEFAULT_PRESET, |preset| preset.value.as_str());
    let Some(mut params) = EevdfParams::preset(name, pcpus) else {
        return Err(unknown(keys.preset.as_ref(), &EevdfParams::PRESETS));
    };
    set(&mut params.base_slice, keys.base_slice);
    set(&mut params.migration_cost, keys.migration_cost);
    set(&mut params.place_lag, keys.place_lag);
    set(
        &mut params.place_deadline_initial,
        keys.place_deadline_initial,
    );
    set(&mut params.run_to_parity, keys.run_to_parity);
    set(&mut params.preempt_short, keys.preempt_short);
    set(&mut params.delay_dequeue, keys.delay_dequeue);
    set(&mut params.wakeup_preemption, keys.wakeup_preemption);
    set(&mut params.hrtick, keys.hrtick);
    set(&mut params.protect_shortest, keys.protect_shortest);
    set(&mut params.slice_at_switch, keys.slice_at_switch);
    set(&mut params.timer_stays, keys.timer_stays);
    set(&mut params.pick_buddy, keys.pick_buddy);
    set(&mut params.forfeits_on_yield, keys.forfeits_on_yield);
    set(&mut params.lazy_preemption, keys.lazy_preemption);
    set(&mut params.ni_random, keys.ni_random);
    set(&mut params.newidle_cost, keys.newidle_cost);
    params.balance_interval = keys.balance_interval.or(params.balance_interval);
    Ok(params)
}

fn rr_params(said: &Schedulers) -> RrParams {
    let (keys, mut params) = (&said.rr, RrParams::default());
    set(&mut params.runtime, keys.runtime);
    set(&mut params.period, keys.period);
    set(&mut params.slice, keys.slice);
    params
}

fn credit_params(said: &Schedulers) -> CreditParams {
    let (keys, mut params) = (&said.credit, CreditParams::default());
    set(&mut params.slice, keys.slice);
    params.boot_slice = keys.boot_slice;
    set(&mut params.ratelimit, keys.ratelimit);
    set(&mut params.boost, keys.boost);
    params
}

fn dispatcher_params(said: &Schedulers) -> DispatcherParams {
    let (keys, mut params) = (&said.corun, DispatcherParams::default());
    set(&mut params.slice, keys.slice);
    set(&mut params.wakeup_granularity, keys.wakeup_granularity);
    set(&mut params.sleeper_credit, keys.sleeper_credit);
    set(&mut params.max_lead, keys.max_lead);
    set(&mut params.balance_interval, keys.balance_interval);
    set(&mut params.slice_timer, keys.slice_timer);
    params
}

/// A problem that has no place in the scenario.
pub fn elsewhere(message: &str) -> Problems {
    Problem::nowhere(message).into()
}

/// Replaces a default by what was given.
pub fn set<T>(value: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *value = said;
    }
}

/// The problem that a name is not among those accepted.
pub fn unknown(said: Option<&Located<String>>, known: &[&str]) -> Problems {
    match said {
        Some(said) => {
            let hint = or_nearest(&said.value, known);
            said.problem(format!("found {:?}, {hint}", said.value))
                .into()
        }
        None => elsewhere("a default is missing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_vms_and_policies_share_is_said_once() {
        let mut notes = Unheeded::default();
        for policy in ["eevdf", "fair"] {
            for vm in 1..=300 {
                notes.of(".cap", &format!("build{vm}"), policy, "has no caps");
            }
            notes.of(".slice", "a", "fair", "has no slices");
            notes.whole("the same".to_string());
        }
        let told = [
            "vm.build1.cap … vm.build300.cap (300 VMs): eevdf, fair have no caps",
            "vm.a.slice: fair has no slices",
            "the same",
        ];
        assert_eq!(notes.told(), told);
    }
}
