// SPDX-License-Identifier: GPL-2.0-only
//! What a Linux host does of its own accord: kernel threads (kworkers, RCU's, ksoftirqd) that wake up on each
//! pCPU now and then and run for a moment.
//!
//! Problem: on a host that does nothing but run vCPUs, and whose VMs compute, nothing ever shifts one pCPU against
//! another: vCPUs take their turns in step on all pCPUs for ever, whatever the seed, and any scheduler looks like gang
//! scheduling. No real host is that silent, and its VMs began at different times ([`STAGGER`]). Housekeeping also cuts
//! turns short, so a vCPU is descheduled before its guest expects it; vMigrater's predictions have to cope with that.

use super::HostTaskSpec;
use crate::workload::{ParseError, Program};
use corun_model::time::{MS, SEC, US, exact};
use corun_model::{NEUTRAL_WEIGHT, Nanos, Parameter, PcpuId, Value};

/// How busy the host itself is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HousekeepingParams {
    /// Wake-ups per second on each pCPU, at times of their own (exponentially distributed); 0: none.
    pub wakeups: u32,
    /// What each computes, ns, within ±50 %.
    pub work: Nanos,
}

impl Default for HousekeepingParams {
    fn default() -> Self {
        Self {
            wakeups: 2,
            work: 50 * US,
        }
    }
}

/// The time within which threads of VMs begin unless a scenario says otherwise, ns: so much longer
/// than any scheduler's turn that it is chance where in its turn each thread is, as on a host that
/// has been up for hours.
pub const STAGGER: Nanos = 200 * MS;

/// Names of these tasks begin with this; their pCPU's number follows. No name in a scenario has a slash.
const PREFIX: &str = "housekeeping/";

impl HousekeepingParams {
    /// A task for each of `pcpus` pCPUs, bound to it as most of the kernel's threads are.
    ///
    /// # Errors
    /// If there is less than 1 ns between wake-ups, or nothing to compute.
    pub fn tasks(&self, pcpus: u32) -> Result<Vec<HostTaskSpec>, ParseError> {
        if self.wakeups == 0 {
            return Ok(Vec::new());
        }
        let pause = exact(SEC / Nanos::from(self.wakeups));
        let work = exact(self.work);
        let program = format!("loop {{ sleep {pause} exp; compute {work} ±50% }}");
        let program = Program::parse(&program)?;
        let task = |pcpu| HostTaskSpec {
            name: format!("{PREFIX}{pcpu}"),
            helper_of: None,
            weight: NEUTRAL_WEIGHT,
            allowed: [PcpuId(pcpu)].into_iter().collect(),
            program: program.clone(),
        };
        Ok((0..pcpus).map(task).collect())
    }
}

/// Is the host task of this name one of these?
pub fn is_housekeeping(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The table's rows for [`HousekeepingParams`].
pub fn parameters() -> Vec<Parameter> {
    let default = HousekeepingParams::default();
    vec![
        Parameter::new(
            "host.housekeeping",
            "wake-ups of the kernel's own threads on each pCPU",
            Value::Number(f64::from(default.wakeups), "per second"),
            "two recordings of a KVM host: kworkers and RCU's thread woke up 1.8 and 2.2 times (ksoftirqd \
             1.8 and 3.2 times besides, which a host with fast interrupts hardly needs)",
            "0, 2 and 4 (docs/vmigrater.md)",
        ),
        Parameter::new(
            "corun_sim::guest::HousekeepingParams::work",
            "what each of these wake-ups computes, within 50 %",
            Value::Time(default.work),
            "assumed",
            "the default only",
        ),
        Parameter::new(
            "run.stagger",
            "threads of VMs begin within it, by chance; no longer than the warm-up",
            Value::Time(STAGGER),
            "twice the longest turn of the schedulers here (SCHED_RR's, 100 ms)",
            "0 and 200 ms (docs/scenario.md)",
        ),
    ]
}
