// SPDX-License-Identifier: GPL-2.0-only
//! Seeds of replays: which VM was ahead of which when a recording began is one case of many.
//!
//! A replay has no chance in it. With seed 0 it begins as recorded; with any other seed every VM begins later by a time
//! of its own, up to a tenth of the recording and 100 ms, about what separates two turns of a vCPU on a busy host. What
//! differs between seeds is what one recording cannot show.

use crate::failure::Invalid;
use corun_model::{Nanos, VmId, time::MS};
use corun_recording::Recording;
use corun_sim::rng::Rng;

/// As many as it takes to distinguish a median from an outlier.
const DEFAULT: [u64; 3] = [0, 1, 2];

/// The seeds to replay with; only the recorded beginning if one replay is to be watched.
///
/// # Errors
/// [`Invalid`] if one is named twice.
pub fn seeds(seed: Option<u64>, seeds: &[u64], watched: bool) -> anyhow::Result<Vec<u64>> {
    let mut sorted = seeds.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() < seeds.len() {
        return Err(Invalid::error(format!(
            "--seeds: found {seeds:?}, expected each seed once"
        )));
    }
    Ok(match (seed, seeds) {
        (Some(seed), _) => vec![seed],
        (None, []) if watched => vec![0],
        (None, []) => DEFAULT.to_vec(),
        (None, seeds) => seeds.to_vec(),
    })
}

/// The recording with another beginning; seed 0 is the recorded one.
pub fn beginning(recording: &Recording, seed: u64) -> Recording {
    let mut begun = recording.clone();
    if seed > 0 {
        for vm in 0..recording.vms.len() {
            begun = begun.delayed(VmId::from(vm), later(recording, seed, vm));
        }
    }
    begun
}

/// How much later a VM begins, ns.
pub fn later(recording: &Recording, seed: u64, vm: usize) -> Nanos {
    let most = (recording.duration() / 10).min(100 * MS);
    Rng::of(seed, "beginning", vm as u64).between(0, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_replay_is_watched_and_several_are_compared() {
        assert_eq!(seeds(None, &[], true).unwrap(), [0]);
        assert_eq!(seeds(None, &[], false).unwrap(), [0, 1, 2]);
        assert_eq!(seeds(Some(7), &[], false).unwrap(), [7]);
        assert_eq!(seeds(None, &[3, 1], false).unwrap(), [3, 1]);
        let twice = seeds(None, &[3, 1, 3], false).unwrap_err().to_string();
        assert!(twice.contains("[3, 1, 3]"), "{twice}");
    }
}
