// SPDX-License-Identifier: GPL-2.0-only
//! The control loop: counters → policy → plan → the dispatcher's tables.
//!
//! The dispatcher never waits for it: it schedules by the last plan. The policy can be exchanged between two periods,
//! without unloading anything: to the dispatcher the first plan of the new one is a plan like any other, except that it
//! takes back what the old policy had set (apply.rs).

use crate::apply::{Base, ToldHost, apply};
use crate::by_id::ById;
use crate::cookies::Cookies;
use crate::counters::{Counters, Signs};
use crate::cycles::Cycles;
use crate::descriptors::MORE;
use crate::discovery::{MOST_BY_NAME, Vcpu, Vm, Vms};
use crate::inventory::MOST_THREADS;
use crate::ipis;
use crate::perf::{RESTRICTED, VcpuCounters};
use crate::socket::protocol::VmInForce;
use crate::tables::Tables;
use corun_model::time::{MS, SEC};
use corun_model::{
    CyclesSeen, HostSeen, Nanos, PcpuSet, Plan, Signals, Snapshot, Status, TaskId, TaskSeen,
    VmSeen, VmStatus, Wakers, counted,
};
use corun_policies::weighing::Weighing;
use corun_policies::{Policy, PolicyInfo, Settings};
use corun_system::clock;
use corun_system::procfs::ThreadKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// How often affinities, weights and threads are read again.
const THOROUGH: Nanos = SEC;

/// The counters of all vCPUs at one time.
pub(crate) type Reading = ById<Counters>;

/// How often siblings shared a pCPU when the daemon looked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stacking {
    /// pCPUs looked at, over all looks.
    pub(crate) seen: u64,
    /// Of these, pCPUs where a VM had two or more vCPUs ready or running.
    pub(crate) stacked: u64,
}

/// Why another policy is not in force.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// The old one is, as before.
    Kept(libbpf_rs::Error),
    /// Nor is the old one, completely.
    Between {
        /// What kept the new one out.
        cause: libbpf_rs::Error,
        /// What kept the old one from coming back.
        again: libbpf_rs::Error,
    },
}

/// The loop's state.
pub(crate) struct Control {
    info: &'static PolicyInfo,
    policy: Box<dyn Policy>,
    /// What it is made of.
    settings: Settings,
    since: Nanos,
    /// How often the policy was exchanged.
    pub(crate) changes: u64,
    pub(crate) vms: Vms,
    pub(crate) stacking: Stacking,
    host: HostSeen,
    online: PcpuSet,
    began: Nanos,
    /// When the policy is to be asked next.
    due: Nanos,
    thorough_due: Nanos,
    /// The counters that the policy was shown last.
    pub(crate) last: Reading,
    /// What else it was shown then; empty if it does not ask.
    last_signs: ById<Signs>,
    /// When these were read: the period that it is shown next begins here.
    before: Nanos,
    /// What was set in the dispatcher for the host. What was set for VMs and vCPUs is kept with them.
    told: ToldHost,
    /// What VMs weigh with the cgroups around theirs.
    weighing: Weighing,
    /// The VMs that the policy is for; empty: all.
    only: Vec<String>,
    /// How vCPUs' cycles divide, while the policy wants to know.
    cycles: Cycles,
    /// Which VMs may share a core.
    cookies: Cookies,
    /// Does corun prevent tasks from making cookies?
    pub(crate) cookies_are_kept_away: bool,
}

impl Control {
    /// The policy `info`, made from `settings`, in force as of now; nothing is set in the dispatcher yet. `only`: the
    /// VMs that it is for, by any of their names; all others are in fair order. Empty: it is for all. Comes before the
    /// daemon gives up its rights.
    pub(crate) fn new(
        info: &'static PolicyInfo,
        settings: Settings,
        only: Vec<String>,
        host: HostSeen,
        online: PcpuSet,
    ) -> Self {
        let began = clock::now();
        let policy = (info.make)(&settings);
        let mut cycles = Cycles::load(&host, &online);
        cycles.want(policy.wants_cycles());
        Self {
            info,
            policy,
            settings,
            since: began,
            changes: 0,
            vms: Vms::default(),
            stacking: Stacking::default(),
            cycles,
            cookies: Cookies::start(),
            cookies_are_kept_away: false,
            host,
            online,
            began,
            due: began,
            thorough_due: began,
            last: Reading::default(),
            last_signs: ById::default(),
            before: began,
            told: ToldHost::default(),
            weighing: Weighing::default(),
            only,
        }
    }

