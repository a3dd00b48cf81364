// SPDX-License-Identifier: GPL-2.0-only
//! Are VMs served as promised? If not, the host goes back to the kernel's own scheduler.
//!
//! Three promises can be watched. No vCPU waits for longer than a limit: the dispatcher lets no vCPU wait for more than
//! a second (dispatcher/starve.h), so three times that is a fault, its own or the policy's. No VM is ready for more
//! than a share of its time; and the host is under no more CPU pressure than a limit: for these two, the right value
//! depends on what was sold, so there is no default. Shares are those of a window, so that a burst is no breach. The
//! longest wait is judged by two looks: the dispatcher writes while the daemon reads, so a single look may mix two
//! moments and show what never was.

use crate::control::Reading;
use crate::discovery::{Vcpu, Vm};
use corun_model::time::{MS, SEC, seconds};
use corun_model::{Nanos, TaskId};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// How often one looks: a breach is seen within this time, and the host is back well within a second.
pub(crate) const LOOK: Nanos = 250 * MS;
/// How soon vCPUs that wait for too long are looked at again: a torn read is consistent by then.
const AGAIN: Nanos = 10 * MS;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// How long a vCPU may be ready without being given a pCPU, ns.
    pub max_wait: Option<Nanos>,
    /// Share of the window that a VM's vCPUs may be ready, percent of their time.
    pub max_ready: Option<f64>,
    /// Share of the window in which some task may wait for a pCPU, percent.
    pub max_pressure: Option<f64>,
    /// The window, ns.
    pub window: Nanos,
}

