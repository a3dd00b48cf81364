// SPDX-License-Identifier: GPL-2.0-only
//! What VMs have had in total, kept from look to look.
//!
//! Problem: a counter must not fall as long as its VM lives: Prometheus takes that for a restart and adds all of it
//! once more. But parts of a VM that are not vCPUs come and go: QEMU's workers end after some seconds without work,
//! cgroups go, the daemon that throttles ends before its VMs do.
//!
//! How: what each part has counted since the last look is added to the VM's sum, so that a part
//! that goes takes nothing away. What a part did between the last look and its end is not known.

use super::sample::{Sample, VmSample};
use crate::inventory::{Role, Thread};
use crate::status::HostStatus;
use corun_model::Nanos;
use corun_model::time::seconds;
use corun_system::procfs::Counted;
use std::collections::BTreeMap;

/// Totals of all VMs that live.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By process and its start.
    vms: BTreeMap<(u32, u64), VmTotals>,
    /// How long the daemon was in charge at the last look, s.
    in_charge_s: f64,
}

/// Totals of a VM.
#[derive(Clone, Debug, Default)]
struct VmTotals {
    /// Time on pCPUs of its threads that are no vCPUs, by what they are for.
    helped: BTreeMap<Role, Nanos>,
    /// Time throttled, s; `None`: it has never been counted.
    throttled_s: Option<f64>,
    last: Last,
}

/// What the last look at a VM saw.
#[derive(Clone, Debug, Default)]
struct Last {
    /// By thread and its start.
    helpers: BTreeMap<(u32, u64), Counted>,
    by_kernel: Nanos,
    /// By vCPU's thread.
    by_corun_s: BTreeMap<u32, f64>,
}

impl Totals {
    /// Adds what happened since the last look; with the first it is all that there has been.
    pub fn add(&mut self, sample: &Sample) {
        let mut before = std::mem::take(&mut self.vms);
        let in_charge_s = sample.daemon.as_ref().map(|daemon| daemon.for_s);
        // Another daemon counts from 0; a daemon that only hung counts on.
        let another = in_charge_s.is_some_and(|time| time < self.in_charge_s);
        self.in_charge_s = in_charge_s.unwrap_or(self.in_charge_s);
        for vm in &sample.vms {
            let mut totals = before.remove(&key(vm)).unwrap_or_default();
            if another {
                totals.last.by_corun_s.clear();
            }
            totals.help(vm);
            totals.throttle(vm, sample.daemon.as_ref());
            self.vms.insert(key(vm), totals);
        }
    }

    /// Time on pCPUs of a VM's threads that are no vCPUs, by what they are for.
    pub(super) fn helped(&self, vm: &VmSample) -> impl Iterator<Item = (Role, Nanos)> {
        let totals = self.vms.get(&key(vm)).into_iter();
        totals.flat_map(|totals| totals.helped.iter().map(|(role, time)| (*role, *time)))
    }

    /// Time for which a VM's threads were throttled by `cpu.max`, s, if that is counted.
    pub(super) fn throttled_s(&self, vm: &VmSample) -> Option<f64> {
        self.vms.get(&key(vm))?.throttled_s
    }
}

impl VmTotals {
    fn help(&mut self, vm: &VmSample) {
        let threads = vm.machine.threads.iter();
        let helpers = threads.filter(|thread| !thread.role.is_vcpu());
        let counted = |thread: &&Thread| vm.threads.get(&thread.tid).copied();
        let mut now = BTreeMap::new();
        for (thread, counted) in helpers.filter_map(|thread| Some((thread, counted(&thread)?))) {
            let key = (thread.tid, thread.start);
            let before = self.last.helpers.get(&key).copied().unwrap_or_default();
            // Threads are named after they have begun: what one did before is not moved.
            *self.helped.entry(thread.role).or_default() += counted.since(before).run;
            now.insert(key, counted);
        }
        self.last.helpers = now;
    }

