// SPDX-License-Identifier: GPL-2.0-only
//! What runs showed, as `--json` prints it. Units are part of the names.

use crate::advice::Confidence;
use crate::detail::Detail;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Policies compared on one input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of corun.
    pub version: String,
    /// Name of the scenario or recording: its file's name without directories and extension.
    pub scenario: String,
    /// The input's title, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where the setting comes from, if the input says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For a recording: how well its replay under the recorded host's own scheduler matches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayCheck>,
    /// For a recording: how far to trust what-ifs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// What to know of the input: what some policy cannot do of what it says, or what a recording lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// One per case, policy and seed; cases in the order of the scenario, policies in the order
    /// asked for.
    pub runs: Vec<Run>,
}

/// A recorded figure and the replay's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Beside {
    /// As recorded.
    pub recorded: f64,
    /// As replayed.
    pub replayed: f64,
}

/// A replay beside its recording: how far a what-if may be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCheck {
    /// The scheduler replayed under.
    pub scheduler: String,
    /// Is that what the recording, or `--recorded-under`, says it ran under, or assumed?
    pub scheduler_is_recorded: bool,
    /// What the recording calls the scheduler it ran under; null if it names none.
    #[serde(default)]
    pub recorded_scheduler: Option<String>,
    /// Error of all vCPUs' run time: absolute errors summed, over the recorded sum; null if
    /// nothing was recorded.
    pub run_error: Option<f64>,
    /// The same, of ready time.
    pub ready_error: Option<f64>,
    /// The same, of switches.
    pub switches_error: Option<f64>,
    /// Share of (runqueue × time) with sibling vCPUs on the runqueue.
    pub stacking_probability: Beside,
    /// Switches to tasks, on the whole host.
    pub switches: Beside,
    /// Every vCPU.
    pub vcpus: Vec<VcpuCheck>,
    /// What to know before trusting a what-if.
    pub notes: Vec<String>,
}

/// A vCPU's replay beside its recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VcpuCheck {
    /// `vm/0`.
    pub name: String,
    /// Time on a pCPU.
    pub run_s: Beside,
    /// Time wanting one.
    pub ready_s: Beside,
    /// Times it was given one.
    pub switches: Beside,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The policy.
    pub policy: String,
    /// The scenario's case; empty if it has none.
    pub case: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The kernel that is modelled, such as `Linux 2.6.33`, if the policy is a model of one or done to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The host as a whole.
    pub host: HostResult,
    /// Its VMs.
    pub vms: Vec<VmResult>,
    /// Host tasks that are no vCPUs, without those of its own housekeeping.
    pub tasks: Vec<TaskResult>,
    /// The host's disks, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskResult>,
    /// Clients outside the host, then channels between VMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientResult>,
    /// What only the page draws.
    #[serde(skip)]
    pub detail: Detail,
}

/// What happened to a disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskResult {
    /// Its name.
    pub name: String,
    /// Requests finished per second.
    pub requests_per_s: f64,
    /// Their bytes per second.
    pub bytes_per_s: f64,
    /// Share of the time with at least one request in the disk.
    pub utilisation: f64,
    /// Share of the time that the disk was free and requests waited because the I/O scheduler waited
    /// for another VM's.
    pub anticipation_share: f64,
    /// Requests per second to a hard disk that did not continue the last one.
    pub seeks_per_s: f64,
}

/// What a VM did with its disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IoResult {
    /// Reads and writes that its threads finished, per second.
    pub operations_per_s: f64,
    /// Their bytes per second.
    pub bytes_per_s: f64,
    /// From the beginning of a read or write that had to wait until its thread ran again: median;
    /// null if there was none.
    pub wait_p50_us: Option<f64>,
    /// The same, 99th percentile; null if there was none.
    pub wait_p99_us: Option<f64>,
    /// Requests of its block layer to read, read-ahead's included, from when the guest issues one until it takes the
    /// interrupt of its end: mean; null if there was none.
    #[serde(default)]
    pub read_request_mean_us: Option<f64>,
    /// The same of requests to write.
    #[serde(default)]
    pub write_request_mean_us: Option<f64>,
    /// I/O inactivity: thread time during which an I/O thread could run, or its data were there, but
    /// its vCPU wanted a pCPU and had none.
    pub inactivity_s: f64,
    /// The same as a share of the I/O threads' time.
    pub inactivity_share: f64,
}

