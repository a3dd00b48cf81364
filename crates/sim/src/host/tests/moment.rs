// SPDX-License-Identifier: GPL-2.0-only
//! Runs in which virtual time stands still are given up, and say why.

use crate::Simulation;
use crate::host::{Host, Standstill};
use crate::load::{Pattern, Patterns};
use crate::sched::HostScheduler;
use crate::testing::host;
use corun_model::time::MS;
use corun_model::{PcpuId, TaskId};

/// A scheduler that asks for itself again at once, from this time on: with a timer, or on its pCPU.
struct Restless {
    from: u64,
    by_timer: bool,
}

impl HostScheduler for Restless {
    fn add(&mut self, host: &mut Host, _task: TaskId) {
        host.sched_timer(self.from, 7);
    }
    fn wake(&mut self, _host: &mut Host, _task: TaskId, _waker: Option<PcpuId>) {}
    fn block(&mut self, _host: &mut Host, _task: TaskId, _cpu: PcpuId) {}
    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        host.resched(cpu, Some(cpu));
        None
    }
    fn tick(&mut self, _host: &mut Host, _cpu: PcpuId) {}
    fn timer(&mut self, host: &mut Host, token: u64) {
        match self.by_timer {
            true => drop(host.sched_timer(0, token)),
            false => host.resched(PcpuId(0), Some(PcpuId(0))),
        }
    }
    fn yield_pcpu(&mut self, _: &mut Host, _: TaskId, _: PcpuId, _: Option<TaskId>) -> bool {
        false
    }
}

fn standstill(by_timer: bool) -> Standstill {
    let sched = Box::new(Restless {
        from: 3 * MS + 5,
        by_timer,
    });
    let load = Box::new(Patterns::new(vec![Pattern::hog(None)], &[], 1));
    Simulation::new(host("1n1l1c1t", 250), sched, load, None)
        .try_run(0, 10 * MS, |_| {})
        .unwrap_err()
}

#[test]
fn a_scheduler_that_asks_for_itself_again_at_once_is_given_up() {
    let timer = standstill(true);
    assert_eq!(timer.at, 3 * MS + 5);
    let what = "a timer of the scheduler (its number 7)".to_string();
    assert_eq!(timer.busiest, [(what, timer.witnessed)]);
    let said = timer.to_string();
    assert!(said.contains("stands still 0.003000005 s after"), "{said}");
    let asks = standstill(false);
    assert_eq!(asks.at, 3 * MS + 5);
    assert_eq!(asks.busiest[0].0, "pCPU 0 schedules");
}
