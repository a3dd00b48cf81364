// SPDX-License-Identifier: GPL-2.0-only
//! What can be watched while a parameter moves.

use crate::format::{amount, micros, percent, ratio};
use crate::results::{ClientResult, Run, VmResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A measure of a run: of each VM, of each client, or of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Each VM's throughput, as a multiple of the one under the first policy.
    RelativeThroughput,
    /// Each VM's throughput.
    Throughput,
    /// Share of each VM's vCPU time on a pCPU.
    Run,
    /// Share of each VM's vCPU time wanting a pCPU.
    Ready,
    /// Each VM's waits for a pCPU: median, µs.
    ReadyWaitP50,
    /// Each VM's waits for a pCPU: 99th percentile, µs.
    ReadyWaitP99,
    /// Each VM's waits for contended locks: mean, µs.
    LockWaitMean,
    /// Each VM's waits for contended locks: 99th percentile, µs.
    LockWaitP99,
    /// Each client's response times: median, µs.
    ResponseP50,
    /// Each client's response times: 99th percentile, µs.
    ResponseP99,
    /// Share of (runqueue × time) with sibling vCPUs on the runqueue.
    Stacking,
    /// Switches of all pCPUs per second.
    Switches,
    /// Times per second that a vCPU was given a pCPU.
    VcpuSwitches,
    /// Times per second that a pCPU got a vCPU after another one.
    SwitchesBetweenVcpus,
    /// Times per second that a vCPU changed its pCPU.
    Migrations,
    /// Share of pCPU time that was idle.
    Idle,
    /// Jain's index of run / (run + ready) over the VMs: 1 if each gets the same share of the time
    /// in which it wants a pCPU, 1/n if one of n gets all.
    Fairness,
}

impl Measure {
    /// Every measure by name, with what it is.
    pub const ALL: [(Self, &'static str, &'static str); 17] = [
        (
            Self::RelativeThroughput,
            "relative-throughput",
            "each VM's throughput relative to the first policy",
        ),
        (Self::Throughput, "throughput", "each VM's throughput"),
        (Self::Run, "run", "each VM's share of time on a pCPU"),
        (
            Self::Ready,
            "ready",
            "each VM's share of time wanting a pCPU",
        ),
        (
            Self::ReadyWaitP50,
            "ready-wait-p50",
            "each VM's waits for a pCPU, median",
        ),
        (
            Self::ReadyWaitP99,
            "ready-wait-p99",
            "each VM's waits for a pCPU, 99th percentile",
        ),
        (
            Self::LockWaitMean,
            "lock-wait-mean",
            "each VM's waits for contended locks, mean",
        ),
        (
            Self::LockWaitP99,
            "lock-wait-p99",
            "each VM's waits for contended locks, 99th percentile",
        ),
        (
            Self::ResponseP50,
            "response-p50",
            "each client's response times, median",
        ),
        (
            Self::ResponseP99,
            "response-p99",
            "each client's response times, 99th percentile",
        ),
        (
            Self::Stacking,
            "stacking",
            "share of time with sibling vCPUs on one runqueue",
        ),
        (
            Self::Switches,
            "switches",
            "switches of all pCPUs per second",
        ),
        (
            Self::VcpuSwitches,
            "vcpu-switches",
            "times per second that a vCPU was given a pCPU",
        ),
        (
            Self::SwitchesBetweenVcpus,
            "switches-between-vcpus",
            "times per second that a pCPU got a vCPU after another one",
        ),
        (
            Self::Migrations,
            "migrations",
            "times per second that a vCPU changed its pCPU",
        ),
        (Self::Idle, "idle", "share of pCPU time that was idle"),
        (
            Self::Fairness,
            "fairness",
            "Jain's index of the VMs' shares of the time they want a pCPU",
        ),
    ];