/// What vMigrater or xBalloon did in a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentResult {
    /// Times per second that vMigrater moved a task.
    pub migrations_per_s: f64,
    /// Of these: from vCPUs whose slice was about to end, to ones active or about to be.
    pub pushes_per_s: f64,
    /// From vCPUs that were descheduled.
    pub pulls_per_s: f64,
    /// What a move cost its task: from when it was told to (asleep then: from when it woke) until it
    /// ran on its new vCPU, mean; null if there was none.
    pub migration_cost_mean_us: Option<f64>,
    /// Share of the vCPUs' time that the agent itself took.
    pub work_share: f64,
    /// Share of the vCPUs' time that they slept for xBalloon, with computing to do.
    pub ballooned_share: f64,
}

/// How far the vCPUs of a VM ran apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiblingResult {
    /// A vCPU started while no sibling ran: time until one that was ready then started, mean; null if
    /// there was none.
    pub co_start_skew_mean_us: Option<f64>,
    /// The same, 99th percentile.
    pub co_start_skew_p99_us: Option<f64>,
    /// Share of these siblings that did not start before the VM had no running vCPU any more; null
    /// if there were none.
    pub co_start_never_share: Option<f64>,
    /// Of the time in which a vCPU ran and two or more were not waiting, the share in which all of
    /// these ran; null if there was none.
    pub co_run_share: Option<f64>,
    /// Progress (run or halted time) of the fastest over the slowest vCPU: mean over their starts;
    /// null if none started.
    pub progress_skew_mean_us: Option<f64>,
    /// The same, the most.
    pub progress_skew_max_us: Option<f64>,
    /// Share of the vCPUs' time in which they were ready and held back for siblings (%CSTP).
    pub co_stop_share: f64,
}

/// What happened on the host, after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostResult {
    /// Hardware threads.
    pub pcpus: u32,
    /// vCPUs of all VMs.
    pub vcpus: u32,
    /// Length of the measured part.
    pub duration_s: f64,
    /// Share of (runqueue × time) with two or more vCPUs of one VM on the runqueue.
    pub stacking_probability: f64,
    /// The same, by the number of siblings.
    pub stacking: Stacking,
    /// Times per second that a vCPU was given a pCPU.
    pub vcpu_switches_per_s: f64,
    /// Times per second that a pCPU changed its task.
    pub switches_per_s: f64,
    /// Times per second that a pCPU got a vCPU after another one, whatever it had in between.
    pub switches_between_vcpus_per_s: f64,
    /// Times per second that a vCPU started on another pCPU than the last.
    pub vcpu_migrations_per_s: f64,
    /// Share of pCPU time that was idle.
    pub idle_share: f64,
    /// Tasks, vCPUs or not, that run or want to, for each pCPU; mean over time. Not those that a quota keeps from it.
    #[serde(default)]
    pub runqueue_mean: f64,
    /// Contended acquisitions of spin locks of kernels in all guests; mutexes do not count.
    pub lock_waits: u64,
    /// Mean wait for a contended spin lock in all guests; null if there was none.
    pub lock_wait_mean_us: Option<f64>,
}

/// Shares of (runqueue × time) with so many vCPUs of one VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stacking {
    /// Exactly two.
    pub two: f64,
    /// Exactly three.
    pub three: f64,
    /// Four or more.
    pub four_or_more: f64,
}

