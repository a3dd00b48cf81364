// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::testing::{ask, snapshot};
use crate::{Microsliced, VSlicer, VTurbo};
use corun_model::time::MS;
use corun_model::{LlcSeen, Signals};
use proptest::prelude::*;

/// A host of four pCPUs with these single-vCPU VMs, after a period in which all of them ran.
fn host(kinds: &[Kind]) -> Snapshot {
    let mut seen = snapshot(4, &vec![1; kinds.len()]);
    for (vm, kind) in seen.vms.iter_mut().zip(kinds) {
        vm.vcpus[0].run = 7 * MS;
        vm.vcpus[0].signals = signals(*kind);
    }
    seen
}

fn signals(kind: Kind) -> Signals {
    let (references, misses) = match kind {
        Kind::Llcf => (20_000, 100),
        Kind::Llco => (20_000, 20_000),
        _ => (0, 0),
    };
    Signals {
        io_events: Some(if kind == Kind::IoInt { 100 } else { 0 }),
        pause_exits: Some(if kind == Kind::ConSpin { 100 } else { 0 }),
        llc: Some(LlcSeen {
            instructions: 1_000_000,
            references,
            misses,
        }),
        ..Signals::default()
    }
}

/// What a policy says once it knows what it has to do with.
fn settled(policy: &mut dyn Policy, seen: &Snapshot) -> Plan {
    (0..vtrs::WINDOW + 1).for_each(|_| drop(ask(policy, seen)));
    ask(policy, seen)
}

/// Each vCPU's slice in ms and number of pCPUs.
fn served(plan: &Plan) -> Vec<(u64, u32)> {
    let of = |task: &TaskPlan| {
        let pool = &plan.pools[task.pool.unwrap()];
        (pool.slice / MS, pool.pcpus.len())
    };
    plan.tasks.iter().map(of).collect()
}

#[test]
fn from_counters_to_pools() {
    use Kind::{ConSpin, IoInt, Llcf, Llco, LoLcf};
    let kinds = [IoInt, Llcf, ConSpin, Llco, IoInt, Llcf, LoLcf, Llcf];
    let seen = host(&kinds);
    let mut policy = Aql::default();
    assert_eq!(
        served(&ask(&mut policy, &seen)),
        [(30, 4); 8],
        "nothing known yet"
    );
    let plan = settled(&mut policy, &seen);
    let expected = [
        (1, 2),
        (90, 2),
        (1, 2),
        (1, 2),
        (1, 2),
        (90, 2),
        (90, 2),
        (90, 2),
    ];
    assert_eq!(served(&plan), expected);
    assert!(policy.status().notes.is_empty());
}

/// Figure 7: the pools are the same, and all have one slice.
#[test]
fn one_slice_for_all_leaves_pools_as_they_are() {
    use Kind::{IoInt, Llcf, Llco};
    let seen = host(&[IoInt, Llcf, IoInt, Llco, IoInt, Llcf, IoInt, Llcf]);
    let own = settled(&mut Aql::default(), &seen);
    assert!(own.pools.len() > 1, "{own:?}");
    for slice in [MS, 30 * MS, 90 * MS] {
        let mut policy = Aql::new(AqlParams {
            uniform: Some(slice),
            ..AqlParams::default()
        });
        let plan = settled(&mut policy, &seen);
        let pcpus = |plan: &Plan| plan.pools.iter().map(|it| it.pcpus).collect::<Vec<_>>();
        assert_eq!((pcpus(&plan), plan.tasks), (pcpus(&own), own.tasks.clone()));
        assert!(plan.pools.iter().all(|pool| pool.slice == slice));
    }
}

/// How many pCPUs those with slices of 1 ms have of four, beside as many with slices of 90.
fn quick_ones_have(set: impl Fn(&mut Snapshot)) -> u32 {
    let mut seen = snapshot(4, &[4, 4]);
    for (vm, kind) in seen.vms.iter_mut().zip([Kind::IoInt, Kind::Llcf]) {
        for vcpu in &mut vm.vcpus {
            (vcpu.run, vcpu.signals) = (7 * MS, signals(kind));
        }
    }
    set(&mut seen);
    let plan = settled(&mut Aql::default(), &seen);
    served(&plan)
        .iter()
        .find(|(slice, _)| *slice == 1)
        .unwrap()
        .1
}

