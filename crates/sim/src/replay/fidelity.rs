// SPDX-License-Identifier: GPL-2.0-only
//! How well a replay under the recorded host's own scheduler matches the recording.
//!
//! A what-if is only as good as the replay's picture of what really happened. So the recording is
//! first replayed under a model of the scheduler that ran, and every figure is compared with the
//! recorded one. Errors have two sources that this check cannot distinguish: the replay of the
//! demand, and the model of the scheduler.

use super::demand::replay_order;
use super::note::{ReplayNote, limits};
use crate::Outcome;
use crate::host::Totals;
use corun_recording::{Recording, Role, TaskObserved};

/// A recorded figure and the replay's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// As recorded.
    pub recorded: f64,
    /// As replayed.
    pub replayed: f64,
}

impl Compared {
    /// Replayed less recorded, in the unit of both.
    pub fn absolute(&self) -> f64 {
        self.replayed - self.recorded
    }

    /// The error as a fraction of the recorded figure; `None` if that is 0.
    pub fn relative(&self) -> Option<f64> {
        (self.recorded != 0.0).then(|| self.absolute() / self.recorded)
    }

    fn add(&mut self, other: &Self) {
        self.recorded += other.recorded;
        self.replayed += other.replayed;
    }
}

/// A vCPU's, VM's or host's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The vCPU as `vm/0`, the VM's name, or `host`.
    pub name: String,
    /// Time on a pCPU, ns.
    pub run: Compared,
    /// Time wanting a pCPU, ns.
    pub ready: Compared,
    /// Time wanting none, ns. A task that did not exist yet or no longer existed counts as waiting
    /// in the replay, and not at all in the recording.
    pub wait: Compared,
    /// Times it was given a pCPU. Switches to idle are not among them.
    pub switches: Compared,
    /// Moves: to another runqueue in the recording, to another pCPU than it ran on last in the
    /// replay.
    pub migrations: Compared,
}

/// The error of all vCPUs together: the absolute errors of every vCPU, summed, divided by the sum
/// of the recorded figures. 0 is perfect; 0.1 means "off by 10 % on average, large figures weighing
/// more". `None` where nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overall {
    /// Of run time.
    pub run: Option<f64>,
    /// Of ready time.
    pub ready: Option<f64>,
    /// Of switches.
    pub switches: Option<f64>,
}

/// A replay compared with its recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Fidelity {
    /// Every vCPU, by VM and number.
    pub vcpus: Vec<Figures>,
    /// Per VM, its vCPUs together, in the order of their ids.
    pub vms: Vec<Figures>,
    /// All tasks of the host.
    pub host: Figures,
    /// Share of (pCPU × time) with two or more siblings on the runqueue, 0–1.
    pub stacking: Compared,
    /// Everything in one line.
    pub overall: Overall,
    /// What to know before trusting a what-if.
    pub notes: Vec<ReplayNote>,
}

/// Compares the outcome of a [`Replay`](super::Replay) with its recording. The run must have
/// lasted as long as the recording and had no warm-up.
pub fn fidelity(recording: &Recording, outcome: &Outcome) -> Fidelity {
    let named = |name: &str| Figures {
        name: name.to_string(),
        ..Figures::default()
    };
    let mut vms: Vec<Figures> = recording.vms.iter().map(|vm| named(&vm.name)).collect();
    let (mut host, mut vcpus) = (named("host"), Vec::new());
    for (id, (name, _, replayed)) in replay_order(recording).iter().zip(&outcome.tasks) {
        let Some(task) = recording.task(*id) else {
            continue;
        };
        let figures = beside(name, &task.observed, replayed);
        add(&mut host, &figures);
        let Role::Vcpu { vm, .. } = task.role else {
            continue;
        };
        if let Some(vm) = vms.get_mut(vm.index()) {
            add(vm, &figures);
        }
        vcpus.push(figures);
    }
    Fidelity {
        overall: Overall {
            run: error(&vcpus, |f| f.run),
            ready: error(&vcpus, |f| f.ready),
            switches: error(&vcpus, |f| f.switches),
        },
        stacking: Compared {
            recorded: recording.observed.stacking_probability(),
            replayed: outcome.stacking.iter().skip(2).sum(),
        },
        vcpus,
        vms,
        host,
        notes: limits(recording),
    }
}

fn beside(name: &str, recorded: &TaskObserved, replayed: &Totals) -> Figures {
    let compared = |recorded: u64, replayed: u64| Compared {
        recorded: recorded as f64,
        replayed: replayed as f64,
    };
    Figures {
        name: name.to_string(),
        run: compared(recorded.run, replayed.run),
        ready: compared(recorded.ready, replayed.ready),
        wait: compared(recorded.wait, replayed.wait),
        switches: compared(recorded.switches_in, replayed.switches),
        migrations: compared(recorded.migrations, replayed.migrations),
    }
}

fn add(sum: &mut Figures, part: &Figures) {
    sum.run.add(&part.run);
    sum.ready.add(&part.ready);
    sum.wait.add(&part.wait);
    sum.switches.add(&part.switches);
    sum.migrations.add(&part.migrations);
}

fn error(vcpus: &[Figures], of: impl Fn(&Figures) -> Compared) -> Option<f64> {
    let recorded: f64 = vcpus.iter().map(|f| of(f).recorded).sum();
    let off: f64 = vcpus.iter().map(|f| of(f).absolute().abs()).sum();
    (recorded > 0.0).then(|| off / recorded)
}
