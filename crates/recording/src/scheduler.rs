// SPDX-License-Identifier: GPL-2.0-only
//! What recordings call the scheduler of their host.
//!
//! The kernel tells the name of a sched_ext scheduler and no more. That of corun's says nothing of what it decides, so
//! that recordings of hosts under corun name its policy, too: `corun balance`.

/// corun's dispatcher, as the kernel names it; in a recording: its policy is not known.
pub const CORUN: &str = "corun";

/// What a recording calls corun under `policy`.
pub fn under(policy: &str) -> String {
    format!("{CORUN} {policy}")
}

/// The policy that corun had, by what a recording calls the `scheduler`.
pub fn policy(scheduler: &str) -> Option<&str> {
    scheduler.strip_prefix(CORUN)?.strip_prefix(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(policy(&under("balance-load")), Some("balance-load"));
        assert_eq!(policy(CORUN), None);
        assert_eq!(policy("corunner balance"), None);
        assert_eq!(policy("EEVDF"), None);
    }
}
