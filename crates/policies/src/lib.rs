// SPDX-License-Identifier: GPL-2.0-only
//! What should hold for the VMs and vCPUs of a host: control logic, without I/O and without a clock.
//!
//! A [`Policy`] looks at what happened in a period ([`Snapshot`]) and says what should hold in the
//! next one ([`Plan`]); the simulator and the daemon drive it alike. Each published system has a
//! folder of its own, to be read beside its paper, and an entry in [`all`].

mod affinity;
pub mod analysis;
pub mod aql;
mod balance;
mod balance_load;
pub mod bench;
mod calm;
mod cosched;
mod cpusets;
mod fair;
mod filled;
pub mod jupiter;
mod microsliced;
mod parts;
pub mod pmu;
mod quotas;
mod registry;
mod settings;
mod usable;
pub mod vmigrater;
mod vslicer;
pub mod vsmtio;
mod vturbo;
mod wanting;
pub mod weighing;

pub use affinity::Affinity;
pub use aql::{Aql, AqlParams};
pub use balance::Balance;
pub use balance_load::BalanceLoad;
pub use calm::Calm;
pub use cosched::demand::CoschedDemand;
pub use cosched::dt::CoschedDt;
pub use cosched::relaxed::{CoschedRelaxed, CoschedRelaxedAll};
pub use cosched::strict::CoschedStrict;
pub use fair::Fair;
pub use jupiter::{Jupiter, JupiterParams};
pub use microsliced::Microsliced;
pub use registry::{PolicyInfo, Reach, all, constants, find, known, names, parameters};
pub use settings::{AGNOSTIC, Field, OWN, SettingError, Settings};
pub use vslicer::{VSlicer, VSlicerSlices};
pub use vsmtio::{VsmtIo, VsmtIoParams};
pub use vturbo::{VTurbo, VTurboPools};

use corun_model::{Nanos, Placement, Plan, Snapshot, Status, VmPlan};

/// Decides, period by period, what should hold for the VMs of a host.
pub trait Policy: Send {
    /// How often [`Policy::decide`] runs.
    fn period(&self) -> Nanos;

    /// What happened in the last period → what should hold in the next one.
    ///
    /// The policy states all it wants, each time; the code that carries the plan out finds out what holds already. So a
    /// VM gets its due whenever it appears, and if a plan is lost, the next one makes up for it.
    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan);

    /// Does it look at [`corun_model::Signals`]? If not, they need not be counted.
    fn wants_signals(&self) -> bool {
        false
    }

    /// Does it look at [`corun_model::Signals::cycles`], and by which events are these to be divided? They are counted
    /// at every switch of every pCPU.
    fn wants_cycles(&self) -> Option<pmu::Choice> {
        None
    }

    /// Its status, as of the last decision.
    fn status(&self) -> Status {
        Status::default()
    }

    /// The type that it takes a vCPU to be, by name, if it has types.
    fn recognised(&self, task: corun_model::TaskId) -> Option<&'static str> {
        let _ = task;
        None
    }
}

/// How long a VM that has just started may go without its policy.
const NEW_VM_WAIT: Nanos = 200 * corun_model::time::MS;

/// All VMs are placed alike.
fn place_all(seen: &Snapshot, plan: &mut Plan, placement: Placement) {
    let place = |vm: &corun_model::VmSeen| VmPlan::placed(vm.vm, placement);
    plan.vms.extend(seen.vms.iter().map(place));
}

#[cfg(test)]
mod testing;
