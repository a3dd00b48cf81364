// SPDX-License-Identifier: GPL-2.0-only
//! The programs on a core of the machine that this runs on, as threads (`corun_linux::trial::symbiosis`).

use super::Measured;
use super::fit::Shares;
use crate::calibration;
use crate::failure::Invalid;
use crate::output;
use corun_linux::machine::Layout;
use corun_linux::trial::symbiosis::{Core, Done, Program};
use corun_model::time::MS;
use corun_policies::aql::Machine;

/// How long each program runs, alone and beside each other one (assumed: some hundred turns of the kernel's ticks).
const TIME: u64 = 500 * MS;

/// Measures on a core of this machine; if `quiet`, without saying on which.
///
/// # Errors
/// [`Invalid`] if the machine has no such cores, counts no cycles, or cannot be distinguished from others; else why a
/// program could not be run.
pub fn measure(quiet: bool) -> anyhow::Result<(Measured, Machine)> {
    let core = Core::of_this_host().map_err(Invalid::error)?;
    let machine = calibration::machine()?;
    let layout = Layout::of_this_host()?;
    if !quiet {
        output::note(&format!(
            "corun: programs run on pCPUs {} and {}",
            core.pcpus()[0].0,
            core.pcpus()[1].0
        ));
    }
    let programs = Program::all(layout.l2, layout.llc);
    let alone: Vec<Done> = programs
        .iter()
        .map(|program| core.alone(*program, TIME))
        .collect::<Result<_, _>>()?;
    let mut measured = Measured {
        events: Some(core.events()),
        ..Measured::default()
    };
    for (program, done) in programs.iter().zip(&alone) {
        measured.names.push(program.to_string());
        measured.alone.push(shares(done));
    }
    for own in 0..programs.len() {
        for other in own..programs.len() {
            let done = core.together([programs[own], programs[other]], TIME)?;
            measured.beside(own, other, done[0].time_per_work / alone[own].time_per_work);
            if own != other {
                measured.beside(
                    other,
                    own,
                    done[1].time_per_work / alone[other].time_per_work,
                );
            }
        }
    }
    Ok((measured, machine))
}

/// For counts that are read one after the other: a part is no more than the whole.
fn shares(done: &Done) -> Shares {
    let cycles = done.cycles as f64;
    let stalls = (done.stalls.min(done.cycles)) as f64;
    let misses = (done.misses as f64).min(stalls);
    Shares {
        base: (cycles - stalls) / cycles,
        miss: misses / cycles,
        wait: (stalls - misses) / cycles,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_stall_is_base_and_what_is_no_miss_waits() {
        let done = |cycles, stalls, misses| Done {
            time_per_work: 1.0,
            cycles,
            stalls,
            misses,
        };
        let of = shares(&done(1000, 500, 300));
        assert_eq!((of.base, of.miss, of.wait), (0.5, 0.3, 0.2));
        let of = shares(&done(100, 110, 120));
        assert_eq!((of.base, of.miss, of.wait), (0.0, 1.0, 0.0));
        assert!(shares(&done(0, 0, 0)).base.is_nan());
    }
}
