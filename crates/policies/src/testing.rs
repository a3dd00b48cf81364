// SPDX-License-Identifier: GPL-2.0-only
//! Hosts to try policies on, and what holds for all policies.

use crate::{Policy, Settings, known};
use corun_model::{
    HostSeen, PcpuId, PcpuSet, Plan, Quota, Signals, Snapshot, TaskId, TaskSeen, Topology, Turns,
    VmId, VmSeen,
};
use proptest::prelude::*;

/// What a policy says to a snapshot.
pub(crate) fn ask(policy: &mut dyn Policy, seen: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    policy.decide(seen, &mut plan);
    plan
}

/// A host with VMs of these sizes, everything allowed. VM n has the tasks 100n, 100n + 1, …
pub(crate) fn snapshot(pcpus: u32, sizes: &[usize]) -> Snapshot {
    let task = |vm: usize, vcpu: usize| TaskSeen {
        task: TaskId::from(100 * vm + vcpu),
        allowed: PcpuSet::first(pcpus),
        weight: 100,
        quota: None,
        run: 0,
        ready: 0,
        wait: 0,
        turns: Turns::default(),
        signals: Signals::default(),
    };
    let vm = |(vm, &size): (usize, &usize)| VmSeen {
        vm: VmId::from(vm),
        weight: None,
        effective: None,
        quotas: Vec::new(),
        cookie: 0,
        vcpus: (0..size).map(|vcpu| task(vm, vcpu)).collect(),
    };
    Snapshot {
        now: 0,
        host: HostSeen::of(Topology::flat(pcpus).unwrap()),
        vms: sizes.iter().enumerate().map(vm).collect(),
        others: Vec::new(),
    }
}

/// Makes other VMs of these.
pub(crate) fn renumber(seen: &mut Snapshot, add: u32) {
    for vm in &mut seen.vms {
        vm.vm.0 += add;
        vm.vcpus
            .iter_mut()
            .for_each(|vcpu| vcpu.task.0 += 100 * add);
    }
}

/// Hosts with any affinities and quotas.
pub(crate) fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let sizes = prop::collection::vec(1usize..6, 0..6);
    let allowed = prop::collection::vec(prop::collection::vec(0u32..8, 0..5), 30);
    let own = prop::collection::vec(prop::option::of(1..=u64::MAX), 30);
    let quota = (0u64..3, 1..=u64::MAX).prop_map(|(of, time)| Quota { of, time });
    let quotas = prop::collection::vec(prop::collection::vec(quota, 0..3), 6);
    let all = (1u32..7, sizes, allowed, own, quotas);
    all.prop_map(|(pcpus, sizes, allowed, own, quotas)| {
        let mut seen = snapshot(pcpus, &sizes);
        let vcpus = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
        for (vcpu, (allowed, own)) in vcpus.zip(allowed.into_iter().zip(own)) {
            vcpu.allowed = allowed.into_iter().map(PcpuId).collect();
            vcpu.quota = own;
        }
        for (vm, quotas) in seen.vms.iter_mut().zip(quotas) {
            vm.quotas = quotas;
        }
        seen
    })
}

proptest! {
    #[test]
    fn asked_again_a_policy_asks_for_nothing_new(seen in any_snapshot()) {
        for info in known() {
            let mut policy = (info.make)(&Settings::default());
            let first = ask(&mut *policy, &seen);
            prop_assert_eq!(&first, &ask(&mut *policy, &seen), "{}", info.name);
            let told = first.vms.iter().map(|vm| vm.vm);
            prop_assert!(told.eq(seen.vms.iter().map(|vm| vm.vm)), "{}", info.name);
        }
    }
}
