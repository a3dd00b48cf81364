// SPDX-License-Identifier: GPL-2.0-only
//! The paper's pseudo code, step by step, so that its steps can be counted.
//!
//! Sukwong & Kim, EuroSys 2011, §4.3: Algorithm 1 (co-scheduling) looks for the first time slot with
//! a pCPU for each vCPU, which takes up to N R steps for N pCPUs and R slots in use; Algorithm 2
//! (balance scheduling) takes the pCPUs of a vCPU's siblings from those it may use, in at most N
//! steps, because a VM has no more vCPUs than there are pCPUs; Algorithm 3 (Appendix B, dynamic
//! time-slice co-scheduling) places as Algorithm 2 does and calls the siblings of the first vCPU, in
//! as many steps. What corun's dispatcher does is counted in `corun_sim::complexity`.

use corun_model::{PcpuId, PcpuSet};

/// What an algorithm found, and the steps of its innermost loop that it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// The answer.
    pub answer: T,
    /// The steps.
    pub steps: u64,
}

/// Algorithm 1: the first of these time slots in which `wanted` pCPUs are idle; `slots[i][j]`: is
/// pCPU j idle in slot i? `None`: in none of them.
pub fn coscheduling_slot(slots: &[Vec<bool>], wanted: usize) -> Found<Option<usize>> {
    let mut steps = 0;
    for (number, slot) in slots.iter().enumerate() {
        let mut available = 0;
        for &idle in slot {
            steps += 1;
            available += usize::from(idle);
            if available >= wanted {
                let answer = Some(number);
                return Found { answer, steps };
            }
        }
    }
    Found {
        answer: None,
        steps,
    }
}

/// Algorithm 2: the pCPUs among `all` that a vCPU may be put on, with its siblings on `siblings`.
pub fn balanced(all: PcpuSet, siblings: &[PcpuId]) -> Found<PcpuSet> {
    let mut answer = all;
    siblings.iter().for_each(|&cpu| answer.remove(cpu));
    Found {
        answer,
        steps: siblings.len() as u64,
    }
}

/// Algorithm 3, where a vCPU is the first of its VM to be scheduled: the siblings that get a
/// reschedule interrupt; `siblings`: does each want a pCPU, and does it have one?
pub fn called(siblings: &[(bool, bool)]) -> Found<Vec<usize>> {
    let waits =
        |(number, &(ready, runs)): (usize, &(bool, bool))| (ready && !runs).then_some(number);
    Found {
        answer: siblings.iter().enumerate().filter_map(waits).collect(),
        steps: siblings.len() as u64,
    }
}

/// The slot in which a task or gang that becomes ready in slot `from`, and wants this number of pCPUs, starts by
/// Algorithm 1; takes the pCPUs from that slot. `None`: in none of these slots.
pub fn start_slot(slots: &mut [Vec<bool>], from: usize, wanted: usize) -> Option<usize> {
    let open = slots.get(from..)?;
    let number = from + coscheduling_slot(open, wanted).answer?;
    let taken = slots[number].iter_mut().filter(|idle| **idle).take(wanted);
    taken.for_each(|idle| *idle = false);
    Some(number)
}

/// Figure 3, in slots. The two vCPUs are ready in slot T0 = 0, in which one of two pCPUs is taken: when do they start
/// together? The I/O job is ready between T0 and T1, and can be given what is left of a slot from T1 on: when does it
/// start?
pub fn figure_3() -> Option<(usize, usize)> {
    let mut slots = [vec![true, false], vec![true, true], vec![true, true]];
    let vcpus = start_slot(&mut slots, 0, 2)?;
    Some((vcpus, start_slot(&mut slots, 1, 1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 3: two vCPUs ready at T0, when one of two pCPUs is idle: both start at T1. And balance
    /// scheduling would start one at T0.
    #[test]
    fn fragmentation() {
        let slots = [vec![true, false], vec![true, true]];
        let found = coscheduling_slot(&slots, 2);
        assert_eq!((found.answer, found.steps), (Some(1), 4));
        assert_eq!(coscheduling_slot(&slots, 1).answer, Some(0));
        assert_eq!(coscheduling_slot(&slots, 3).answer, None);
    }

    /// Figure 3: the vCPUs wait for T1, the I/O job for T2; alone, a vCPU would start at T0.
    #[test]
    fn figure_3_by_slots() {
        assert_eq!(figure_3(), Some((1, 2)));
        let mut slots = [vec![true, false], vec![true, true]];
        assert_eq!(start_slot(&mut slots, 0, 1), Some(0));
        assert_eq!(start_slot(&mut slots, 0, 1), Some(1));
        assert_eq!(start_slot(&mut slots, 0, 2), None);
        assert_eq!(start_slot(&mut slots, 5, 1), None);
    }

    /// vCPUs that are ready and have no pCPU are called, no others.
    #[test]
    fn algorithm_3_calls_vcpus_that_wait() {
        let found = called(&[(true, false), (true, true), (false, false), (true, false)]);
        assert_eq!((found.answer, found.steps), (vec![0, 3], 4));
    }

    /// O(N R) against O(N).
    #[test]
    fn worst_cases() {
        for (pcpus, queue) in [(4, 3), (8, 3), (8, 6), (512, 20)] {
            let mut slots = vec![vec![false; pcpus]; queue];
            slots.push(vec![true; pcpus]);
            let found = coscheduling_slot(&slots, pcpus);
            assert_eq!(found.answer, Some(queue));
            assert_eq!(found.steps, (pcpus * (queue + 1)) as u64);
            let siblings: Vec<_> = (1..pcpus).map(PcpuId::from).collect();
            let found = balanced(PcpuSet::first(pcpus as u32), &siblings);
            assert_eq!(found.answer.iter().collect::<Vec<_>>(), [PcpuId(0)]);
            assert_eq!(found.steps, pcpus as u64 - 1);
        }
    }
}
