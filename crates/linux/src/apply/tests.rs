// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::discovery::{Settled, VmCounts};
use crate::helpers::Helper;
use crate::inventory::Role;
use crate::vcpu_own::Own;
use corun_model::{
    HostSeen, PcpuSet, Placement, Signals, Snapshot, TaskId, TaskSeen, Turns, VmId, VmSeen,
};
use corun_policies::Settings;
use corun_policies::weighing::Place;
use corun_system::procfs::ThreadKey;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::AsRawFd;

/// The dispatcher's tables, by slot and by descriptor.
#[derive(Default)]
struct Fake {
    vms: RefCell<BTreeMap<u32, VmConf>>,
    tasks: RefCell<BTreeMap<i32, TaskConf>>,
    pools: RefCell<BTreeMap<u32, PoolConf>>,
    /// What the daemon remembers of them.
    told: RefCell<ToldHost>,
    pcpus: RefCell<BTreeMap<u32, PcpuConf>>,
    parts: Cell<Parts>,
    writes: Cell<usize>,
    /// The number of the first write that fails; those after it fail, too.
    fails_at: Cell<Option<usize>>,
    /// Nothing can be set for this thread.
    refuses: Cell<Option<i32>>,
}

impl Fake {
    fn apply(&self, list: &mut [Vm], plan: &Plan, base: Base) -> libbpf_rs::Result<()> {
        apply(list, &mut self.told.borrow_mut(), plan, base, self)
    }

    fn write(&self) -> libbpf_rs::Result<()> {
        let number = self.writes.get();
        self.writes.set(number + 1);
        match self.fails_at.get() {
            Some(at) if number >= at => Err(libbpf_rs::Error::from_raw_os_error(libc::ENOMEM)),
            _ => Ok(()),
        }
    }

