// SPDX-License-Identifier: GPL-2.0-only
//! How hardware threads of one core slow each other down.
//!
//! Problem: what a hardware thread does with its time decides how fast its SMT sibling computes, and schedulers choose
//! what that is: polling for a wake-up, switching vCPUs, or leaving the core to the sibling. Two measurements are the
//! basis. For threads that do not compute, Table 3.2 in §3.2.2 of the vMigrater / vSMT-IO / Jupiter dissertation: a
//! computation next to an idle sibling runs at 100 %, next to vCPU switches at 32 %, next to KVM's HALT-polling loop at
//! 73 %. The 32 % were measured with two vCPUs that do nothing but switch back and forth, and the text includes the
//! flush of the L1 data cache and of TLBs, the scheduler, and the handling of rescheduling IPIs; so here the figure
//! holds for the switch and for the IPIs that go with it ([`Activity::Rescheduling`]). For two threads that compute,
//! cycle accounting (there §3.4.3): how the cycles of each divide up when alone (base, misses, waiting; [`Mix`])
//! determines the time per work when together,
//!
//! ```text
//! 1.396·B + 0.861·W + 0.277·W·W' + 1.436·M + 0.910·M·M'
//! ```
//!
//! with the coefficients of the published vSMT-IO code, where ' is the SMT sibling. Those were
//! fitted on one machine; here they are scaled so that two typical threads achieve the yield that
//! is stated for hyper-threading ([`SmtParams::yields`]). No thread is ever sped up.
//!
//! With more than two threads per core the slowdowns by each of the others add up (assumed).

use super::super::Activity;
use super::rate::ONE;
use crate::workload::Mix;
use corun_model::{Parameter, Value};

/// How fast a hardware thread computes depending on what its SMT sibling does, percent of its speed
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmtParams {
    /// Next to vCPU switches, 1–100.
    pub switching: u32,
    /// Next to KVM's halt polling, 1–100.
    pub halt_polling: u32,
    /// Next to a guest whose idle loop polls, 1–100.
    pub idle_polling: u32,
    /// Next to a thread that spins for a lock or barrier, 1–100.
    pub spinning: u32,
    /// What two typical computing threads do together, percent of what one does alone, 50–200.
    pub yields: u32,
}

impl Default for SmtParams {
    fn default() -> Self {
        Self {
            switching: 32,
            halt_polling: 73,
            idle_polling: 86,
            spinning: 86,
            yields: 125,
        }
    }
}

impl SmtParams {
    /// The parameters with their sources.
    pub fn parameters() -> Vec<Parameter> {
        let default = Self::default();
        let of = |key, meaning, value: u32, source, tried| {
            Parameter::new(
                key,
                meaning,
                Value::Number(f64::from(value), "%"),
                source,
                tried,
            )
        };
        let pause = "assumed: half of what halt polling costs; the loop is around PAUSE (cpu_relax() of \
                     idle=poll, Linux kernel/sched/idle.c), and KVM's had none until 5.14 \
                     (virt/kvm/kvm_main.c)";
        let table = "dissertation, Table 3.2 (MatMul on the SMT sibling)";
        vec![
            of(
                "host.smt.switching",
                "speed while the SMT sibling switches vCPUs, IPIs included",
                default.switching,
                table,
                "not varied; 1-100 % accepted",
            ),
            of(
                "host.smt.halt_polling",
                "speed while the SMT sibling polls for KVM",
                default.halt_polling,
                table,
                "not varied; 1-100 % accepted",
            ),
            of(
                "host.smt.idle_polling",
                "speed while the SMT sibling polls in a guest's idle loop",
                default.idle_polling,
                pause,
                "not varied; 1-100 % accepted",
            ),
            of(
                "host.smt.spinning",
                "speed while the SMT sibling spins for a lock",
                default.spinning,
                pause,
                "not varied; 1-100 % accepted",
            ),
            of(
                "host.smt.yield",
                "two typical computing threads of a core, relative to one",
                default.yields,
                "Marr et al., Hyper-Threading Technology Architecture and Microarchitecture, Intel \
                 Technology Journal 6(1), 2002: gains of 16-28 % on server benchmarks; 25 % is near \
                 their middle",
                "not varied; 50-200 % accepted",
            ),
        ]
    }
}

/// What a hardware thread does, as its SMT sibling feels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) enum Seen {
    /// Nothing: no task.
    Idle,
    /// It switches from one task to another, to idle, or from it.
    Switching,
    /// Its task does this, with this mix of cycles if it works.
    Busy(Activity, Mix),
}

/// Cycles of a thread that spins: it waits for PAUSE.
const WAITING: Mix = Mix {
    base: 0,
    miss: 0,
    wait: 100,
};

