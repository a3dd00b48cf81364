// SPDX-License-Identifier: GPL-2.0-only
//! Pools of pCPUs and slices of vCPUs within Credit, as AQL_Sched's authors put them there (EuroSys
//! 2016, §4.3): one scheduler with one accounting, in which pCPUs differ by their slice and vCPUs are
//! bound to the pCPUs of their pool. Ticks and accounting keep the period that `[scheduler.credit]` says, unless all
//! vCPUs are to have one slice: that is what `xl sched-credit -t` does, which changes ticks and accounting along with
//! the slice (`__csched_set_tslice()`), or accounting alone (`boot_slice`). The paper says so: "a CPU pool is
//! represented by a single data structure", which is where Xen keeps accounting, and "we use the same data structure
//! for all CPU pools".
//!
//! The paper also counts on the scheduler being fair within a pool. So a vCPU may owe and save up what its turn costs,
//! where that is more than what accounting hands out at once (assumed). Otherwise, of the 900 credits that a turn of 90
//! ms burns, all but 300 would be forgiven: equals had between 0.18 and 0.34 instead of a quarter each.
//!
//! Where turns are shorter, priorities still last until the next accounting: a vCPU that has credit while the others
//! are in debt has turn after turn, up to 30 ms. With accounting by each pool's slice, as in Xen's own cpupools, that
//! would not be so; but a server that sleeps could save up no more than a millisecond, would seldom be boosted, and in
//! the mixes of the paper's Figure 6 would take four times as long to answer as under Credit, where the paper's answer
//! sooner.
//!
//! Credit hardly moves vCPUs while all pCPUs are busy, so vCPUs that enter a pool are spread over
//! it here.

use super::{Credit, CreditParams};
use crate::host::{Host, TaskState};
use corun_model::{Nanos, PcpuId, PcpuSet, Plan, TaskId, TaskPlan};

impl Credit {
    /// Carries out what a plan says about slices, homes and pools.
    pub(super) fn carry_out(&mut self, host: &mut Host, plan: &Plan) {
        self.set_slice(one_for_all(plan).unwrap_or(self.configured.slice));
        for pool in &plan.pools {
            for cpu in pool.pcpus.iter() {
                if let Some(pcpu) = self.pcpus.get_mut(cpu.index()) {
                    pcpu.slice = pool.slice;
                }
            }
        }
        let known = self.units.len();
        for wanted in plan.tasks.iter().filter(|it| it.task.index() < known) {
            self.unit(wanted.task).slice = wanted.slice;
            let pool = wanted.pool.and_then(|pool| plan.pools.get(pool));
            let turn = wanted.slice.or(pool.map(|pool| pool.slice));
            self.accounts.set_turn(wanted.task, turn.unwrap_or(0));
            self.unit(wanted.task).micro.has = wanted.micro;
            self.micro |= wanted.micro;
            let may = host.task(wanted.task).spec.allowed;
            let confined = confined(wanted, plan).map(|pcpus| pcpus.and(&may));
            let allowed = confined.filter(|pcpus| !pcpus.is_empty()).unwrap_or(may);
            self.confine(host, wanted.task, allowed);
        }
    }

    /// `__csched_set_tslice()`: the slice of all pCPUs, and with it the periods of ticks and accounting and the credits
    /// that an accounting hands out. Slices and periods under way end as they would have.
    fn set_slice(&mut self, slice: Nanos) {
        let params = CreditParams {
            slice,
            ..self.configured
        };
        let params = params.bounded();
        if params.slice == self.params.slice {
            return;
        }
        self.params = params;
        self.accounts.set_slice(&params);
        for pcpu in &mut self.pcpus {
            pcpu.slice = params.slice;
        }
    }

    /// `task` may use these pCPUs only: it leaves its home if that is not one of them.
    fn confine(&mut self, host: &mut Host, task: TaskId, allowed: PcpuSet) {
        self.unit(task).allowed = allowed;
        let home = self.units[task.index()].home;
        if allowed.contains(home) {
            self.unit(task).goes_to = None;
            return;
        }
        let residents = |cpu: PcpuId| self.units.iter().filter(|it| it.stays_on(cpu)).count();
        let Some(to) = allowed.iter().min_by_key(|cpu| residents(*cpu)) else {
            return;
        };
        let runs = self.pcpus[home.index()].current == Some(task);
        match host.task(task).state {
            _ if runs => {
                let unit = self.unit(task);
                (unit.moves, unit.goes_to) = (true, Some(to));
                host.resched(home, None);
            }
            TaskState::Ready if !self.accounts.parked(task) => {
                self.pcpu(home).remove(task);
                self.unit(task).home = to;
                self.arrive(host, task, None);
            }
            _ => self.unit(task).home = to,
        }
    }
}

/// The slice that a plan without pools gives to all vCPUs.
fn one_for_all(plan: &Plan) -> Option<Nanos> {
    let slice = plan.tasks.first().and_then(|first| first.slice);
    let same = plan.tasks.iter().all(|wanted| wanted.slice == slice);
    slice.filter(|_| same && plan.pools.is_empty())
}

/// The pCPUs that a plan binds a vCPU to.
fn confined(wanted: &TaskPlan, plan: &Plan) -> Option<PcpuSet> {
    let pool = wanted.pool.and_then(|pool| plan.pools.get(pool));
    let home = wanted.home.map(|home| [home].into_iter().collect());
    home.or(pool.map(|pool| pool.pcpus))
}
