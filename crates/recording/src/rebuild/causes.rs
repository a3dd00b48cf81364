// SPDX-License-Identifier: GPL-2.0-only
//! What wake-ups meant, decided once every task's role is known: what woke a task, and after how much work.

use super::track::{By, RawBurst, Track};
use crate::event::Context;
use crate::model::{Burst, Role, WakeCause, Wakers};
use corun_model::{TaskId, VmId};

/// What is needed to distinguish causes.
pub(super) struct Causes {
    /// Each task's role.
    roles: Vec<Role>,
    /// Each task's name.
    comms: Vec<String>,
}

impl Causes {
    pub(super) fn new(roles: Vec<Role>, tracks: &[Track]) -> Self {
        let comms = tracks.iter().map(|track| track.comm.clone());
        Self {
            roles,
            comms: comms.collect(),
        }
    }

    /// The burst that began with a wake-up, and the cause of that.
    pub(super) fn burst(&self, wakee: usize, raw: &RawBurst) -> Burst {
        let delay = raw.woken.at.saturating_sub(raw.blocked_at);
        let wake = match raw.woken.by {
            By::Start => WakeCause::AtStart,
            By::Interrupt | By::Timer | By::Unseen => WakeCause::External { delay },
            By::Slot {
                waker,
                work,
                context,
            } => match self.is_meant(waker, wakee, context) {
                false => WakeCause::External { delay },
                true => WakeCause::Task {
                    waker: TaskId::from(waker),
                    waker_work: work,
                },
            },
        };
        Burst {
            wake,
            woken_at: raw.woken.at,
            work: raw.work,
            end: raw.end,
        }
    }

    /// What woke a task, counted.
    pub(super) fn count(&self, wakee: usize, track: &Track) -> Wakers {
        let mut wakers = Wakers::default();
        for raw in &track.bursts {
            let count = match raw.woken.by {
                By::Start => continue,
                By::Timer => &mut wakers.timers,
                By::Interrupt => &mut wakers.interrupts,
                By::Unseen => &mut wakers.unknown,
                By::Slot { waker, context, .. } => match self.role(waker) {
                    _ if !self.is_meant(waker, wakee, context) => &mut wakers.interrupts,
                    Role::Vcpu { .. } if self.same_vm(waker, wakee) => &mut wakers.siblings,
                    Role::VmThread { .. } if self.same_vm(waker, wakee) => &mut wakers.vm_threads,
                    _ => &mut wakers.others,
                },
            };
            *count += 1;
        }
        wakers
    }

    /// A task's role.
    pub(super) fn role(&self, slot: usize) -> Role {
        self.roles.get(slot).copied().unwrap_or(Role::Host)
    }

    /// The VM that a task belongs to.
    fn vm(&self, slot: usize) -> Option<VmId> {
        self.role(slot).vm()
    }

    fn same_vm(&self, a: usize, b: usize) -> bool {
        self.vm(a).is_some() && self.vm(a) == self.vm(b)
    }

    /// Was a wake-up in this context caused by the running task, and not by an interrupt?
    fn is_meant(&self, waker: usize, wakee: usize, context: Context) -> bool {
        context != Context::Unknown || self.plausible(waker, wakee)
    }

    /// Whether the running task may have meant to wake this one: a guess if the recording does not
    /// distinguish interrupts. A vCPU wakes its siblings, its VM's threads and kernel workers;
    /// whatever else is woken while it runs, an interrupt woke.
    fn plausible(&self, waker: usize, wakee: usize) -> bool {
        let is_vcpu = matches!(self.role(waker), Role::Vcpu { .. });
        match (self.vm(waker), self.vm(wakee)) {
            (Some(a), Some(b)) => a == b,
            (Some(_), None) if is_vcpu => self
                .comms
                .get(wakee)
                .is_some_and(|comm| comm.starts_with("kworker")),
            _ => true,
        }
    }
}
