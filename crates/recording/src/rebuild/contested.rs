// SPDX-License-Identifier: GPL-2.0-only
//! How much of a vCPU's time may have been spinning: the time it ran while a sibling wanted a pCPU and had none.
//!
//! A recording does not distinguish work from waiting for a lock in a loop. But a vCPU spins for long only when what it
//! waits for does not run: then a sibling is preempted. So this is the most that spinning for siblings can have taken,
//! apart from halt polling, which KVM reports.

use super::track::Being;
use corun_model::Nanos;

/// Per vCPU of one VM, ns. `lives`: for each vCPU, what it was from when on, in order of time.
pub(super) fn contested(lives: &[&[(Nanos, Being)]], end: Nanos) -> Vec<Nanos> {
    let mut changes: Vec<(Nanos, usize, Being)> = Vec::new();
    for (vcpu, life) in lives.iter().enumerate() {
        changes.extend(life.iter().map(|&(at, being)| (at.min(end), vcpu, being)));
    }
    changes.sort_by_key(|change| change.0);
    let mut now = vec![Being::Neither; lives.len()];
    let mut sums = vec![0; lives.len()];
    let (mut ready, mut last) = (0u32, 0);
    let end = (end, usize::MAX, Being::Neither);
    for (at, vcpu, being) in changes.into_iter().chain([end]) {
        if ready > 0 {
            for (sum, _) in sums
                .iter_mut()
                .zip(&now)
                .filter(|(_, it)| **it == Being::Running)
            {
                *sum += at.saturating_sub(last);
            }
        }
        last = last.max(at);
        if let Some(place) = now.get_mut(vcpu) {
            ready -= u32::from(*place == Being::Ready);
            ready += u32::from(being == Being::Ready);
            *place = being;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use Being::{Neither, Ready, Running};

    #[test]
    fn only_while_a_sibling_has_no_pcpu() {
        let first = [(0, Running), (60, Ready), (80, Running), (100, Neither)];
        let second = [(20, Ready), (50, Running), (70, Neither)];
        let third = [(0, Neither)];
        assert_eq!(contested(&[&first, &second, &third], 100), [30, 10, 0]);
        // A lone vCPU has no sibling to spin for.
        assert_eq!(contested(&[&first], 100), [0]);
        assert_eq!(contested(&[&[(0, Running)], &[(40, Ready)]], 100), [60, 0]);
    }
}