/// What happened to a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VmResult {
    /// Its name.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// What its workload achieved.
    pub throughput: f64,
    /// In which unit, such as "iterations/s".
    pub throughput_unit: String,
    /// What else its programs count, by unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_throughputs: BTreeMap<String, f64>,
    /// Time on pCPUs, of the time of all its vCPUs.
    pub utilisation: f64,
    /// Share of its vCPUs' time on a pCPU. The three shares add up to 1.
    pub run_share: f64,
    /// Share of its vCPUs' time wanting a pCPU: steal, CPU Ready.
    pub ready_share: f64,
    /// Share of its vCPUs' time halted.
    pub wait_share: f64,
    /// CPU use as a guest sees it that does not account for steal: share of its vCPUs' time with a
    /// thread, whether or not the vCPU had a pCPU; null for recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_cpu_share: Option<f64>,
    /// Share of its vCPUs' time in which a hardware thread was kept for one that had nothing to do: its
    /// guest retained the context, or the host held the pCPU.
    #[serde(default)]
    pub retained_share: f64,
    /// Share of its vCPUs' time polling for what would wake them, in KVM or in the guest.
    #[serde(default)]
    pub polled_share: f64,
    /// Share of its vCPUs' time on hardware threads that are not the first of their core; vSMT-IO has
    /// these for I/O-bound vCPUs.
    #[serde(default)]
    pub second_share: f64,
    /// The same, with the context retained by the guest.
    #[serde(default)]
    pub second_retained_share: f64,
    /// Share of its vCPUs' time on such hardware threads, without what the guest retained, while the
    /// policy took the vCPU for CPU-bound: vSMT-IO lent them.
    #[serde(default)]
    pub lent_share: f64,
    /// Times per second that one of its vCPUs was woken, having halted.
    #[serde(default)]
    pub wakeups_per_s: f64,
    /// Waits for a pCPU: mean; null if there was none.
    #[serde(default)]
    pub ready_wait_mean_us: Option<f64>,
    /// Waits for a pCPU: the longest; null if there was none.
    #[serde(default)]
    pub ready_wait_max_us: Option<f64>,
    /// Waits for a pCPU: median; null if there was none.
    pub ready_wait_p50_us: Option<f64>,
    /// Waits for a pCPU: 99th percentile; null if there was none.
    pub ready_wait_p99_us: Option<f64>,
    /// Turns on a pCPU that ended although the vCPU wanted to go on: median; null if there was none.
    #[serde(default)]
    pub turn_p50_us: Option<f64>,
    /// The same, 99th percentile.
    #[serde(default)]
    pub turn_p99_us: Option<f64>,
    /// What the policy took its vCPUs to be; absent if it has no types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recognised: Option<Recognised>,
    /// Contended acquisitions of spin locks of its kernel (`lock`); a `mutex` does not count.
    pub lock_waits: u64,
    /// Waits for contended spin locks: mean; null if there was none.
    pub lock_wait_mean_us: Option<f64>,
    /// Waits for contended spin locks: median; null if there was none.
    pub lock_wait_p50_us: Option<f64>,
    /// Waits for contended spin locks: 99th percentile; null if there was none.
    pub lock_wait_p99_us: Option<f64>,
    /// What its kernel did and what KVM saw of it; absent for recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelResult>,
    /// How far its vCPUs ran apart; absent if it has but one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub siblings: Option<SiblingResult>,
    /// When its policy left it alone at first, because it did not do what was expected of it; seconds
    /// since the run began, warm-up included; null if it never did.
    pub policy_off_s: Option<f64>,
    /// When its policy took it up again, the last time; null if it never did.
    pub policy_on_s: Option<f64>,
    /// What it did with its disk; absent if its threads neither read nor write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoResult>,
    /// What its agent against I/O inactivity did; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentResult>,
    /// For a recording: share of the vCPUs' time after their recorded demand was used up, when they
    /// are assumed to go on alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond_recording_share: Option<f64>,
}

/// What a guest's kernel did, and what KVM saw of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelResult {
    /// Share of its vCPUs' time that threads spun for locks, at barriers and for TLB flushes, reckoned at the speed of a
    /// hardware thread that has its core for itself: beside a busy SMT sibling it lasts longer.
    pub spin_share: f64,
    /// The same for interrupts and switches between threads.
    pub work_share: f64,
    /// Times per second that a vCPU switched between threads.
    pub thread_switches_per_s: f64,
    /// Pause-loop exits per second.
    pub pause_exits_per_s: f64,
    /// Times per second that a vCPU halted for a paravirtual lock.
    pub lock_halts_per_s: f64,
    /// Flushes per second of other vCPUs' TLBs.
    pub flushes_per_s: f64,
    /// From when a thread wants such a flush until all have done it: mean; null if there was none.
    pub flush_wait_mean_us: Option<f64>,
    /// The same, 99th percentile.
    pub flush_wait_p99_us: Option<f64>,
    /// Halts per second for which the host polled.
    pub halt_polls_per_s: f64,
    /// Share of these polls during which the wake-up came; null if there was none.
    pub halt_poll_hit_share: Option<f64>,
}

