// SPDX-License-Identifier: GPL-2.0-only
//! What other CPUs may do in the midst of a callback: the tap is where they come in between.

use crate::conf::Knobs;
use crate::layout::{MAX_PCPUS, MAX_VMS, TaskStruct, VmCtx};
use crate::native::{Build, Kick, Native, Services};
use corun_model::{Nanos, PcpuSet};

/// `enum tap_kind`: what an addition to a shared value found there.
const FETCHED: u32 = 13;
/// The slot of a VM, as it was found.
const VM_SLOT: u32 = 16;

const PCPUS: u32 = 2;

/// The VM whose slot is at stake, and another one.
const VM: u32 = 7;
const OTHER: u32 = 8;

/// What another CPU does to a slot of the table of VMs, and when: as soon as an input of this kind and value
/// has been read.
#[derive(Clone, Copy)]
struct Between {
    kind: u32,
    value: u64,
    slot: *mut VmCtx,
    does: fn(&mut VmCtx),
}

/// A host where nothing is queued.
#[derive(Default)]
struct Host(Option<Between>);

impl Services for Host {
    const BUILD: Build = Build::Tapped;

    fn tap_in(&mut self, kind: u32, value: u64) -> u64 {
        let comes = |between: &mut Between| (between.kind, between.value) == (kind, value);
        if let Some(between) = self.0.take_if(comes) {
            // SAFETY: a slot of the table that the native build works on, which it does not while it asks here.
            (between.does)(unsafe { &mut *between.slot });
        }
        value
    }

    fn claim_idle(&mut self, _cpu: u32) -> bool {
        false
    }
    fn queue_length(&mut self, _queue: u64) -> u32 {
        0
    }
    fn move_first(&mut self, _queue: u64) -> bool {
        false
    }
    fn next_queued(&mut self, _queue: u64, _after: Option<usize>) -> Option<usize> {
        None
    }
    fn move_queued(&mut self, _task: usize, _cpu: u32) -> bool {
        false
    }
    fn requeue(&mut self, _task: usize, _queue: u64, _vtime: u64) -> bool {
        false
    }
    fn insert(&mut self, _task: usize, _queue: u64, _slice: Nanos, _vtime: u64) {}
    fn insert_next(&mut self, _task: usize, _cpu: u32, _slice: Nanos) {}
    fn insert_local(&mut self, _task: usize, _slice: Nanos) {}
    fn kick(&mut self, _cpu: u32, _how: Kick) {}
    fn set_slice(&mut self, _task: usize, _slice: Nanos) {}
    fn start_timer(&mut self, _timer: u32, _delay: Nanos) {}
}

/// A host with so many vCPUs of [`VM`], each of which has run and waits.
fn host(vcpus: u32) -> Native<Host> {
    let knobs = Knobs {
        slice: 3_000_000,
        wakeup_gran: 1_000_000,
        sleeper_credit: 3_000_000,
        max_lead: 6_000_000,
        balance_interval: 4_000_000,
        online: PcpuSet::first(PCPUS),
        pcpus: PCPUS,
        placement: 0,
        slice_timer: 0,
        groups: 0,
        gangs: 0,
        cores: 0,
        tasks: 0,
        llcs: 1,
        sibling: [0; MAX_PCPUS],
        llc: [0; MAX_PCPUS],
    };
    let mut native = Native::new(knobs, Host::default());
    for number in 0..vcpus {
        let vcpu = add_vcpu(&mut native, number);
        native.select_cpu(0, 0, vcpu, 0, None);
        assert_eq!(native.task(vcpu).ctx.vm, VM);
        native.running(0, 0, vcpu);
        native.stopping(0, 0, vcpu, false);
    }
    native
}

/// One that has not been seen in KVM_RUN yet.
fn add_vcpu(native: &mut Native<Host>, number: u32) -> usize {
    let vcpu = TaskStruct {
        id: 100 + number,
        vcpu_of: VM,
        weight: 100,
        allowed: PcpuSet::first(PCPUS),
        ..TaskStruct::default()
    };
    native.add_task(vcpu, 0)
}

/// Whose the slot is, and how many vCPUs it counts.
fn seats(native: &Native<Host>, slot: u32) -> (u32, u32) {
    let vm = native.vm(slot as usize % MAX_VMS);
    (vm.id, vm.vcpus)
}

/// From now on another CPU `does` this to the slot of [`VM`] once an input of `kind` and `value` is read.
fn between(native: &mut Native<Host>, kind: u32, value: u64, does: fn(&mut VmCtx)) {
    let slot = native.vms().wrapping_add(VM as usize);
    native.services().0 = Some(Between {
        kind,
        value,
        slot,
        does,
    });
}

/// The last vCPU exits; before it has freed the slot, a new one of the same VM is counted there.
#[test]
fn a_slot_is_not_freed_under_who_has_just_come() {
    let mut native = host(1);
    between(&mut native, FETCHED, 1, |slot| slot.vcpus += 1);
    native.exit_task(0, 0);
    assert!(native.services().0.is_none(), "nobody came in between");
    assert_eq!(seats(&native, VM), (VM, 1));
}

/// A vCPU has found its VM's slot; before it is counted there, the last sibling has gone and another VM has
/// come. It is counted in no slot then, and in one of its own VM's when it wakes next.
#[test]
fn nobody_is_counted_in_the_slot_of_another_vm() {
    let mut native = host(1);
    let late = add_vcpu(&mut native, 1);
    between(&mut native, VM_SLOT, VM.into(), |slot| {
        slot.id = OTHER;
        slot.vcpus = 1;
    });
    native.select_cpu(0, 0, late, 0, None);
    assert!(native.services().0.is_none(), "nobody came in between");
    assert_eq!(seats(&native, VM), (OTHER, 1));
    native.select_cpu(0, 0, late, 0, None);
    let slot = native.task(late).ctx.vm;
    assert_ne!(slot, VM);
    assert_eq!(seats(&native, slot), (VM, 1));
}

#[test]
fn the_last_of_a_vm_frees_its_slot() {
    let mut native = host(2);
    native.exit_task(0, 0);
    assert_eq!(seats(&native, VM), (VM, 1));
    native.exit_task(1, 0);
    assert_eq!(seats(&native, VM), (0, 0));
}