    /// Is the policy for this VM?
    pub(crate) fn is_for(&self, vm: &Vm) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| vm.identity.is_called(name))
    }

    /// The dispatcher has dropped the settings of VMs and pCPUs (dispatcher/platform/lease.h).
    pub(crate) fn tell_anew(&mut self) {
        for vm in &mut self.vms.list {
            vm.told = None;
        }
        self.told.pcpus_are_forgotten();
        self.due = clock::now();
    }

    /// When the policy wants to be asked next.
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &'static PolicyInfo {
        self.info
    }

    /// What can be set of it, with what it is set to.
    pub(crate) fn parameters(&self) -> BTreeMap<String, String> {
        self.settings.values(self.info)
    }

    /// What the policy thinks, as of its last decision.
    pub(crate) fn status(&self) -> Status {
        self.policy.status()
    }

    /// The same of each VM, for `corun policy`.
    pub(crate) fn thoughts(&self) -> Vec<VmInForce> {
        let status = self.status();
        let thought = |thought: VmStatus| {
            let vm = self.vms.list.iter().find(|vm| vm.vm == thought.vm)?;
            let vcpus = || thought.vcpus.iter();
            Some(VmInForce {
                name: vm.name.clone(),
                enforced: thought.enforced,
                loan_percent: thought.loan as f64 / 10.0,
                wakers_seen: thought.wakers != Wakers::Hidden,
                wakers: Some(thought.wakers),
                weights_percent: vcpus().map(|vcpu| f64::from(vcpu.weight) / 10.0).collect(),
                latencies_ms: vcpus()
                    .map(|vcpu| vcpu.latency as f64 / MS as f64)
                    .collect(),
            })
        };
        status.vms.into_iter().filter_map(thought).collect()
    }

    /// Since when the policy has been in force, ns of the monotonic clock.
    pub(crate) fn since(&self) -> Nanos {
        self.since
    }

    /// A period is over: asks the policy and does what it says.
    pub(crate) fn step(&mut self, tables: &Tables<'_, '_>) -> libbpf_rs::Result<()> {
        self.ask(tables, Base::AsTold)
    }

    /// Puts another policy in force, made of `settings`: returns when the dispatcher has its first
    /// plan.
    ///
    /// # Errors
    /// [`Exchange`]: it is not in force.
    pub(crate) fn exchange(
        &mut self,
        info: &'static PolicyInfo,
        settings: Settings,
        tables: &Tables<'_, '_>,
    ) -> Result<(), Exchange> {
        let before = std::mem::replace(&mut self.policy, (info.make)(&settings));
        if let Err(cause) = self.ask(tables, Base::Nothing) {
            self.policy = before;
            return Err(match self.ask(tables, Base::Nothing) {
                Ok(()) => Exchange::Kept(cause),
                Err(again) => Exchange::Between { cause, again },
            });
        }
        self.info = info;
        self.settings = settings;
        self.since = clock::now();
        self.changes += 1;
        Ok(())
    }

    fn ask(&mut self, tables: &Tables<'_, '_>, base: Base) -> libbpf_rs::Result<()> {
        let now = clock::now();
        self.due = now + self.policy.period();
        self.look(tables, now);
        self.count();
        let reading = self.read(tables)?;
        let signs = self.read_signs();
        let seen = self.snapshot(&reading, &signs, now);
        self.before = now;
        self.last = reading;
        self.last_signs = signs;
        let mut plan = Plan::default();
        self.policy.decide(&seen, &mut plan);
        apply(&mut self.vms.list, &mut self.told, &plan, base, tables)?;
        self.host.awaited_hidden = tables.look_for_awaited(&self.may_be_awaited());
        Ok(())
    }

    /// The vCPUs for which it matters that a sibling waits.
    fn may_be_awaited(&self) -> BTreeSet<ThreadKey> {
        let matters = |vm: &&Vm| vm.told.is_some_and(|told| told.flush_boost != 0);
        let vms = self.vms.list.iter().filter(matters);
        let vcpus = vms.flat_map(|vm| &vm.vcpus);
        vcpus.map(|vcpu| vcpu.key).collect()
    }

    /// Counters of vCPUs are opened when a policy first wants to see them, and closed with it; those of pCPUs,
    /// which divide vCPUs' cycles, too.
    fn count(&mut self) {
        self.cycles.want(self.policy.wants_cycles());
        self.cycles
            .watch(self.vms.list.iter().flat_map(|vm| &vm.vcpus));
        let wanted = self.policy.wants_signals();
        for vcpu in self.vms.list.iter_mut().flat_map(|vm| &mut vm.vcpus) {
            if wanted != vcpu.counters.is_some() {
                vcpu.counters = wanted.then(|| VcpuCounters::open(vcpu.key.tid));
            }
        }
    }

    /// What the policy in force cannot see or do here, for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.status().notes;
        notes.extend(self.cycles.note());
        if self.told.keeps_cookies() {
            notes.extend(self.cookies.note());
        }
        if self.cookies_are_kept_away {
            notes.push(
                "core-scheduling cookies cannot be made meanwhile (prctl says ENODEV): on SMT hosts they have hung the \
                 kernel under every sched_ext scheduler"
                    .to_string(),
            );
        }
        if let Some(names) = self.tagged() {
            notes.push(format!(
                "DANGER: vCPUs have core-scheduling cookies, which have hung SMT hosts under every sched_ext scheduler: {names}"
            ));
        }
        let mut vcpus = self.vms.list.iter().flat_map(|vm| &vm.vcpus);
        let refused = |vcpu: &Vcpu| vcpu.counters.as_ref().is_some_and(VcpuCounters::refused);
        if vcpus.any(refused) {
            notes.push(format!(
                "the kernel refuses counters of vCPUs, and the policy does without ({RESTRICTED}, then change to \
                 another policy and back)"
            ));
        }
        notes.extend(crowded(&self.vms.list));
        notes.extend(overlooked(&self.vms.list));
        notes.extend(self.told.note(&self.vms.list));
        if !self.only.is_empty() {
            let under = self.vms.list.iter().filter(|vm| self.is_for(vm)).count();
            let all = self.vms.list.len();
            notes.push(format!(
                "canary: {under} of {all} VMs are under the policy, the others in fair order"
            ));
        }
        notes
    }

    /// The VMs whose vCPUs have core-scheduling cookies, if any have.
    pub(crate) fn tagged(&self) -> Option<String> {
        let names = self.cookies.tagged();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The pCPUs that are scheduled.
    pub(crate) fn online(&self) -> &PcpuSet {
        &self.online
    }

    /// What the policy takes a vCPU to be, if it has types.
    pub(crate) fn recognised(&self, task: TaskId) -> Option<&'static str> {
        self.policy.recognised(task)
    }

    /// Finds VMs, and samples stacking while it has the table at hand.
    fn look(&mut self, tables: &Tables<'_, '_>, now: Nanos) {
        let pcpus = self.online.iter().last().map_or(0, |last| last.0 + 1);
        let slots = tables.vms(pcpus);
        let stacked = slots
            .iter()
            .fold(PcpuSet::default(), |all, slot| all.or(&slot.stacked));
        self.stacking.seen += u64::from(self.online.len());
        self.stacking.stacked += u64::from(stacked.and(&self.online).len());
        let thorough = now >= self.thorough_due;
        if thorough {
            self.thorough_due = now + THOROUGH;
            // KVM's modules may be loaded anew, with other parameters.
            self.host.wakers_hidden = ipis::hide_wakers(Path::new("/"));
        }
        self.vms.refresh(&slots, tables, thorough);
        self.cookies.refresh(&self.vms.list, thorough);
    }

    /// Reads the counters of all vCPUs, and forgets vCPUs that have gone.
    pub(crate) fn read(&mut self, tables: &Tables<'_, '_>) -> libbpf_rs::Result<Reading> {
        let mut gone = BTreeSet::new();
        let vcpus: Vec<&Vcpu> = self.vms.list.iter().flat_map(|vm| &vm.vcpus).collect();
        let mut known = Vec::with_capacity(vcpus.len());
        tables.vcpus(&vcpus, |vcpu, ctx| match ctx {
            Some((ctx, at)) => {
                known.push((vcpu.task, Counters::of(ctx, at)));
            }
            None => {
                gone.insert(vcpu.task);
            }
        })?;
        let reading = Reading::of(known);
        self.vms.drop_gone(&gone);
        Ok(reading)
    }

    /// How a vCPU's cycles divide, while the policy in force wants to know.
    pub(crate) fn cycles_of(&self, vcpu: &Vcpu) -> Option<CyclesSeen> {
        self.cycles.read(vcpu.key)
    }

    /// Reads the other signals of all vCPUs that this host has, if the policy in force asks for them.
    fn read_signs(&self) -> ById<Signs> {
        if !self.policy.wants_signals() && self.policy.wants_cycles().is_none() {
            return ById::default();
        }
        let vcpus = self.vms.list.iter().map(|vm| vm.vcpus.len()).sum();
        let mut signs = Vec::with_capacity(vcpus);
        for vcpu in self.vms.list.iter().flat_map(|vm| &vm.vcpus) {
            let tally = vcpu.counters.as_ref().map(VcpuCounters::read);
            let (tally, cycles) = (tally.unwrap_or_default(), self.cycles_of(vcpu));
            signs.push((vcpu.task, Signs { tally, cycles }));
        }
        ById::of(signs)
    }

    fn snapshot(&mut self, reading: &Reading, signs: &ById<Signs>, now: Nanos) -> Snapshot {
        // Counters begin with the task: what was not there then has begun since.
        let (nothing, no_signs) = (Counters::default(), Signs::default());
        let signals = |task: TaskId| {
            let before = || self.last_signs.get(task).unwrap_or(&no_signs);
            let signs = signs.get(task);
            signs.map_or_else(Signals::default, |signs| signs.since(before()))
        };
        let task = |vcpu: &Vcpu, tids: &[(u32, TaskId)]| {
            let sum = reading.get(vcpu.task).unwrap_or(&nothing);
            let before = self.last.get(vcpu.task).unwrap_or(&nothing);
            TaskSeen {
                task: vcpu.task,
                allowed: vcpu.allowed.and(&self.online),
                weight: vcpu.own.weight,
                quota: vcpu.own.quota,
                run: sum.run.saturating_sub(before.run),
                ready: sum.ready.saturating_sub(before.ready),
                wait: sum.wait.saturating_sub(before.wait),
                turns: sum.turns_since(before, self.before, tids),
                signals: signals(vcpu.task),
            }
        };
        let mut tids = Vec::new();
        let mut vm = |vm: &Vm| VmSeen {
            vm: vm.vm,
            weight: vm.weight,
            effective: None,
            quotas: Vec::new(),
            cookie: self.cookies.of(vm.vm),
            vcpus: {
                tids.clear();
                tids.extend(vm.vcpus.iter().map(|vcpu| (vcpu.key.tid, vcpu.task)));
                tids.sort_unstable();
                vm.vcpus.iter().map(|vcpu| task(vcpu, &tids)).collect()
            },
        };
        let (mut vms, mut others) = (Vec::new(), Vec::new());
        for it in &self.vms.list {
            match self.is_for(it) {
                true => vms.push(vm(it)),
                false => others.push(vm(it)),
            }
        }
        let mut seen = Snapshot {
            now: now - self.began,
            host: self.host.clone(),
            vms,
            others,
        };
        let vms = &self.vms;
        self.weighing.weigh(&mut seen, &|vm| vms.place(vm));
        seen
    }
}