/// Computes times per work from what two SMT siblings do.
#[derive(Clone, Debug)]
pub(in crate::host) struct Smt {
    params: SmtParams,
}

impl Smt {
    pub fn new(params: SmtParams) -> Self {
        Self { params }
    }

    /// Time per work, in units of [`ONE`], of a task that does `own` next to one SMT sibling.
    pub fn slowdown(&self, own: (Activity, Mix), other: Seen) -> u64 {
        let mix = match own.0 {
            Activity::Work | Activity::Rescheduling => own.1,
            Activity::Spinning => WAITING,
            // Their progress is the time they wait: nothing slows that.
            Activity::HaltPolling | Activity::IdlePolling | Activity::Retention => return ONE,
        };
        let speed = match other {
            Seen::Idle | Seen::Busy(Activity::Retention, _) => return ONE,
            Seen::Switching | Seen::Busy(Activity::Rescheduling, _) => self.params.switching,
            Seen::Busy(Activity::HaltPolling, _) => self.params.halt_polling,
            Seen::Busy(Activity::IdlePolling, _) => self.params.idle_polling,
            Seen::Busy(Activity::Spinning, _) => self.params.spinning,
            Seen::Busy(Activity::Work, other) => return self.interference(mix, other),
        };
        ONE * 100 / u64::from(speed.clamp(1, 100))
    }

    /// Time per work if both compute: see the module.
    fn interference(&self, own: Mix, other: Mix) -> u64 {
        // Two typical threads take 200/yields each: that scales the rest.
        let scale = ONE * 200 / u64::from(self.params.yields.max(1));
        let slowdown = together(own, other) * scale / together(Mix::TYPICAL, Mix::TYPICAL);
        slowdown.max(ONE)
    }
}

/// The model's time per work in units of 10^-7.
fn together(own: Mix, other: Mix) -> u64 {
    let [base, miss, wait] = [own.base, own.miss, own.wait].map(u64::from);
    let [others_miss, others_wait] = [other.miss, other.wait].map(u64::from);
    base * 139_600
        + wait * 86_100
        + wait * others_wait * 277
        + miss * 143_600
        + miss * others_miss * 910
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(base: u8, miss: u8, wait: u8) -> Mix {
        Mix { base, miss, wait }
    }

    fn speed(own: Mix, other: Seen) -> u64 {
        let smt = Smt::new(SmtParams::default());
        1000 * ONE / smt.slowdown((Activity::Work, own), other)
    }

    fn working(mix: Mix) -> Seen {
        Seen::Busy(Activity::Work, mix)
    }

    #[test]
    fn what_does_not_compute_slows_as_measured() {
        let own = mix(70, 20, 10);
        let busy = |activity| speed(own, Seen::Busy(activity, mix(1, 2, 97)));
        assert_eq!(speed(own, Seen::Idle), 1000);
        assert_eq!(busy(Activity::Retention), 1000);
        assert_eq!(speed(own, Seen::Switching), 320);
        assert_eq!(busy(Activity::Rescheduling), 320);
        assert_eq!(busy(Activity::HaltPolling), 730);
        assert!(busy(Activity::Spinning) > 730, "PAUSE alone is cheaper");
    }

    #[test]
    fn pairs_yield_what_intel_states() {
        let yields = |a, b| speed(a, working(b)) + speed(b, working(a));
        let typical = yields(Mix::TYPICAL, Mix::TYPICAL);
        assert!((1249..=1250).contains(&typical), "{typical}");
        for (a, b) in [
            (mix(60, 25, 15), mix(50, 30, 20)),
            (mix(100, 0, 0), mix(40, 40, 20)),
            (mix(70, 10, 20), mix(45, 35, 20)),
        ] {
            let pair = yields(a, b);
            assert!((1150..=1350).contains(&pair), "{a:?} with {b:?}: {pair}");
        }
    }

    #[test]
    fn two_that_miss_disturb_each_other_most() {
        let (computes, misses) = (mix(80, 10, 10), mix(20, 70, 10));
        let beside_misses = speed(misses, working(misses));
        assert!(beside_misses < speed(misses, working(computes)));
        assert!(beside_misses < speed(computes, working(misses)));
    }

    #[test]
    fn polling_is_not_slowed_and_nothing_is_sped_up() {
        let smt = Smt::new(SmtParams::default());
        for activity in [
            Activity::HaltPolling,
            Activity::IdlePolling,
            Activity::Retention,
        ] {
            let own = (activity, Mix::TYPICAL);
            assert_eq!(smt.slowdown(own, working(Mix::TYPICAL)), ONE);
        }
        for wait in 0..=100 {
            let own = (Activity::Work, mix(100 - wait, 0, wait));
            assert!(smt.slowdown(own, working(mix(100, 0, 0))) >= ONE);
        }
    }
}