/// A VM without a weight counts for what its vCPUs weigh, and one with a weight for that, however they divide it.
#[test]
fn pools_have_pcpus_by_what_their_vcpus_weigh() {
    let weigh = |vm: &mut corun_model::VmSeen, weight| {
        vm.vcpus.iter_mut().for_each(|vcpu| vcpu.weight = weight);
    };
    assert_eq!(quick_ones_have(|_| ()), 2);
    assert_eq!(quick_ones_have(|seen| weigh(&mut seen.vms[0], 300)), 3);
    assert_eq!(quick_ones_have(|seen| weigh(&mut seen.vms[1], 300)), 1);
    let by_vms = |seen: &mut Snapshot| {
        weigh(&mut seen.vms[0], 300);
        seen.vms.iter_mut().for_each(|vm| vm.weight = Some(100));
    };
    assert_eq!(quick_ones_have(by_vms), 2);
}

/// Two caches of four pCPUs: a VM that can use half a pCPU does not have one to itself.
#[test]
fn quotas_count_where_pools_are_made() {
    let mut seen = snapshot(8, &[8, 8]);
    seen.host.llcs = vec!["0-3".parse().unwrap(), "4-7".parse().unwrap()];
    for vm in &mut seen.vms {
        vm.weight = Some(100);
        for vcpu in &mut vm.vcpus {
            (vcpu.run, vcpu.ready) = (7 * MS, 23 * MS);
            vcpu.signals = signals(Kind::Llcf);
        }
    }
    let mut policy = Aql::default();
    let mut have = |seen: &Snapshot| {
        let plan = settled(&mut policy, seen);
        [0, 8].map(|first: usize| {
            let pools = plan.tasks[first..][..8]
                .iter()
                .map(|task| task.pool.unwrap());
            let pcpus = pools.map(|pool| plan.pools[pool].pcpus);
            pcpus
                .fold(PcpuSet::default(), |all, some| all.or(&some))
                .len()
        })
    };
    assert_eq!(have(&seen), [4, 4]);
    let half = Quota {
        of: 1,
        time: SEC / 2,
    };
    seen.vms[0].quotas = vec![half];
    assert_eq!(have(&seen), [4, 8]);
    seen.vms[0].quotas.clear();
    assert_eq!(have(&seen), [4, 4]);
    let own = |quota: Option<Nanos>, seen: &mut Snapshot| {
        let vcpus = seen.vms[0].vcpus.iter_mut();
        vcpus.for_each(|vcpu| vcpu.quota = quota);
    };
    own(Some(SEC / 16), &mut seen);
    assert_eq!(have(&seen), [4, 8]);
    own(None, &mut seen);
    assert_eq!(have(&seen), [4, 4]);
}

#[test]
fn a_vcpu_that_did_not_run_keeps_its_type() {
    let mut seen = host(&[Kind::Llcf, Kind::IoInt]);
    let mut policy = Aql::default();
    let before = settled(&mut policy, &seen);
    seen.vms[0].vcpus[0].run = 0;
    seen.vms[0].vcpus[0].signals = signals(Kind::LoLcf);
    assert_eq!(settled(&mut policy, &seen), before);
}

#[test]
fn a_host_that_tells_nothing_is_one_pool_and_says_so() {
    let mut seen = host(&[Kind::IoInt, Kind::Llcf]);
    let vcpus = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
    vcpus.for_each(|vcpu| vcpu.signals = Signals::default());
    let mut policy = Aql::default();
    assert_eq!(served(&settled(&mut policy, &seen)), [(30, 4); 2]);
    let status = policy.status().notes;
    assert_eq!(status.len(), 3, "{status:?}");
    assert!(status[2].contains("agnostic"), "{status:?}");
    // One vCPU without signals for a period says nothing of the host.
    let mut seen = host(&[Kind::IoInt, Kind::Llcf]);
    let last = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus).last();
    last.unwrap().signals = Signals::default();
    settled(&mut policy, &seen);
    assert!(policy.status().notes.is_empty());
}

