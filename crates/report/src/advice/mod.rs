// SPDX-License-Identifier: GPL-2.0-only
//! Which policy a recorded host should have, and how sure that is.
//!
//! Problem: a table of numbers under a dozen policies is no answer to "what should I switch on?", and
//! a difference smaller than the replay's own error is none at all.
//! How: policies are ranked by the ready time of all vCPUs (steal, %RDY), which is what they decide
//! about. Each figure comes from several replays that differ in what the recording cannot show (who would have been
//! ahead of whom; what follows the recorded demand), so it has a range. Two policies differ if their medians do by more
//! than half of either range, by more than the replay's error in ready time, and by half a point. Less waiting on the
//! whole can be a VM's loss: a policy under which one gets less done, or waits several times as long, is not
//! recommended.

mod confidence;
mod judge;
mod open;
mod rank;
mod text;
mod words;

pub use crate::html::advice::page;
pub use confidence::{Basis, confidence};
pub use judge::{Replayed, Spun, Tried, advice};
pub use text::text;

use crate::results::{ReplayCheck, round};
use crate::summary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What `corun advise` says of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// Version of corun.
    pub version: String,
    /// The recording: its file's name without directories and extensions.
    pub recording: String,
    /// How well the replay under the host's own scheduler matches the recording.
    pub replay: ReplayCheck,
    /// How far to trust the rest.
    pub confidence: Confidence,
    /// What to know of the recording before that: what it lacks or contradicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The answer in words.
    pub summary: Vec<String>,
    /// The policy to try; null if none is better than the host's own scheduler.
    pub recommended: Option<String>,
    /// What leads on from it: commands for the operator of the host.
    #[serde(default)]
    pub next: Vec<NextStep>,
    /// Every policy that was tried, the least ready time first.
    pub policies: Vec<PolicyAdvice>,
    /// Policies that were not: replays of this recording would say nothing of them.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// VM by VM: which policy is best for it.
    #[serde(default)]
    pub vms: Vec<VmRanking>,
    /// What the recording does not tell, and how much hangs on it.
    #[serde(default)]
    pub open: Vec<Open>,
    /// How many more VMs the host could take.
    pub overcommit: Vec<Overcommit>,
}

/// Something to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextStep {
    /// What it is for.
    pub what: String,
    /// The command.
    pub command: String,
}

/// A policy that replays would say nothing of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Its name.
    pub policy: String,
    /// Why they would not.
    pub why: String,
}

/// How far to trust what-ifs of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confidence {
    /// How far.
    pub level: Level,
    /// Why.
    pub because: Vec<String>,
}

impl Confidence {
    /// In words: how far, and why.
    pub fn sentence(&self) -> String {
        let why = self.because.join("; ");
        format!("Confidence: {}: {why}.", self.level.word())
    }
}

impl Level {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// How far to trust something.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Differences may be as large as the model's errors.
    Low,
    /// Which policy is better may be believed, by how much may not.
    Medium,
    /// Replays match the recording in all that is compared.
    High,
}

/// A figure from several replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Range {
    /// Of some values; zeros if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Self {
            median: round((low + high) / 2.0),
            least: round(least),
            most: round(most),
        }
    }

    /// Half of the distance from the least to the most.
    pub fn half(&self) -> f64 {
        (self.most - self.least) / 2.0
    }
}

/// A policy beside the host's own scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is the model of the host's own scheduler.
    Own,
    /// vCPUs wait less for pCPUs; of work: more gets done.
    Better,
    /// The difference is within the error.
    Same,
    /// vCPUs wait more for pCPUs; of work: less gets done.
    Worse,
}

/// What a policy would do to the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyAdvice {
    /// Its name.
    pub policy: String,
    /// The kernel that is modelled, such as `Linux 6.12`, if the policy is a model of one or done to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Beside the host's own scheduler.
    pub verdict: Verdict,
    /// Its place among the policies, measure by measure.
    #[serde(default)]
    pub ranks: Ranks,
    /// Share of all vCPUs' time wanting a pCPU.
    pub ready_share: Range,
    /// Work of all vCPUs: seconds of pCPU time per second.
    pub work: Range,
    /// Jain's index over the VMs of what they got of what they wanted, run / (run + ready): 1 if all
    /// got the same part, 1 / VMs if one got all.
    pub fairness: Range,
    /// The most, over VMs and replays, of a VM's time that lies beyond its recorded demand.
    pub beyond_recording_share: f64,
    /// Which VMs would get less done, or have waits of several times the length, a sentence each; a policy
    /// with any is not recommended.
    #[serde(default)]
    pub costs: Vec<String>,
    /// VM by VM.
    pub vms: Vec<VmAdvice>,
}

/// A policy's places among all: 1 is the best; policies with the same median share a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ranks {
    /// By ready time, the least first.
    pub ready: u32,
    /// By work, the most first.
    pub work: u32,
    /// By fairness, the most first.
    pub fairness: u32,
}