impl Default for Limits {
    /// No vCPU waits for three seconds: three times what the dispatcher lets happen, and before the
    /// kernel's watchdog, which takes five.
    fn default() -> Self {
        Self {
            max_wait: Some(3 * SEC),
            max_ready: None,
            max_pressure: None,
            window: 10 * SEC,
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breach {
    /// Which: `max-wait`, `max-ready` or `max-pressure`, as its option.
    pub promise: &'static str,
    /// What was seen.
    pub what: String,
}

/// What a VM's vCPUs have spent, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    ready: Nanos,
    all: Nanos,
}

/// What was seen at one time.
#[derive(Debug, Default)]
struct Look {
    at: Nanos,
    vms: BTreeMap<u32, Spent>,
    pressure: Option<Nanos>,
}

/// Watches over the limits.
#[derive(Debug)]
pub(crate) struct Guard {
    limits: Limits,
    due: Nanos,
    looks: VecDeque<Look>,
    /// The vCPUs that waited for too long at the last look, with how often each had been given a
    /// pCPU by then.
    overdue: BTreeMap<TaskId, u64>,
}

impl Guard {
    pub(crate) fn new(limits: Limits, now: Nanos) -> Self {
        Self {
            limits,
            due: now,
            looks: VecDeque::new(),
            overdue: BTreeMap::new(),
        }
    }

    /// When to look next.
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Judges the counters of all vCPUs; `pressure` is the time some task has waited so far.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        vms: &[Vm],
        reading: &Reading,
        pressure: Option<Nanos>,
    ) -> Option<Breach> {
        self.due = now + LOOK;
        let longest = self.longest_wait(vms, reading);
        if longest.is_some() {
            return longest;
        }
        if !self.overdue.is_empty() {
            self.due = now + AGAIN;
        }
        let mut look = Look {
            at: now,
            pressure,
            ..Look::default()
        };
        let mut names = BTreeMap::new();
        let promised = vms.iter().filter(|_| self.limits.max_ready.is_some());
        for vm in promised {
            names.insert(vm.vm.0, vm.name.as_str());
            let spent = look.vms.entry(vm.vm.0).or_default();
            for counters in vm.vcpus.iter().filter_map(|vcpu| reading.get(vcpu.task)) {
                spent.ready += counters.ready;
                spent.all += counters.run + counters.ready + counters.wait;
            }
        }
        self.shares(look, &names)
    }

    /// The vCPU that has waited for too long, at this look and the one before, and was given no
    /// pCPU between them.
    fn longest_wait(&mut self, vms: &[Vm], reading: &Reading) -> Option<Breach> {
        let limit = self.limits.max_wait?;
        let before = std::mem::take(&mut self.overdue);
        let mut breach = None;
        for vm in vms {
            for vcpu in &vm.vcpus {
                let Some(seen) = reading.get(vcpu.task).filter(|seen| seen.ready_for > limit)
                else {
                    continue;
                };
                self.overdue.insert(vcpu.task, seen.switches);
                if before.get(&vcpu.task) == Some(&seen.switches) {
                    breach.get_or_insert_with(|| waited(vm, vcpu, seen.ready_for, limit));
                }
            }
        }
        breach
    }

    /// Compares with what was seen a window ago.
    fn shares(&mut self, look: Look, names: &BTreeMap<u32, &str>) -> Option<Breach> {
        let window = self.limits.window;
        let long_ago = |then: &&Look| look.at.saturating_sub(then.at) >= window;
        while self.looks.get(1).filter(long_ago).is_some() {
            self.looks.pop_front();
        }
        let then = self.looks.front().filter(long_ago);
        let breach = then.and_then(|then| self.judge(then, &look, names));
        self.looks.push_back(look);
        breach
    }

    fn judge(&self, then: &Look, now: &Look, names: &BTreeMap<u32, &str>) -> Option<Breach> {
        let over = seconds(now.at - then.at);
        let elapsed = (now.at - then.at) as f64;
        for (vm, spent) in &now.vms {
            // A VM that came within the window has not been there for long enough.
            let (Some(limit), Some(before)) = (self.limits.max_ready, then.vms.get(vm)) else {
                continue;
            };
            let all = spent.all.saturating_sub(before.all);
            let ready = spent.ready.saturating_sub(before.ready);
            let share = 100.0 * ready as f64 / all.max(1) as f64;
            if share > limit {
                let name = names.get(vm).copied().unwrap_or("?");
                return Some(Breach {
                    promise: "max-ready",
                    what: format!(
                        "VM {name} was ready for {share:.1} % of {over:.0} s, {limit} % were promised at \
                         most"
                    ),
                });
            }
        }
        let limit = self.limits.max_pressure?;
        let waited = now.pressure?.saturating_sub(then.pressure?);
        let share = 100.0 * waited as f64 / elapsed;
        (share > limit).then(|| Breach {
            promise: "max-pressure",
            what: format!(
                "tasks waited for a pCPU during {share:.1} % of {over:.0} s, {limit} % were promised at most"
            ),
        })
    }
}

/// The breach by a vCPU that has waited for too long.
fn waited(vm: &Vm, vcpu: &Vcpu, waited: Nanos, limit: Nanos) -> Breach {
    let vcpu_no = vcpu
        .number
        .map_or_else(|| "a vCPU".to_string(), |number| format!("vCPU {number}"));
    Breach {
        promise: "max-wait",
        what: format!(
            "{vcpu_no} of VM {} (thread {}) has waited for a pCPU for {:.1} s, {:.1} s were promised at most",
            vm.name,
            vcpu.key.tid,
            seconds(waited),
            seconds(limit)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::host;
    use crate::counters::Counters;

    /// `ready` of `all` for VM 3, at a time in s.
    fn seen(guard: &mut Guard, at: u64, ready: u64, pressure: u64) -> Option<Breach> {
        let spent = Spent {
            ready: ready * SEC,
            all: at * SEC,
        };
        let look = Look {
            at: at * SEC,
            vms: BTreeMap::from([(3, spent)]),
            pressure: Some(pressure * SEC),
        };
        guard.shares(look, &BTreeMap::from([(3, "web")]))
    }

    fn guard(max_ready: Option<f64>, max_pressure: Option<f64>) -> Guard {
        let limits = Limits {
            max_ready,
            max_pressure,
            window: 10 * SEC,
            ..Limits::default()
        };
        Guard::new(limits, 0)
    }

    #[test]
    fn the_promise_is_broken_before_the_kernel_takes_the_host_back() {
        let mut storage = std::mem::MaybeUninit::uninit();
        let opened = crate::skel::open(&mut storage, false).unwrap();
        let watchdog = Nanos::from(opened.struct_ops.corun().timeout_ms) * MS;
        assert!(Limits::default().max_wait.unwrap() + LOOK < watchdog);
    }

    #[test]
    fn a_share_counts_over_a_whole_window() {
        let mut guard = guard(Some(20.0), None);
        // All of it in the first four seconds: 40 % of the window.
        for at in 0..10 {
            assert_eq!(seen(&mut guard, at, at.min(4), 0), None, "at {at} s");
        }
        let breach = seen(&mut guard, 10, 4, 0).unwrap();
        assert_eq!(breach.promise, "max-ready");
        assert!(breach.what.contains("VM web was ready for 40.0 % of 10 s"));
        // Eight seconds on, the window has but two of these.
        assert!(seen(&mut guard, 11, 4, 0).is_some());
        assert_eq!(seen(&mut guard, 12, 4, 0), None);
    }

    /// What one look sees may be of two moments: the wait of one turn, and the clock of another.
    #[test]
    fn a_wait_is_too_long_if_two_looks_say_so() {
        let mut guard = guard(None, None);
        let (vms, _) = host();
        let look = |guard: &mut Guard, at: u64, task: u32, ready_for: u64, switches| {
            let mut counters = Counters::default();
            (counters.ready_for, counters.switches) = (ready_for * SEC, switches);
            let reading = Reading::of(vec![(TaskId(task), counters)]);
            guard.look(at * SEC, &vms, &reading, None)
        };
        assert_eq!(look(&mut guard, 10, 0, 9, 5), None, "once");
        assert_eq!(look(&mut guard, 11, 0, 0, 5), None);
        assert_eq!(look(&mut guard, 12, 0, 4, 5), None, "once again");
        assert_eq!(
            look(&mut guard, 13, 0, 4, 6),
            None,
            "it had a pCPU meanwhile"
        );
        assert_eq!(look(&mut guard, 14, 1, 4, 6), None, "another one");
        assert_eq!(guard.due(), 14 * SEC + AGAIN);
        let breach = look(&mut guard, 15, 1, 5, 6).unwrap();
        assert_eq!(breach.promise, "max-wait");
        assert!(breach.what.contains("vCPU 1 of VM vm0") && breach.what.contains("5.0 s"));
    }

    /// As those of crosvm and kvmtool are.
    #[test]
    fn a_vcpu_whose_name_tells_no_number_is_told_by_its_thread() {
        let mut vm = host().0.remove(0);
        vm.vcpus[0].number = None;
        let what = waited(&vm, &vm.vcpus[0], 4 * SEC, 3 * SEC).what;
        let tid = vm.vcpus[0].key.tid;
        let begin = format!("a vCPU of VM vm0 (thread {tid}) has waited");
        assert!(what.starts_with(&begin), "{what}");
    }

    #[test]
    fn without_a_limit_nothing_is_promised() {
        let mut guard = guard(None, None);
        assert!((0..30).all(|at| seen(&mut guard, at, at, at).is_none()));
    }

    #[test]
    fn pressure_is_watched_over() {
        let mut guard = guard(None, Some(90.0));
        assert!((0..=10).all(|at| seen(&mut guard, at, 0, at / 2).is_none()));
        let breaches = (11..30).filter_map(|at| seen(&mut guard, at, 0, at));
        assert_eq!(breaches.last().unwrap().promise, "max-pressure");
    }

    #[test]
    fn looks_beyond_the_window_are_forgotten() {
        let mut guard = guard(Some(50.0), None);
        (0..1000).for_each(|at| assert_eq!(seen(&mut guard, at, 0, 0), None));
        assert!(guard.looks.len() <= 12, "{}", guard.looks.len());
    }
}
