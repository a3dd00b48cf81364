// SPDX-License-Identifier: GPL-2.0-only
//! A scheduler that is a thin name for another one inside it.

/// Implements [`HostScheduler`](crate::sched::HostScheduler) for a tuple struct by its first field.
macro_rules! forward {
    ($name:ty) => {
        impl $crate::sched::HostScheduler for $name {
            fn know_vms(&mut self, vms: &[$crate::load::VmInfo]) {
                self.0.know_vms(vms);
            }
            fn know_cgroups(&mut self, groups: &$crate::load::Cgroups) {
                self.0.know_cgroups(groups);
            }
            fn add(&mut self, host: &mut $crate::host::Host, task: corun_model::TaskId) {
                self.0.add(host, task);
            }
            fn wake(
                &mut self,
                host: &mut $crate::host::Host,
                task: corun_model::TaskId,
                waker: Option<corun_model::PcpuId>,
            ) {
                self.0.wake(host, task, waker);
            }
            fn block(
                &mut self,
                host: &mut $crate::host::Host,
                task: corun_model::TaskId,
                cpu: corun_model::PcpuId,
            ) {
                self.0.block(host, task, cpu);
            }
            fn pick(
                &mut self,
                host: &mut $crate::host::Host,
                cpu: corun_model::PcpuId,
            ) -> Option<corun_model::TaskId> {
                self.0.pick(host, cpu)
            }
            fn tick(&mut self, host: &mut $crate::host::Host, cpu: corun_model::PcpuId) {
                self.0.tick(host, cpu);
            }
            fn timer(&mut self, host: &mut $crate::host::Host, token: u64) {
                self.0.timer(host, token);
            }
            fn flush_ipi(&mut self, host: &mut $crate::host::Host, task: corun_model::TaskId) {
                self.0.flush_ipi(host, task);
            }
            fn directs_yields(&self) -> bool {
                self.0.directs_yields()
            }
            fn yield_pcpu(
                &mut self,
                host: &mut $crate::host::Host,
                task: corun_model::TaskId,
                cpu: corun_model::PcpuId,
                to: Option<corun_model::TaskId>,
            ) -> bool {
                self.0.yield_pcpu(host, task, cpu, to)
            }
        }
    };
}
pub(crate) use forward;