/// Policies ranked for one VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VmRanking {
    /// The VM's name.
    pub name: String,
    /// The policies, the one first under which it waits least.
    pub by_ready: Vec<String>,
    /// The policies, the one first under which it gets most done.
    pub by_work: Vec<String>,
    /// Is the first of `by_ready` better for it than the host's own scheduler by more than the error, at no
    /// cost in its work or longest waits?
    pub gains: bool,
}

/// Something that a recording does not tell. Its answers are the two extremes: the truth lies between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Open {
    /// What is not known.
    pub question: String,
    /// The extremes.
    pub answers: Vec<Answer>,
}

/// What would follow from one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// What is assumed.
    pub assumed: String,
    /// Share of all vCPUs' time wanting a pCPU then: under the host's own scheduler, and under the
    /// policy that is recommended (or, if none is, the one with the least ready time besides).
    pub policies: Vec<PolicyReady>,
}

/// Ready time under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyReady {
    /// The policy.
    pub policy: String,
    /// Share of all vCPUs' time wanting a pCPU.
    pub ready_share: Range,
}

/// What a policy would do to a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VmAdvice {
    /// Its name.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Its waiting beside that under the host's own scheduler.
    pub verdict: Verdict,
    /// Its work beside that under the host's own scheduler.
    #[serde(default = "same")]
    pub work_verdict: Verdict,
    /// Is its `ready_wait_p99_us` more than twice that under the host's own scheduler?
    #[serde(default)]
    pub waits_multiply: bool,
    /// Share of its vCPUs' time wanting a pCPU.
    pub ready_share: Range,
    /// Seconds of pCPU time per second.
    pub work: Range,
    /// Waits for a pCPU, 99th percentile.
    pub ready_wait_p99_us: Range,
}

/// For advice by versions that did not judge work.
fn same() -> Verdict {
    Verdict::Same
}

/// How many more VMs a policy could serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overcommit {
    /// The policy.
    pub policy: String,
    /// The VMs of which copies are added in turn, as chosen; empty: all recorded ones.
    #[serde(default)]
    pub copied: Vec<String>,
    /// No VM's ready share may be above this.
    pub target: f64,
    /// With how many more VMs that still held; null if it does not hold on the host as it is.
    pub holds_with: Option<u32>,
    /// Did it still hold with the most VMs that were tried?
    pub more_may_fit: bool,
    /// VM by VM that was added, beginning with none.
    pub steps: Vec<Step>,
}

/// The host with some VMs more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The VM that was copied; null for the host as it is.
    pub added: Option<String>,
    /// vCPUs per pCPU then.
    pub vcpus_per_pcpu: f64,
    /// The VM that waits most.
    pub worst_vm: String,
    /// Its ready share.
    pub worst_ready_share: Range,
}

impl Overcommit {
    /// The VMs that were chosen to be copied, "a, b and c".
    pub(crate) fn chosen(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        let names = self.copied.iter().map(String::as_str);
        let names: Vec<&str> = names.filter(|name| seen.insert(*name)).collect();
        let (last, before) = names.split_last()?;
        Some(match before {
            [] => (*last).to_string(),
            _ => format!("{} and {last}", before.join(", ")),
        })
    }
}

impl Advice {
    /// What to say about a policy's waiting compared with the host's own scheduler, and about who would pay for it.
    pub(crate) fn said(&self, policy: &PolicyAdvice) -> &'static str {
        match policy.verdict {
            Verdict::Own => "host's own",
            Verdict::Better if !judge::fair_enough(policy, self.own()) => "less, but unfair",
            Verdict::Better if !policy.costs.is_empty() => "less, but VMs lose",
            Verdict::Same if !policy.costs.is_empty() => "as much, but VMs lose",
            Verdict::Better => "less",
            Verdict::Same => "as much",
            Verdict::Worse => "more",
        }
    }

    /// Which kernels its policies model; empty if none does.
    pub(crate) fn kernels(&self) -> String {
        let policies = self.policies.iter();
        summary::models(policies.map(|it| (it.policy.as_str(), it.kernel.as_deref())))
    }

    /// The host's own scheduler.
    pub fn own(&self) -> Option<&PolicyAdvice> {
        let own = |policy: &&PolicyAdvice| policy.verdict == Verdict::Own;
        self.policies.iter().find(own)
    }

    /// What the own scheduler is compared with: the recommended policy; if there is none, the one with the least ready
    /// time.
    pub fn rival(&self) -> Option<&PolicyAdvice> {
        let others = || {
            let other = |policy: &&PolicyAdvice| policy.verdict != Verdict::Own;
            self.policies.iter().filter(other)
        };
        let recommended = others().find(|policy| self.recommended.as_ref() == Some(&policy.policy));
        recommended.or_else(|| others().next())
    }
}

/// The JSON schema of [`Advice`], as it is committed in `docs/schema`.
///
/// # Errors
/// If a schema cannot be written as JSON, which would be a defect of this crate.
pub fn schema() -> serde_json::Result<String> {
    serde_json::to_string_pretty(&schemars::schema_for!(Advice)).map(|text| text + "\n")
}