/// Kernels number pCPUs of two sockets by turns, as Intel's firmware does: which pCPUs share a cache decides.
#[test]
fn sockets_are_what_shares_a_cache() {
    let kinds = [Kind::Llco, Kind::Llco, Kind::Llcf, Kind::Llcf];
    let mut seen = host(&kinds);
    seen.host.llcs = vec!["0,2".parse().unwrap(), "1,3".parse().unwrap()];
    let plan = settled(&mut Aql::default(), &seen);
    let pcpus = |task: &TaskPlan| plan.pools[task.pool.unwrap()].pcpus.to_string();
    let pcpus: Vec<String> = plan.tasks.iter().map(pcpus).collect();
    assert_eq!(pcpus, ["0,2", "0,2", "1,3", "1,3"], "trashers together");
}

#[test]
fn a_vcpu_goes_where_its_affinity_lets_it() {
    let mut seen = host(&[Kind::IoInt, Kind::Llcf]);
    let pools = |plan: &Plan| plan.tasks.iter().map(|task| task.pool).collect::<Vec<_>>();
    let plan = settled(&mut Aql::default(), &seen);
    assert_eq!(pools(&plan), [Some(0), Some(1)]);
    seen.vms[0].vcpus[0].allowed = plan.pools[1].pcpus;
    assert_eq!(
        pools(&settled(&mut Aql::default(), &seen)),
        [Some(1), Some(1)]
    );
}

/// Each vCPU's slice in ms, and the pCPUs that it can use of its pool, of VMs that may run there.
fn bound(cpusets: &[&str], vms: &[Vec<Kind>]) -> Vec<Vec<(u64, String)>> {
    let sizes: Vec<usize> = vms.iter().map(Vec::len).collect();
    let mut seen = snapshot(16, &sizes);
    seen.host.llcs = ["0-7", "8-15"].map(|llc| llc.parse().unwrap()).into();
    for ((vm, cpus), kinds) in seen.vms.iter_mut().zip(cpusets).zip(vms) {
        for (vcpu, kind) in vm.vcpus.iter_mut().zip(kinds) {
            (vcpu.run, vcpu.signals) = (7 * MS, signals(*kind));
            vcpu.allowed = cpus.parse().unwrap();
        }
    }
    let plan = settled(&mut Aql::default(), &seen);
    let mut told = plan.tasks.iter();
    let of = |vcpu: &corun_model::TaskSeen, task: &TaskPlan| {
        let pool = &plan.pools[task.pool.unwrap()];
        (pool.slice / MS, pool.pcpus.and(&vcpu.allowed).to_string())
    };
    let each = |vm: &corun_model::VmSeen| {
        let vcpus = vm.vcpus.iter().zip(told.by_ref());
        vcpus.map(|(vcpu, task)| of(vcpu, task)).collect()
    };
    seen.vms.iter().map(each).collect()
}

/// Dealt out among the sockets as if both might run anywhere, each would go where it may not run.
#[test]
fn each_part_that_cpusets_divide_a_host_into_has_its_own_pools() {
    let mixed = [vec![Kind::IoInt; 4], vec![Kind::Llcf; 12]].concat();
    let told = bound(&["8-15", "0-7"], &[mixed, vec![Kind::Llcf; 16]]);
    let quick = vec![(1, "8-9".to_string()); 4];
    assert_eq!(told[0][..4], quick);
    assert_eq!(told[0][4..], vec![(90, "10-15".to_string()); 12]);
    assert_eq!(told[1], vec![(90, "0-7".to_string()); 16]);
}

