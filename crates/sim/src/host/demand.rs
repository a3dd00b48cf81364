// SPDX-License-Identifier: GPL-2.0-only
//! What loads ask of the host: work, other activities, to wait and to be woken.

use super::{Activity, Event, Host, Order, Profile, Waker};
use crate::event_queue::EventId;
use corun_model::{Nanos, PcpuId, TaskId};

impl Host {
    /// Makes `task`, which is running, call [`Load::step`](crate::load::Load::step) at time `at`,
    /// whatever progress it makes until then. Replaces an earlier order.
    pub fn step_at(&mut self, task: TaskId, at: Nanos) {
        let now = self.now;
        let slot = &mut self.tasks[task.index()];
        if slot.running_on().is_none() {
            return;
        }
        // Not before the switch to it is charged.
        (slot.due, slot.due_at) = (Nanos::MAX, at.max(now).max(slot.progress.when(0)));
        self.schedule_step(task);
    }

    /// Makes `task`, which is running, call [`Load::step`](crate::load::Load::step) after `work` ns
    /// of progress from now. Replaces an earlier order.
    pub fn step_after(&mut self, task: TaskId, work: Nanos) {
        let slot = &mut self.tasks[task.index()];
        if slot.running_on().is_none() {
            return;
        }
        slot.due = slot.progress.at(self.now).saturating_add(work);
        slot.due_at = Nanos::MAX;
        self.schedule_step(task);
    }

    /// Forgets the work ordered for `task`: it runs until it is stopped or ordered anew.
    pub fn no_step(&mut self, task: TaskId) {
        let slot = &mut self.tasks[task.index()];
        (slot.due, slot.due_at) = (Nanos::MAX, Nanos::MAX);
        self.schedule_step(task);
    }

    /// What `task` works on from now on: its working set and mix of cycles.
    pub fn set_profile(&mut self, task: TaskId, profile: Profile) {
        if self.tasks[task.index()].profile == Some(profile) {
            return;
        }
        self.count_instructions(task); // of what it did before
        self.tasks[task.index()].book(self.now);
        self.tasks[task.index()].profile = Some(profile);
        self.changed(task);
    }

    /// What `task`, which is running, does with its hardware thread from now on.
    pub fn set_activity(&mut self, task: TaskId, activity: Activity) {
        if self.tasks[task.index()].activity != activity {
            self.count_instructions(task); // of what it did until now
            let slot = &mut self.tasks[task.index()];
            slot.book(self.now);
            slot.activity = activity;
            self.changed(task);
        }
    }

    /// `task`, which is running, does not want its pCPU any more.
    pub fn block(&mut self, task: TaskId) {
        self.orders.push_back(Order::Block(task));
    }

    /// `task` wants a pCPU. `waker` is the pCPU that the wake-up comes from, if it comes from one.
    pub fn wake(&mut self, task: TaskId, waker: Option<PcpuId>) {
        let by = waker.map(|cpu| Waker {
            cpu,
            task: self.current(cpu),
        });
        self.orders.push_back(Order::Wake { task, by });
    }

    /// A sibling waits for `task`, which is ready, to flush its TLB.
    pub fn flush_ipi(&mut self, task: TaskId) {
        self.orders.push_back(Order::FlushIpi(task));
    }

    /// The CPU noticed that `task`, which is running, spins (a pause-loop exit).
    pub fn pause_exit(&mut self, task: TaskId) {
        self.orders.push_back(Order::PauseExit(task));
    }

    /// Calls [`Load::timer`](crate::load::Load::timer) with `token` at time `at`.
    pub fn load_timer(&mut self, at: Nanos, token: u64) -> EventId {
        self.events
            .schedule(at.max(self.now), Event::LoadTimer(token))
    }
}