    /// The measure of this name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, known, _)| *known == name);
        found.map(|(measure, ..)| *measure)
    }

    /// What it is.
    pub fn says(self) -> &'static str {
        let found = Self::ALL.iter().find(|(measure, ..)| *measure == self);
        found.map_or("", |(.., says)| says)
    }

    /// Why it may have nothing to show.
    pub(super) fn lacks(self) -> Option<&'static str> {
        match self {
            Self::LockWaitMean | Self::LockWaitP99 => Some(
                "nobody waited for a spin lock (a `lock` of a program or workload; a `mutex` is none)",
            ),
            Self::ReadyWaitP50 | Self::ReadyWaitP99 => Some("no vCPU waited for a pCPU"),
            Self::ResponseP50 | Self::ResponseP99 => Some("no reply came"),
            Self::Fairness => Some("no VM wanted a pCPU"),
            Self::RelativeThroughput => Some("nothing was counted under the first policy"),
            _ => None,
        }
    }

    /// Does it concern each client, a program outside the host or a channel between VMs?
    pub fn is_of_clients(self) -> bool {
        matches!(self, Self::ResponseP50 | Self::ResponseP99)
    }

    /// Does it concern the host, rather than each VM or client?
    pub fn is_of_the_host(self) -> bool {
        matches!(
            self,
            Self::Stacking
                | Self::Switches
                | Self::VcpuSwitches
                | Self::SwitchesBetweenVcpus
                | Self::Migrations
                | Self::Idle
                | Self::Fairness
        )
    }

    /// The VMs or clients that it is of in a run; if `only` is given, that VM, or the clients that it serves.
    pub(super) fn subjects<'a>(self, run: &'a Run, only: Option<&str>) -> Vec<&'a str> {
        let wanted = |vm: &str| only.is_none_or(|only| only == vm);
        if self.is_of_the_host() {
            return vec!["host"];
        }
        if self.is_of_clients() {
            // Sinks, streams and the like have no replies to wait for.
            let timed = |client: &&ClientResult| client.replies_per_s.is_some();
            let clients = run.clients.iter().filter(timed);
            let clients = clients.filter(|client| wanted(&client.vm));
            return clients.map(|client| client.name.as_str()).collect();
        }
        let vms = run.vms.iter().map(|vm| vm.name.as_str());
        vms.filter(|vm| wanted(vm)).collect()
    }

    /// Its unit; `None`: that of the VM's throughput.
    pub(super) fn unit(self) -> Option<&'static str> {
        match self {
            Self::RelativeThroughput | Self::Throughput => None,
            Self::Run | Self::Ready | Self::Stacking | Self::Idle => Some("share"),
            Self::Switches | Self::VcpuSwitches | Self::SwitchesBetweenVcpus | Self::Migrations => {
                Some("1/s")
            }
            Self::Fairness => Some("index"),
            _ => Some("µs"),
        }
    }

    /// Formats a value for people.
    pub(super) fn show(self, value: f64) -> String {
        match self.unit() {
            Some("share") => percent(value),
            Some("µs") => micros(value),
            Some("index") => format!("{value:.3}"),
            _ => amount(value),
        }
    }

    /// What a run shows, of the VM or client called `of` unless it is a measure of the host.
    pub(super) fn of(self, run: &Run, of: &str) -> Option<f64> {
        let host = &run.host;
        match self {
            Self::Stacking => Some(host.stacking_probability),
            Self::Switches => Some(host.switches_per_s),
            Self::VcpuSwitches => Some(host.vcpu_switches_per_s),
            Self::SwitchesBetweenVcpus => Some(host.switches_between_vcpus_per_s),
            Self::Migrations => Some(host.vcpu_migrations_per_s),
            Self::Idle => Some(host.idle_share),
            Self::Fairness => fairness(&run.vms),
            Self::ResponseP50 => client(run, of)?.response_p50_us,
            Self::ResponseP99 => client(run, of)?.response_p99_us,
            _ => self.of_vm(run.vms.iter().find(|vm| vm.name == of)?),
        }
    }

    fn of_vm(self, vm: &VmResult) -> Option<f64> {
        match self {
            Self::Run => Some(vm.run_share),
            Self::Ready => Some(vm.ready_share),
            Self::ReadyWaitP50 => vm.ready_wait_p50_us,
            Self::ReadyWaitP99 => vm.ready_wait_p99_us,
            Self::LockWaitMean => vm.lock_wait_mean_us,
            Self::LockWaitP99 => vm.lock_wait_p99_us,
            _ => Some(vm.throughput),
        }
    }
}

fn client<'a>(run: &'a Run, name: &str) -> Option<&'a ClientResult> {
    run.clients.iter().find(|client| client.name == name)
}

/// Jain, Chiu, Hawe, "A Quantitative Measure of Fairness", DEC TR-301, 1984: the square of the sum
/// over n times the sum of squares. VMs that never want a pCPU do not count.
fn fairness(vms: &[VmResult]) -> Option<f64> {
    let shares: Vec<f64> = vms
        .iter()
        .filter(|vm| vm.run_share + vm.ready_share > 0.0)
        .map(|vm| vm.run_share / (vm.run_share + vm.ready_share))
        .collect();
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(sum, squares), s| (sum + s, squares + s * s));
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Formats a multiple for people.
pub(super) fn multiple(value: f64) -> String {
    ratio(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_by_hand() {
        let vm = |run, ready| VmResult {
            run_share: run,
            ready_share: ready,
            ..VmResult::default()
        };
        let index = |vms: &[VmResult]| fairness(vms);
        assert_eq!(
            index(&[vm(0.5, 0.5), vm(0.2, 0.2), vm(0.0, 0.0)]),
            Some(1.0)
        );
        assert_eq!(index(&[vm(1.0, 0.0), vm(0.0, 1.0)]), Some(0.5));
        assert_eq!(index(&[vm(0.0, 0.0)]), None);
    }

    #[test]
    fn names_lead_back_to_their_measures() {
        for (measure, name, _) in Measure::ALL {
            assert_eq!(Measure::named(name), Some(measure));
            let json = serde_json::to_string(&measure).unwrap();
            assert_eq!(json, format!("\"{name}\""));
        }
    }
}