    /// What the dispatcher finds, vCPU by vCPU: descriptors have no order, other tests open and close some meanwhile.
    /// Entries with defaults only are left out.
    fn state(&self, list: &[Vm]) -> State {
        let told = self.tasks.borrow();
        let threads = list.iter().flat_map(|vm| {
            let vcpus = vm.vcpus.iter().map(|vcpu| &vcpu.pidfd);
            vcpus.chain(vm.helpers.iter().map(|helper| &helper.pidfd))
        });
        let tasks = threads.filter_map(|pidfd| told.get(&pidfd.as_raw_fd()).copied());
        let pcpus = self.pcpus.borrow();
        State {
            vms: self.vms.borrow().values().copied().collect(),
            tasks: tasks.filter(|conf| *conf != TaskConf::default()).collect(),
            pcpus: pcpus
                .values()
                .copied()
                .filter(|conf| *conf != PcpuConf::default())
                .collect(),
            parts: self.parts.get(),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct State {
    vms: Vec<VmConf>,
    tasks: Vec<TaskConf>,
    pcpus: Vec<PcpuConf>,
    parts: Parts,
}

impl Told for Fake {
    fn set_vm_conf(&self, slot: u32, conf: VmConf) -> libbpf_rs::Result<()> {
        let void = VmConf { id: 0, ..conf };
        self.vms.borrow_mut().insert(slot, void);
        self.write()?;
        self.vms.borrow_mut().insert(slot, conf);
        Ok(())
    }

    fn set_task_conf(&self, pidfd: BorrowedFd<'_>, conf: TaskConf) -> libbpf_rs::Result<bool> {
        if self.refuses.get() == Some(pidfd.as_raw_fd()) {
            return Err(libbpf_rs::Error::from_raw_os_error(libc::ENOMEM));
        }
        self.write()?;
        self.tasks.borrow_mut().insert(pidfd.as_raw_fd(), conf);
        Ok(true)
    }

    fn set_pool_conf(&self, pool: u32, conf: PoolConf) -> libbpf_rs::Result<()> {
        self.write()?;
        self.pools.borrow_mut().insert(pool, conf);
        Ok(())
    }

    fn set_pcpu_conf(&self, cpu: u32, conf: PcpuConf) -> libbpf_rs::Result<()> {
        self.write()?;
        self.pcpus.borrow_mut().insert(cpu, conf);
        Ok(())
    }

    fn set_parts(&self, parts: Parts) {
        self.writes.set(self.writes.get() + 1);
        self.parts.set(parts);
    }
}

/// Three VMs with two vCPUs each on the two hardware threads of a core.
pub(crate) fn host() -> (Vec<Vm>, Snapshot) {
    let key = |tid| ThreadKey {
        tgid: 1 + tid / 10,
        tid,
        start: 1,
    };
    let vcpu = |task: u32| Vcpu {
        task: TaskId(task),
        key: key(task),
        number: Some(task % 2),
        // Any descriptor will do: it is never used here.
        pidfd: File::open("/dev/null").unwrap().into(),
        allowed: PcpuSet::first(2),
        own: Own::NEUTRAL,
        told: None,
        owed: None,
        counters: None,
    };
    let helper = |tid: u32| Helper {
        key: key(tid),
        role: Role::Io,
        pidfd: File::open("/dev/null").unwrap().into(),
        told: TaskConf::default(),
    };
    let vm = |vm: u32| Vm {
        vm: VmId(vm),
        slot: vm,
        key: key(10 * vm),
        identity: crate::inventory::Identity::default(),
        name: format!("vm{vm}"),
        cgroup: None,
        own_cgroup: None,
        weight: None,
        place: Place::default(),
        vcpus: vec![vcpu(10 * vm), vcpu(10 * vm + 1)],
        helpers: vec![helper(10 * vm + 5)],
        counts: VmCounts::default(),
        counted: 2,
        settled: Settled::default(),
        left_out: 0,
        told: None,
    };
    let seen = |vm: &Vm| VmSeen {
        vm: vm.vm,
        weight: None,
        effective: None,
        quotas: Vec::new(),
        cookie: 0,
        vcpus: vm
            .vcpus
            .iter()
            .map(|vcpu| TaskSeen {
                task: vcpu.task,
                allowed: vcpu.allowed,
                weight: vcpu.own.weight,
                quota: vcpu.own.quota,
                run: 0,
                ready: 0,
                wait: 0,
                turns: Turns::default(),
                signals: Signals::default(),
            })
            .collect(),
    };
    let list: Vec<Vm> = (0..3).map(vm).collect();
    let snapshot = Snapshot {
        now: 0,
        host: HostSeen::of("1n1l1c2t".parse().unwrap()),
        vms: list.iter().map(seen).collect(),
        others: Vec::new(),
    };
    (list, snapshot)
}

fn plan(policy: &corun_policies::PolicyInfo, seen: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    (policy.make)(&Settings::default()).decide(seen, &mut plan);
    plan
}

/// After any policy, a policy leaves the tables as it does on a host that had no other before.
#[test]
fn nothing_of_the_old_policy_is_left() {
    for first in corun_policies::all() {
        for second in corun_policies::all() {
            let (mut list, seen) = host();
            let alone = Fake::default();
            alone
                .apply(&mut list, &plan(first, &seen), Base::AsTold)
                .unwrap();
            alone
                .apply(&mut list, &plan(second, &seen), Base::Nothing)
                .unwrap();
            let (mut fresh, seen) = host();
            let expected = Fake::default();
            expected
                .apply(&mut fresh, &plan(second, &seen), Base::Nothing)
                .unwrap();
            assert_eq!(
                alone.state(&list),
                expected.state(&fresh),
                "{} after {}",
                second.name,
                first.name
            );
        }
    }
}

#[test]
fn slices_and_homes_not_mentioned_are_taken_back() {
    let (mut list, _) = host();
    let fake = Fake::default();
    let task = TaskPlan {
        task: TaskId(0),
        slice: Some(7_000_000),
        home: Some(corun_model::PcpuId(1)),
        pool: Some(2),
        ..TaskPlan::of(TaskId(0))
    };
    let mut said = Plan::default();
    said.tasks.push(task);
    fake.apply(&mut list, &said, Base::AsTold).unwrap();
    let expected = [TaskConf {
        slice: 7_000_000,
        home: 2,
        pool: 3,
        ..Default::default()
    }];
    assert_eq!(fake.state(&list).tasks, expected);
    fake.apply(&mut list, &Plan::default(), Base::AsTold)
        .unwrap();
    assert_eq!(
        fake.state(&list).tasks,
        expected,
        "a policy adds to what it said"
    );
    fake.apply(&mut list, &Plan::default(), Base::Nothing)
        .unwrap();
    assert_eq!(fake.state(&list).tasks, []);
}

/// As in the simulator: `calm` gives a vCPU the host's slice again by giving none.
#[test]
fn what_is_said_of_a_vcpu_replaces_what_was_said_of_it() {
    let (mut list, _) = host();
    let fake = Fake::default();
    let slice = Some(7_000_000);
    for (slice, expected) in [(slice, 7_000_000), (None, 0)] {
        let mut said = Plan::default();
        said.tasks.push(TaskPlan {
            home: Some(corun_model::PcpuId(1)),
            slice,
            ..TaskPlan::of(TaskId(0))
        });
        fake.apply(&mut list, &said, Base::AsTold).unwrap();
        let told = fake.state(&list).tasks;
        assert_eq!((told[0].home, told[0].slice), (2, expected));
    }
}

/// Wherever the tables fail, the old policy's plan, applied again, leaves what was there.
#[test]
fn an_exchange_that_fails_can_be_taken_back() {
    for first in corun_policies::all() {
        for second in corun_policies::all() {
            for fails_at in 0.. {
                let (mut list, seen) = host();
                let fake = Fake::default();
                let before = plan(first, &seen);
                fake.apply(&mut list, &before, Base::Nothing).unwrap();
                let expected = fake.state(&list);
                fake.fails_at.set(Some(fake.writes.get() + fails_at));
                let failed = fake
                    .apply(&mut list, &plan(second, &seen), Base::Nothing)
                    .is_err();
                fake.fails_at.set(None);
                fake.apply(&mut list, &before, Base::Nothing).unwrap();
                let after = fake.state(&list);
                assert_eq!(after, expected, "{} after {}", second.name, first.name);
                if !failed {
                    break;
                }
            }
        }
    }
}

/// A task's table takes memory, which may be short for a moment.
#[test]
fn a_vcpu_that_cannot_be_told_is_told_later_and_all_others_at_once() {
    let (mut list, seen) = host();
    let (mut other, _) = host();
    let [fake, whole] = [(); 2].map(|()| Fake::default());
    let said = plan(corun_policies::find("vsmtio").unwrap(), &seen);
    whole.apply(&mut other, &said, Base::Nothing).unwrap();
    let expected = whole.state(&other);
    fake.refuses.set(Some(list[0].vcpus[0].pidfd.as_raw_fd()));
    fake.apply(&mut list, &said, Base::Nothing).unwrap();
    assert_eq!(fake.state(&list).vms, expected.vms);
    assert_eq!(fake.state(&list).tasks, expected.tasks[1..]);
    let note = fake.told.borrow().note(&list).unwrap();
    assert!(
        note.starts_with("the policy's settings for 1 vCPU, "),
        "{note}"
    );
    // The plan of the next period need not speak of it again.
    fake.refuses.set(None);
    fake.apply(&mut list, &Plan::default(), Base::AsTold)
        .unwrap();
    assert_eq!(fake.state(&list).tasks, expected.tasks);
    assert_eq!(fake.told.borrow().note(&list), None);
}

/// What another policy had wanted does not bind this one.
#[test]
fn what_a_vcpu_is_owed_ends_with_the_policy() {
    let (mut list, seen) = host();
    let fake = Fake::default();
    let said = plan(corun_policies::find("vsmtio").unwrap(), &seen);
    fake.refuses.set(Some(list[0].vcpus[0].pidfd.as_raw_fd()));
    fake.apply(&mut list, &said, Base::Nothing).unwrap();
    fake.refuses.set(None);
    fake.apply(&mut list, &Plan::default(), Base::Nothing)
        .unwrap();
    fake.apply(&mut list, &Plan::default(), Base::AsTold)
        .unwrap();
    assert_eq!(fake.state(&list).tasks, []);
}

#[test]
fn helpers_that_cannot_be_told_are_told_later() {
    let (mut list, _) = host();
    let fake = Fake::default();
    let said = pooled(&list, [1, 1], Placement::Pool);
    fake.refuses.set(Some(list[0].helpers[0].pidfd.as_raw_fd()));
    fake.apply(&mut list, &said, Base::AsTold).unwrap();
    assert_eq!(of_helpers(&fake, &list[0]), TaskConf::default());
    fake.refuses.set(None);
    fake.apply(&mut list, &Plan::default(), Base::AsTold)
        .unwrap();
    assert_eq!(of_helpers(&fake, &list[0]).pool, 2);
}

#[test]
fn what_holds_already_is_not_written_again() {
    let (mut list, seen) = host();
    let fake = Fake::default();
    for policy in corun_policies::all() {
        let plan = plan(policy, &seen);
        fake.apply(&mut list, &plan, Base::Nothing).unwrap();
        let writes = fake.writes.get();
        fake.apply(&mut list, &plan, Base::AsTold).unwrap();
        fake.apply(&mut list, &plan, Base::Nothing).unwrap();
        assert_eq!(fake.writes.get(), writes, "{}", policy.name);
    }
}

/// They change with what any other VM leaves unused: each change for itself would be a system call per vCPU and period.
#[test]
fn an_allotment_is_told_again_if_it_differs_by_more_than_an_eighth() {
    let (mut list, _) = host();
    let fake = Fake::default();
    let mut told = |share, allotment, base| {
        let mut said = Plan::default();
        said.tasks.push(TaskPlan {
            claim: Some(corun_model::Claim {
                share,
                latency: 4_000_000,
                allotment,
            }),
            ..TaskPlan::of(TaskId(0))
        });
        fake.apply(&mut list, &said, base).unwrap();
        let conf = fake.state(&list).tasks[0];
        (conf.share, conf.allotment)
    };
    let drifts = [(8000, 8000), (8999, 8000), (7001, 8000), (9001, 9001)];
    for (wanted, holds) in drifts {
        assert_eq!(told(1000, wanted, Base::AsTold), (1000, holds));
    }
    // Shares are written exactly, and what goes with them; so is everything that another policy begins with.
    assert_eq!(told(1001, 9002, Base::AsTold), (1001, 9002));
    assert_eq!(told(1001, 9003, Base::Nothing), (1001, 9003));
}

/// `lease_lapse()` of dispatcher/platform/lease.h, and a daemon that is back.
#[test]
fn what_a_lapse_took_back_is_told_again() {
    let (mut list, seen) = host();
    let fake = Fake::default();
    let mut held = 0;
    for policy in corun_policies::all() {
        let plan = plan(policy, &seen);
        fake.apply(&mut list, &plan, Base::Nothing).unwrap();
        let before = fake.state(&list);
        for conf in fake.vms.borrow_mut().values_mut() {
            (conf.gang, conf.placement) = (0, 0);
        }
        for conf in fake.pcpus.borrow_mut().values_mut() {
            held += u32::from(conf.hold != 0);
            conf.hold = 0;
        }
        for vm in &mut list {
            vm.told = None;
        }
        fake.told.borrow_mut().pcpus_are_forgotten();
        fake.apply(&mut list, &plan, Base::AsTold).unwrap();
        assert_eq!(fake.state(&list), before, "{}", policy.name);
    }
    assert!(held > 0, "none of the policies holds pCPUs");
}

/// Turns (`dispatcher/turn.h`) are for policies without gangs and cores: in the kernel, too.
#[test]
fn only_policies_with_gangs_or_cores_have_them_looked_at() {
    let needed = |name: &str| {
        let (mut list, seen) = host();
        let fake = Fake::default();
        let policy = corun_policies::find(name).unwrap();
        fake.apply(&mut list, &plan(policy, &seen), Base::AsTold)
            .unwrap();
        fake.parts.get()
    };
    let parts = |gangs, cores, tasks| Parts {
        gangs,
        cores,
        tasks,
        micro: false,
    };
    for name in ["fair", "balance"] {
        assert_eq!(needed(name), parts(false, false, false), "{name}");
    }
    assert_eq!(needed("aql"), parts(false, false, true));
    assert_eq!(needed("cosched-strict"), parts(true, false, false));
    assert_eq!(needed("vsmtio"), parts(false, true, true));
}

/// When a policy leaves all VMs alone for a while, the dispatcher decides as without gangs again: the policy need not
/// be exchanged for that. One VM that has a gang, mentioned or not, keeps gangs on for all.
#[test]
fn gangs_are_looked_at_while_some_vm_has_one() {
    let (mut list, seen) = host();
    let fake = Fake::default();
    let jupiter = corun_policies::find("jupiter").unwrap();
    let on = plan(jupiter, &seen);
    let alone = |vm: &VmPlan| VmPlan::placed(vm.vm, Placement::Balance);
    let off = Plan {
        vms: on.vms.iter().map(alone).collect(),
        ..Plan::default()
    };
    let some = Plan {
        vms: off.vms.iter().take(1).cloned().collect(),
        ..Plan::default()
    };
    let mut gangs = |plan: &Plan| {
        fake.apply(&mut list, plan, Base::AsTold).unwrap();
        fake.parts.get().gangs
    };
    assert_eq!(
        [&on, &some, &off, &on].map(&mut gangs),
        [true, seen.vms.len() > 1, false, true]
    );
}

/// The dispatcher may decide between any two writes: a vCPU that stays in a gang is in it from the first write to the
/// last.
#[test]
fn parts_are_there_before_the_plan_that_needs_them() {
    let (mut list, seen) = host();
    let fake = Fake::default();
    let policy = corun_policies::find("cosched-strict").unwrap();
    fake.fails_at.set(Some(1));
    let failed = fake.apply(&mut list, &plan(policy, &seen), Base::AsTold);
    assert!(failed.is_err());
    assert!(fake.parts.get().gangs);
}

/// A plan that has the first VM's vCPUs in these pools, under `placement`.
fn pooled(list: &[Vm], pools: [usize; 2], placement: Placement) -> Plan {
    let vcpus = list[0].vcpus.iter().zip(pools);
    Plan {
        vms: vec![VmPlan::placed(list[0].vm, placement)],
        tasks: vcpus
            .map(|(vcpu, pool)| TaskPlan {
                pool: Some(pool),
                ..TaskPlan::of(vcpu.task)
            })
            .collect(),
        ..Plan::default()
    }
}

/// What was set for the helpers of a VM.
fn of_helpers(fake: &Fake, vm: &Vm) -> TaskConf {
    let fd = vm.helpers[0].pidfd.as_raw_fd();
    fake.tasks.borrow().get(&fd).copied().unwrap_or_default()
}

#[test]
fn helpers_are_in_the_pool_that_most_of_their_vms_vcpus_are_in() {
    let (mut list, _) = host();
    let fake = Fake::default();
    let in_pool = |pool| TaskConf {
        pool,
        ..TaskConf::default()
    };
    for (pools, expected) in [([3, 3], 4), ([2, 1], 2), ([1, 1], 2)] {
        let plan = pooled(&list, pools, Placement::Pool);
        fake.apply(&mut list, &plan, Base::AsTold).unwrap();
        assert_eq!(of_helpers(&fake, &list[0]), in_pool(expected), "{pools:?}");
    }
    // For a VM that the plan does not mention, such as one outside a canary, nothing is set.
    assert_eq!(of_helpers(&fake, &list[1]), TaskConf::default());
    // Another policy takes it back.
    fake.apply(&mut list, &Plan::default(), Base::Nothing)
        .unwrap();
    assert_eq!(of_helpers(&fake, &list[0]), TaskConf::default());
}

/// Gangs, homes and holds are vCPUs' business.
#[test]
fn without_pools_nothing_is_said_of_helpers() {
    for policy in corun_policies::all() {
        let (mut list, seen) = host();
        let fake = Fake::default();
        fake.apply(&mut list, &plan(policy, &seen), Base::Nothing)
            .unwrap();
        for vm in &list {
            let pooled = vm.told.unwrap().placement == Placement::Pool.number();
            let told = of_helpers(&fake, vm);
            assert_eq!(told.pool > 0, pooled, "{}", policy.name);
            let rest = TaskConf { pool: 0, ..told };
            assert_eq!(rest, TaskConf::default(), "{}", policy.name);
        }
    }
}