/// What is not known about these VMs for lack of descriptors, for people.
fn crowded(vms: &[Vm]) -> Option<String> {
    let threads: usize = vms.iter().map(|vm| vm.left_out).sum();
    let counters = vms.iter().flat_map(|vm| &vm.vcpus);
    let crowded = |vcpu: &&Vcpu| vcpu.counters.as_ref().is_some_and(VcpuCounters::crowded);
    let counters = counters.filter(crowded).count();
    (threads + counters > 0).then(|| {
        format!(
            "no descriptors are left for {} of VMs, which are therefore in fair order, and for counters of {}: {MORE}",
            counted(threads, "thread"),
            counted(counters, "vCPU")
        )
    })
}

/// What is not known about these VMs because a process has too many threads, for people.
fn overlooked(vms: &[Vm]) -> Option<String> {
    let worst = vms.iter().max_by_key(|vm| vm.settled.beyond)?;
    let threads: usize = vms.iter().map(|vm| vm.settled.beyond).sum();
    (threads > 0).then(|| {
        format!(
            "{} of VMs are not looked at, and are therefore in fair order, most of them of {:?}: the most for a \
             process is {MOST_THREADS}, and, of threads named as vCPUs, {MOST_BY_NAME} more than have run as such",
            counted(threads, "thread"),
            worst.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::host as host_of_three;

    #[test]
    fn counters_are_found_whichever_thread_has_gone() {
        let with = |run| {
            let mut counters = Counters::default();
            counters.run = run;
            counters
        };
        let all = [9, 3, 4, 5].map(|id| (TaskId(id), with(u64::from(id))));
        let reading = Reading::of(all.to_vec());
        let run = |id| reading.get(TaskId(id)).map(|counters| counters.run);
        let found: Vec<_> = (2..=10).map(run).collect();
        let expected = [
            None,
            Some(3),
            Some(4),
            Some(5),
            None,
            None,
            None,
            Some(9),
            None,
        ];
        assert_eq!(found, expected);
        assert_eq!(Reading::default().get(TaskId(0)), None);
    }

    #[test]
    fn a_canary_is_told_of_the_others_too() {
        let seen = |only: &[&str]| {
            let (info, online) = (corun_policies::find("jupiter").unwrap(), PcpuSet::first(2));
            let host = HostSeen::of("1n1l2c1t".parse().unwrap());
            let only = only.iter().map(ToString::to_string).collect();
            let mut control = Control::new(info, Settings::default(), only, host, online);
            control.vms.list = host_of_three().0;
            for vm in &mut control.vms.list {
                vm.identity.name.clone_from(&vm.name);
            }
            let seen = control.snapshot(&Reading::default(), &ById::default(), clock::now());
            let numbers = |vms: &[VmSeen]| vms.iter().map(|vm| vm.vm.0).collect::<Vec<_>>();
            (numbers(&seen.vms), numbers(&seen.others))
        };
        assert_eq!(seen(&["vm1"]), (vec![1], vec![0, 2]));
        assert_eq!(seen(&[]), (vec![0, 1, 2], vec![]));
    }

    #[test]
    fn threads_without_descriptors_are_told_of() {
        let (mut vms, _) = host_of_three();
        assert_eq!(crowded(&vms), None);
        vms[1].left_out = 3;
        let note = crowded(&vms).unwrap();
        assert!(
            note.contains("3 threads") && note.contains("LimitNOFILE="),
            "{note}"
        );
    }

    #[test]
    fn threads_that_are_too_many_are_told_of() {
        let (mut vms, _) = host_of_three();
        assert_eq!(overlooked(&vms), None);
        assert_eq!(overlooked(&[]), None);
        (vms[0].settled.beyond, vms[1].settled.beyond) = (1, 41_808);
        let note = overlooked(&vms).unwrap();
        assert!(
            note.contains("41809 threads") && note.contains("\"vm1\""),
            "{note}"
        );
    }
}