/// A third VM may run anywhere, so that all is one part. Those bound to a socket have pools there.
#[test]
fn beside_vms_that_may_run_anywhere_those_bound_to_a_socket_are_in_pools_there() {
    let mixed = || [vec![Kind::IoInt; 4], vec![Kind::Llcf; 4]].concat();
    let told = bound(&["8-15", "0-7", "0-15"], &[mixed(), mixed(), mixed()]);
    let of = |slice, pcpus: &str, count| vec![(slice, pcpus.to_string()); count];
    assert_eq!(told[1], [of(1, "0-4", 4), of(90, "5-7", 4)].concat());
    // On the other socket a pCPU takes its share of both.
    let mut second = told[0].clone();
    second.sort();
    let slices = [of(1, "8-9", 3), of(30, "15", 2), of(90, "10-14", 3)];
    assert_eq!(second, slices.concat());
}

#[test]
fn who_may_not_use_its_own_pool_has_one_with_its_slice_or_the_least_crowded() {
    let mut seen = snapshot(8, &[5]);
    let all = members(&seen, |_| (Type::UNKNOWN, true));
    let set = |cpus: &str| -> PcpuSet { cpus.parse().unwrap() };
    let pools = [
        (MS, set("0-1"), &all[..1]),
        (90 * MS, set("2-5"), &all[1..4]),
        (MS, set("6-7"), &all[4..]),
    ];
    let mut told = |allowed, wish: Option<u64>| {
        seen.vms[0].vcpus[0].allowed = set(allowed);
        let mut plan = Plan::default();
        pooled(&seen, &mut plan, &pools, |_| wish.map(|ms| ms * MS));
        plan.tasks[0].pool
    };
    assert_eq!(told("0-7", Some(90)), Some(0), "its own");
    assert_eq!(told("2-7", Some(90)), Some(1));
    assert_eq!(told("2-6", Some(1)), Some(2));
    // 3 on 4 pCPUs or 1 on 2; 3 on 4 or 1 on 1.
    assert_eq!(told("2-7", None), Some(2));
    assert_eq!(told("2-6", Some(30)), Some(1));
    assert_eq!(told("2", Some(1)), Some(1));
}

/// A host of four pCPUs: VMs of two IOInt and of six LLCF vCPUs, and one of `idle` vCPUs that never run.
fn beside_idle(idle: usize) -> Snapshot {
    let mut seen = snapshot(4, &[2, 6, idle]);
    for (vm, kind) in seen.vms.iter_mut().zip([Kind::IoInt, Kind::Llcf]) {
        for vcpu in &mut vm.vcpus {
            (vcpu.run, vcpu.ready) = (15 * MS, 15 * MS);
            vcpu.signals = signals(kind);
        }
    }
    for vcpu in &mut seen.vms[2].vcpus {
        (vcpu.wait, vcpu.signals) = (30 * MS, signals(Kind::LoLcf));
        vcpu.signals.llc = None;
    }
    seen
}

/// A vCPU does nothing any more.
fn sleep(vcpu: &mut corun_model::TaskSeen) {
    (vcpu.run, vcpu.ready, vcpu.wait) = (0, 0, 30 * MS);
    vcpu.signals.io_events = Some(0);
}

/// What a policy says once it knows which vCPUs do not want to run.
fn long_settled(policy: &mut dyn Policy, seen: &Snapshot) -> Plan {
    (0..5).for_each(|_| drop(settled(policy, seen)));
    ask(policy, seen)
}

#[test]
fn no_pcpus_are_for_vcpus_that_never_run() {
    for idle in [0, 4, 12] {
        let plan = long_settled(&mut Aql::default(), &beside_idle(idle));
        let expected = [[(1, 1); 2].as_slice(), &[(90, 3); 6]].concat();
        assert_eq!(served(&plan)[..8], expected, "{idle} idle");
        assert!(plan.tasks.iter().all(|told| told.pool.is_some()));
    }
}

/// It counts from the second decision on, and before that it has the slice that it had.
#[test]
fn one_that_sleeps_waits_in_a_pool_with_its_slice() {
    let mut policy = Aql::default();
    let mut seen = beside_idle(0);
    settled(&mut policy, &seen);
    seen.vms[1].vcpus[2..].iter_mut().for_each(sleep);
    let plan = long_settled(&mut policy, &seen);
    let expected = [[(1, 2); 2].as_slice(), &[(90, 2); 6]].concat();
    assert_eq!(served(&plan), expected);
    // With no other vCPU of its type there is no such pool: it waits where there is most room.
    seen.vms[1].vcpus[..2].iter_mut().for_each(sleep);
    let plan = long_settled(&mut policy, &seen);
    assert_eq!(served(&plan), [(1, 4); 8]);
    let awake = beside_idle(0);
    ask(&mut policy, &awake);
    let plan = ask(&mut policy, &awake);
    assert_eq!(served(&plan)[2], (90, 3));
}