/// Shares of a policy's decisions in which it took a vCPU to be of a type (AQL_Sched's).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recognised {
    /// I/O-intensive.
    pub ioint: f64,
    /// Concurrent and spinning.
    pub conspin: f64,
    /// A friend of the last-level cache.
    pub llcf: f64,
    /// Overflowing the last-level cache.
    pub llco: f64,
    /// A friend of lower caches.
    pub lolcf: f64,
    /// Not decided yet, or not to be told.
    pub unknown: f64,
    /// How often a vCPU got a pool with another slice or other pCPUs, per vCPU and second. 33 decisions
    /// are made in a second.
    #[serde(default)]
    pub pool_changes_per_s: f64,
}

/// What happened to a host task that is no vCPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResult {
    /// Its name.
    pub name: String,
    /// Share of its time on a pCPU. The three shares add up to 1.
    pub run_share: f64,
    /// Share of its time wanting a pCPU.
    pub ready_share: f64,
    /// Share of its time asleep.
    pub wait_share: f64,
}

/// What a client outside the host, or a channel between VMs, saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientResult {
    /// Its name.
    pub name: String,
    /// "closed loop", "open loop", "ping", "sink", "stream" or "channel".
    pub kind: String,
    /// The VM that serves it.
    pub vm: String,
    /// Replies per second; null for sinks and streams, which have none.
    pub replies_per_s: Option<f64>,
    /// From the wish to send until the reply's end: mean; null if there was none.
    #[serde(default)]
    pub response_mean_us: Option<f64>,
    /// The same: median.
    pub response_p50_us: Option<f64>,
    /// The same: 95th percentile.
    pub response_p95_us: Option<f64>,
    /// The same: 99th percentile.
    pub response_p99_us: Option<f64>,
    /// The same: the longest.
    pub response_max_us: Option<f64>,
    /// Open loops: requests that were due, per second; null for other clients.
    #[serde(default)]
    pub sent_per_s: Option<f64>,
    /// Open loops: the VM answered less than was sent, so that ever more waited: response times grow with the
    /// run's length, and say nothing.
    #[serde(default)]
    pub overloaded: bool,
    /// Requests given up; pings not answered in time.
    pub timeouts: u64,
    /// TCP segments sent again, by either end.
    pub retransmissions: u64,
    /// Payload that arrived per second, at both ends together.
    pub bytes_per_s: f64,
}

/// Rounds to six decimals, and makes what is not a number zero: printed numbers are always finite and do not depend on
/// the last bit of a sum.
pub fn round(value: f64) -> f64 {
    let rounded = (value * 1e6).round() / 1e6;
    // Adding zero turns -0 into 0.
    if rounded.is_finite() {
        rounded + 0.0
    } else {
        0.0
    }
}

impl Comparison {
    /// The cases in order, each once.
    pub fn cases(&self) -> Vec<&str> {
        once(self.runs.iter().map(|run| run.case.as_str()))
    }

    /// The policies that a case was run under, in order, each once: the first is its reference.
    pub fn policies(&self, case: &str) -> Vec<&str> {
        once(self.of_case(case).map(|run| run.policy.as_str()))
    }

    /// The seeds of a case in order, each once.
    pub fn seeds(&self, case: &str) -> Vec<u64> {
        once(self.of_case(case).map(|run| run.seed))
    }

    /// All runs of a case.
    fn of_case(&self, case: &str) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.case == case)
    }

    /// All runs of a policy on a case: one per seed.
    pub fn of(&self, case: &str, policy: &str) -> Vec<&Run> {
        let fits = |run: &&Run| run.case == case && run.policy == policy;
        self.runs.iter().filter(fits).collect()
    }
}

/// Each item once, in order.
pub(crate) fn once<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    items.for_each(|item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
    });
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_always_finite() {
        assert_eq!(round(0.123_456_789), 0.123_457);
        assert_eq!(round(f64::NAN), 0.0);
        assert_eq!(round(f64::MAX), 0.0);
        assert!(round(-1e-9).is_sign_positive());
    }
}
