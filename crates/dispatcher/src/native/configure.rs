// SPDX-License-Identifier: GPL-2.0-only
//! What a host says of its VMs, pools, cgroups and cores, and memory for what it has none of at first.

use super::{Native, Services};
use crate::conf::{GroupConf, PcpuConf, PoolConf, VmConf};
use crate::layout::{GangCtx, GroupCtx, MAX_GROUPS, MAX_VMS};
use corun_model::{PcpuSet, VmPlan};

impl<S: Services> Native<S> {
    /// C looks at cgroups only if its knobs say that there are some.
    pub(super) fn make_room_for_groups(&mut self) {
        self.inner.context.knobs.groups = 1;
        if self.inner.groups.is_empty() {
            self.inner.group_confs = vec![GroupConf::default(); MAX_GROUPS].into();
            self.inner.groups = vec![GroupCtx::default(); MAX_GROUPS].into();
            self.inner.context.group_confs = self.inner.group_confs.as_mut_ptr();
            self.inner.context.groups = self.inner.groups.as_mut_ptr();
        }
    }

    /// C looks at gangs only if its knobs say that there are some; most hosts have none.
    pub(super) fn make_room_for_gangs(&mut self) {
        self.inner.context.knobs.gangs = 1;
        if self.inner.gangs.is_empty() {
            self.inner.gangs = vec![GangCtx::default(); MAX_VMS].into();
            self.inner.context.gangs = self.inner.gangs.as_mut_ptr();
        }
    }

    /// Are VMs' gang modes looked at? Where no VM has one any more they need not be: decisions are those of
    /// a host that never had any.
    pub fn look_at_gangs(&mut self, wanted: bool) {
        if wanted {
            self.make_room_for_gangs();
        } else {
            self.inner.context.knobs.gangs = 0;
        }
    }

    /// No plan asks for cores any more, until one says again what is wanted of a pCPU: as the daemon has it.
    pub fn look_at_no_cores(&mut self) {
        self.inner.context.knobs.cores = 0;
    }

    /// As if there had been this many time slots (`gang_strict.h`), which takes months: for tests.
    pub fn slots_have_been(&mut self, number: u32) {
        let slots = &mut self.inner.context.slots;
        (slots.number, slots.round) = (number, number);
    }

    /// Another pCPU opens a time slot at this moment (`gang_strict.h`), or does so no more: for tests.
    pub fn a_slot_is_being_opened(&mut self, opening: bool) {
        self.inner.context.slots.opening = opening.into();
    }

    /// Some tasks have micro slices from now on, perhaps.
    pub fn look_at_micro_slices(&mut self) {
        self.inner.context.knobs.micro = 1;
    }

    /// Says what a plan asks for VM `id` (not 0), what it weighs (`None`: vCPU by vCPU), and the pCPUs that any of
    /// its vCPUs may use.
    pub fn configure_vm(&mut self, id: u32, plan: &VmPlan, weight: Option<u32>, allowed: &PcpuSet) {
        let conf = VmConf::of(id, plan, weight, allowed);
        if conf.gang != 0 {
            self.make_room_for_gangs();
        }
        self.inner.vm_confs[id as usize % MAX_VMS] = conf;
        self.inner.context.index.fixed = PcpuSet::default();
    }

    /// Says what the first pools are; tasks name them by their place.
    pub fn configure_pools(&mut self, pools: impl IntoIterator<Item = PoolConf>) {
        for (place, pool) in self.inner.pools.iter_mut().zip(pools) {
            *place = pool;
        }
        self.inner.context.index.fixed = PcpuSet::default();
    }

    /// Says what is wanted for the cgroup in a place of the table; tasks name it by that, plus 1. C
    /// looks at cgroups only once something has been said. A place that there is not is passed over.
    pub fn configure_group(&mut self, place: usize, conf: GroupConf) {
        self.make_room_for_groups();
        if let Some(group) = self.inner.group_confs.get_mut(place) {
            *group = conf;
        }
    }

    /// Says what is wanted of a pCPU that is a hardware thread of a core with two. C looks at that
    /// only once something has been said.
    pub fn configure_pcpu(&mut self, cpu: u32, conf: PcpuConf) {
        self.inner.context.knobs.cores = 1;
        if let Some(place) = self.inner.pcpu_confs.get_mut(cpu as usize) {
            *place = conf;
        }
    }
}