#[test]
fn where_nobody_runs_all_have_pools() {
    let mut policy = Aql::default();
    let mut seen = beside_idle(4);
    let before = settled(&mut policy, &seen);
    let vcpus = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
    vcpus.for_each(sleep);
    let plan = long_settled(&mut policy, &seen);
    assert!(plan.tasks.iter().all(|told| told.pool.is_some()));
    assert_eq!(
        served(&plan)[..8].iter().map(|it| it.0).collect::<Vec<_>>(),
        served(&before)[..8]
            .iter()
            .map(|it| it.0)
            .collect::<Vec<_>>()
    );
}

/// A vCPU that does I/O counts for that, however little it computes.
#[test]
fn io_counts_whatever_it_computes() {
    let mut seen = beside_idle(4);
    for vcpu in &mut seen.vms[0].vcpus {
        (vcpu.run, vcpu.ready, vcpu.wait) = (MS / 10, 0, 30 * MS - MS / 10);
    }
    let plan = long_settled(&mut Aql::default(), &seen);
    assert_eq!(served(&plan)[0], (1, 1));
}

#[test]
fn the_others_slices() {
    let seen = host(&[Kind::IoInt, Kind::Llcf, Kind::LoLcf]);
    let turbo = settled(&mut VTurbo::default(), &seen);
    assert_eq!(served(&turbo), [(1, 1), (30, 3), (30, 3)]);
    let slices = |plan: Plan| {
        plan.tasks
            .iter()
            .map(|task| task.slice.unwrap() / MS)
            .collect::<Vec<_>>()
    };
    let micro = settled(&mut VSlicer::default(), &seen);
    let spread: Vec<bool> = micro.tasks.iter().map(|task| task.micro).collect();
    assert_eq!(spread, [true, false, false]);
    assert_eq!(slices(micro), [5, 30, 30]);
    assert_eq!(
        slices(settled(&mut Microsliced::default(), &seen)),
        [1, 1, 1]
    );
    let quiet = settled(&mut VTurbo::default(), &host(&[Kind::Llcf, Kind::LoLcf]));
    assert_eq!(served(&quiet), [(30, 4), (30, 4)], "nobody to hurry for");
}

fn any_kind() -> impl Strategy<Value = Kind> {
    use Kind::{ConSpin, IoInt, Llcf, Llco, LoLcf};
    prop::sample::select(vec![ConSpin, IoInt, Llcf, Llco, LoLcf])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pools are those that would be made anew each time, though they are made only if something has changed: types, a
    /// vCPU's weight, the caches, or VMs that come and go.
    #[test]
    fn pools_that_are_left_are_those_that_would_be_made(
        hosts in prop::collection::vec(
            (prop::collection::vec(any_kind(), 1..10), 1u32..3, any::<bool>(), 1u32..12),
            1..6,
        ),
    ) {
        let mut policy = Aql::default();
        for (kinds, weight, sockets, periods) in hosts {
            let mut seen = host(&kinds);
            seen.vms[0].vcpus[0].weight = 100 * weight;
            if sockets {
                seen.host.llcs = vec!["0-1".parse().unwrap(), "2-3".parse().unwrap()];
            }
            for _ in 0..periods {
                let pools = |policy: &Aql| -> Vec<Pooled> {
                    policy.pools.iter().flat_map(|(_, pools)| pools.clone()).collect()
                };
                let before = pools(&policy);
                ask(&mut policy, &seen);
                let members = members(&seen, |task| policy.recogniser.wanting(task));
                let anew = cluster::cluster(&members, &seen.host.llcs, &[], &policy.params.calibration.slices, &before);
                prop_assert_eq!(pools(&policy), anew);
            }
        }
    }
}
