// SPDX-License-Identifier: GPL-2.0-only
//! The one table of parameters: every room's list, in the order in which a reader meets them.

use corun_model::{DispatcherParams, Parameter};

/// Every number that the simulation rests on.
pub fn parameters() -> Vec<Parameter> {
    [
        crate::host::parameters(),
        crate::host::HardwareParams::parameters(),
        crate::guest::housekeeping_parameters(),
        crate::guest::halt_poll_parameters(),
        crate::guest::emulator_parameters(),
        crate::guest::parameters(),
        crate::guest::block_parameters(),
        corun_policies::vmigrater::parameters(),
        crate::guest::agent_parameters(),
        crate::guest::balloon_parameters(),
        crate::device::disk::parameters(),
        crate::guest::net_parameters(),
        crate::device::net::parameters(),
        DispatcherParams::parameters(),
        corun_policies::parameters(),
        corun_policies::constants(),
        crate::sched::cfs::parameters(),
        crate::sched::eevdf::parameters(),
        crate::sched::fair::parameters(),
        crate::sched::rr::parameters(),
        crate::sched::credit::parameters(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_listed_once_and_says_what_it_is_and_where_it_is_from() {
        let all = parameters();
        for (at, parameter) in all.iter().enumerate() {
            let same = all.iter().position(|other| other.key == parameter.key);
            assert_eq!(same, Some(at), "{} is listed twice", parameter.key);
            for text in [parameter.meaning, parameter.source, parameter.tried] {
                assert!(text.len() > 2, "{parameter:?}");
            }
        }
    }
}
