// SPDX-License-Identifier: GPL-2.0-only
//! KVM's halt polling: before a halted vCPU's thread blocks, it polls for a wake-up for a while.
//!
//! Problem: a vCPU that blocks costs two switches and a wake-up; polling saves them when the wake-up
//! is near, and wastes the hardware thread when it is not. KVM adapts how long each vCPU polls
//! (`virt/kvm/kvm_main.c`, `kvm_vcpu_halt`, Linux 5.3 and later): a wake-up during the poll keeps
//! the window, a short block that a longer poll would have caught lets it grow, a long one shrinks
//! it. KVM polls only while the pCPU has no other task (`single_task_running`), hence hardly ever on an overcommitted
//! host; the dissertation's *enhanced* form (§3.6.1) lifts that rule.
//!
//! A vCPU that is polled for does not stay ready when the scheduler puts another task in its place:
//! it has nothing to run. The poll ends when the scheduler wants the pCPU (`need_resched()`, since
//! 5.13) and the vCPU blocks, so that its wake-up is a wake-up like others. Before 5.13 the loop
//! checked only `single_task_running()` and the time: without the former, as in the enhanced form,
//! a kernel that does not preempt itself (`CONFIG_PREEMPT_VOLUNTARY`, usual on servers) polls to
//! the end, and schedules then ([`HaltPollParams::to_end`]).

use corun_model::Nanos;
use corun_model::time::US;
use corun_model::{Parameter, Value};

/// KVM's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltPollParams {
    /// The longest poll, ns; 0: none.
    pub most: Nanos,
    /// A window that was too short is multiplied by this.
    pub grow: u32,
    /// The first window.
    pub grow_start: Nanos,
    /// A window that was too long is divided by this; 0: it is reset to nothing.
    pub shrink: u32,
    /// Polls although other tasks want the pCPU (the dissertation's enhanced halt polling).
    pub shared: bool,
    /// Polls to the end, whatever the scheduler wants meanwhile (before 5.13, without full preemption).
    /// Only matters for a poll that is `shared`.
    pub to_end: bool,
}

impl Default for HaltPollParams {
    fn default() -> Self {
        Self {
            most: 200 * US,
            grow: 2,
            grow_start: 10 * US,
            shrink: 0,
            shared: false,
            to_end: false,
        }
    }
}

/// The table's rows for [`HaltPollParams`].
pub fn parameters() -> Vec<Parameter> {
    const SOURCE: &str = "Linux virt/kvm/kvm_main.c, arch/x86 KVM_HALT_POLL_NS_DEFAULT (5.3)";
    let default = HaltPollParams::default();
    let row = Parameter::new;
    vec![
        row(
            "host.halt_poll.most",
            "longest halt poll; 0: none",
            Value::Time(default.most),
            SOURCE,
            "0 to 5 ms (dissertation, Figure 3.1)",
        ),
        row(
            "host.halt_poll.grow",
            "factor by which the poll window grows",
            Value::Number(f64::from(default.grow), ""),
            SOURCE,
            "the default only",
        ),
        row(
            "host.halt_poll.grow_start",
            "first poll window",
            Value::Time(default.grow_start),
            SOURCE,
            "the default only",
        ),
        row(
            "host.halt_poll.shrink",
            "divisor by which the window shrinks; 0: reset",
            Value::Number(f64::from(default.shrink), ""),
            SOURCE,
            "0 and 2 (later kernels)",
        ),
        row(
            "host.halt_poll.shared",
            "polls although another task waits (enhanced halt polling)",
            Value::Switch(default.shared),
            "stock KVM does not; dissertation, section 3.6.1",
            "both",
        ),
        row(
            "host.halt_poll.to_end",
            "a shared poll goes on when the scheduler wants the pCPU",
            Value::Switch(default.to_end),
            "Linux virt/kvm/kvm_main.c: need_resched() ends polls since 5.13",
            "both",
        ),
    ]
}

/// A vCPU's adaptive poll window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PollWindow(Nanos);

impl PollWindow {
    /// How long to poll now.
    pub fn now(self) -> Nanos {
        self.0
    }

    /// A halt is over that took `halted` ns in all, poll included, until the vCPU runs again.
    pub fn learn(&mut self, halted: Nanos, params: &HaltPollParams) {
        if params.most == 0 {
            self.0 = 0;
        } else if halted <= self.0 {
            // The poll caught the wake-up: keep the window.
        } else if self.0 > 0 && halted > params.most {
            self.0 = match params.shrink {
                0 => 0,
                divisor => self.0 / Nanos::from(divisor),
            };
            if self.0 < params.grow_start {
                self.0 = 0;
            }
        } else if self.0 < params.most && halted < params.most {
            let grown = self.0.saturating_mul(Nanos::from(params.grow));
            self.0 = grown.max(params.grow_start).min(params.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_keeps_and_resets_as_kvm_has_it() {
        let params = HaltPollParams::default();
        let mut window = PollWindow::default();
        let mut learn = |halted| {
            window.learn(halted * US, &params);
            window.now() / US
        };
        // 10, 20, 40, 80, 160 µs after short blocks, then the most there is.
        let grown: Vec<_> = (0..6).map(|_| learn(199)).collect();
        assert_eq!(grown, [10, 20, 40, 80, 160, 200]);
        // A poll that caught its wake-up keeps the window, a block of the limit itself, too.
        assert_eq!((learn(150), learn(200)), (200, 200));
        // A longer block resets it, and long ones leave it at nothing.
        assert_eq!((learn(201), learn(1000)), (0, 0));
        assert_eq!(learn(50), 10);
    }

    #[test]
    fn later_kernels_shrink_by_a_divisor() {
        let params = HaltPollParams {
            shrink: 2,
            ..HaltPollParams::default()
        };
        let mut window = PollWindow(40 * US);
        let mut learn = || {
            window.learn(1000 * US, &params);
            window.now() / US
        };
        assert_eq!((learn(), learn(), learn()), (20, 10, 0));
    }
}
