// SPDX-License-Identifier: GPL-2.0-only
//! A scheduler with another one inside, which does all or most of the work.

/// Within an implementation of [`HostScheduler`](crate::sched::HostScheduler): forwards these methods to the scheduler
/// in this field. A method that is not listed has to be written, or else is the trait's default, which does nothing: so
/// list whatever the inner scheduler implements.
macro_rules! forward {
    ($to:tt: $($method:ident)*) => { $($crate::sched::forward::forward_one! { $to $method })* };
}

/// One of its methods.
macro_rules! forward_one {
    ($to:tt know_vms) => {
        fn know_vms(&mut self, vms: &[$crate::load::VmInfo]) {
            self.$to.know_vms(vms);
        }
    };
    ($to:tt know_cgroups) => {
        fn know_cgroups(&mut self, groups: &$crate::load::Cgroups) {
            self.$to.know_cgroups(groups);
        }
    };
    ($to:tt add) => {
        fn add(&mut self, host: &mut $crate::host::Host, task: corun_model::TaskId) {
            self.$to.add(host, task);
        }
    };
    ($to:tt wake) => {
        fn wake(
            &mut self,
            host: &mut $crate::host::Host,
            task: corun_model::TaskId,
            waker: Option<corun_model::PcpuId>,
        ) {
            self.$to.wake(host, task, waker);
        }
    };
    ($to:tt block) => {
        fn block(
            &mut self,
            host: &mut $crate::host::Host,
            task: corun_model::TaskId,
            cpu: corun_model::PcpuId,
        ) {
            self.$to.block(host, task, cpu);
        }
    };
    ($to:tt pick) => {
        fn pick(
            &mut self,
            host: &mut $crate::host::Host,
            cpu: corun_model::PcpuId,
        ) -> Option<corun_model::TaskId> {
            self.$to.pick(host, cpu)
        }
    };
    ($to:tt tick) => {
        fn tick(&mut self, host: &mut $crate::host::Host, cpu: corun_model::PcpuId) {
            self.$to.tick(host, cpu);
        }
    };
    ($to:tt timer) => {
        fn timer(&mut self, host: &mut $crate::host::Host, token: u64) {
            self.$to.timer(host, token);
        }
    };
    ($to:tt directs_yields) => {
        fn directs_yields(&self) -> bool {
            self.$to.directs_yields()
        }
    };
    ($to:tt yield_pcpu) => {
        fn yield_pcpu(
            &mut self,
            host: &mut $crate::host::Host,
            task: corun_model::TaskId,
            cpu: corun_model::PcpuId,
            to: Option<corun_model::TaskId>,
        ) -> bool {
            self.$to.yield_pcpu(host, task, cpu, to)
        }
    };
    ($to:tt flush_ipi) => {
        fn flush_ipi(&mut self, host: &mut $crate::host::Host, task: corun_model::TaskId) {
            self.$to.flush_ipi(host, task);
        }
    };
    ($to:tt co_stopped) => {
        fn co_stopped(
            &self,
            now: corun_model::Nanos,
            task: corun_model::TaskId,
        ) -> corun_model::Nanos {
            self.$to.co_stopped(now, task)
        }
    };
    ($to:tt throttled) => {
        fn throttled(
            &self,
            now: corun_model::Nanos,
            task: corun_model::TaskId,
        ) -> corun_model::Nanos {
            self.$to.throttled(now, task)
        }
    };
    ($to:tt turns) => {
        fn turns(
            &self,
            host: &$crate::host::Host,
            task: corun_model::TaskId,
            since: corun_model::Nanos,
        ) -> corun_model::Turns {
            self.$to.turns(host, task, since)
        }
    };
    ($to:tt apply) => {
        fn apply(&mut self, host: &mut $crate::host::Host, plan: &corun_model::Plan) {
            self.$to.apply(host, plan);
        }
    };
}

pub(crate) use {forward, forward_one};