    /// The kernel throttles, or corun does: both count for themselves.
    fn throttle(&mut self, vm: &VmSample, daemon: Option<&HostStatus>) {
        if let Some(now) = vm.group.throttled {
            let more = now.saturating_sub(self.last.by_kernel);
            *self.throttled_s.get_or_insert_default() += seconds(more);
            self.last.by_kernel = now;
        }
        let Some(known) = daemon.and_then(|daemon| daemon.vm(vm.machine.tgid)) else {
            return;
        };
        let before = std::mem::take(&mut self.last.by_corun_s);
        for vcpu in &known.vcpus {
            let last = before.get(&vcpu.tid).copied().unwrap_or_default();
            let more = (vcpu.throttled_s - last).max(0.0);
            *self.throttled_s.get_or_insert_default() += more;
            self.last.by_corun_s.insert(vcpu.tid, vcpu.throttled_s);
        }
    }
}

/// A VM for good.
fn key(vm: &VmSample) -> (u32, u64) {
    (vm.machine.tgid, vm.machine.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::FakeHost;
    use crate::watch::Sampler;
    use serde_json::json;

    fn host() -> FakeHost {
        let host = FakeHost::new();
        let names = [(5, "qemu"), (6, "CPU 0/KVM"), (7, "IO a"), (8, "worker")];
        host.process(5, "qemu -name web", "/web", 1, &names);
        for (tid, line) in [(5, "10 0 1"), (6, "900 0 1"), (7, "20 0 1"), (8, "30 0 1")] {
            host.file(&format!("/proc/5/task/{tid}/schedstat"), line);
        }
        host
    }

    fn daemon(for_s: f64, throttled_s: f64) -> Option<HostStatus> {
        let vcpu = json!({"number": 0, "tid": 6, "run_s": 1.0, "ready_s": 0.0, "wait_s": 1.0,
            "throttled_s": throttled_s, "costop_s": 0.0, "switches": 1, "class": null,
            "slice_ms": null, "latency_ms": null, "home": null, "pool": null});
        let vm = json!({"name": "web", "uuid": null, "manager": "none", "id": null, "pid": 5, "slot": 0,
            "weight": null, "under_policy": true, "placement": "balance", "vcpus": [vcpu]});
        let status = json!({"version": "1", "policy": "balance", "policy_for_s": 1.0, "for_s": for_s,
            "max_wait_s": null, "max_ready_percent": null, "max_pressure_percent": null,
            "forced": [], "lapses": 0, "notes": [], "vms": [vm]});
        Some(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn what_ended_threads_had_stays() {
        let host = host();
        let mut sample = Sampler::below(host.root()).sample();
        let mut totals = Totals::default();
        let mut seen = |sample: &Sample| {
            totals.add(sample);
            totals.helped(&sample.vms[0]).collect::<Vec<_>>()
        };
        assert_eq!(seen(&sample), [(Role::Io, 20), (Role::Emulator, 40)]);
        // A worker ends, and another one begins under its number.
        let vm = &mut sample.vms[0];
        vm.machine.threads.retain(|thread| thread.tid != 8);
        assert_eq!(seen(&sample), [(Role::Io, 20), (Role::Emulator, 40)]);
        let sample = Sampler::below(host.root()).sample();
        assert_eq!(seen(&sample), [(Role::Io, 20), (Role::Emulator, 70)]);
        // One is named later: what it had stays where it was.
        host.file("/proc/5/task/8/comm", "IO b\n");
        host.file("/proc/5/task/8/schedstat", "35 0 1");
        let sample = Sampler::below(host.root()).sample();
        assert_eq!(seen(&sample), [(Role::Io, 25), (Role::Emulator, 70)]);
    }

    #[test]
    fn throttled_time_stays_when_the_daemon_ends() {
        let host = host();
        let mut sample = Sampler::below(host.root()).sample();
        let mut totals = Totals::default();
        let mut seen = |daemon: Option<HostStatus>, by_kernel_s: u64| {
            sample.daemon = daemon;
            sample.vms[0].group.throttled = Some(by_kernel_s * 1_000_000_000);
            totals.add(&sample);
            totals.throttled_s(&sample.vms[0])
        };
        assert_eq!(seen(None, 1), Some(1.0));
        assert_eq!(seen(daemon(10.0, 2.0), 1), Some(3.0));
        assert_eq!(seen(None, 1), Some(3.0), "it hangs, or has ended");
        assert_eq!(seen(daemon(30.0, 2.5), 1), Some(3.5), "it hung");
        assert_eq!(seen(daemon(5.0, 3.0), 2), Some(7.5), "another one");
        assert_eq!(seen(None, 0), Some(7.5), "a cgroup below has gone");
    }
}
