// SPDX-License-Identifier: GPL-2.0-only
//! What recordings call the scheduler of their host.
//!
//! The kernel gives the name of a sched_ext scheduler and nothing else. That of corun's scheduler says nothing about
//! how it decides, so recordings of hosts under corun name its policy, too: `corun balance`.

/// corun's dispatcher, as the kernel names it; in a recording it means that the policy is not
/// known.
pub const CORUN: &str = "corun";

/// Separates the names of two schedulers that were in charge one after the other.
const THEN: &str = ", then ";

/// What a recording calls corun under `policy`.
pub fn under(policy: &str) -> String {
    format!("{CORUN} {policy}")
}

/// What a recording that was begun under `first` and ended under `last` calls the scheduler. If both are corun and one
/// policy is not known, it may have been the known one.
pub fn both(first: &str, last: &str) -> String {
    match (first, last) {
        _ if first == last => first.to_string(),
        (CORUN, named) | (named, CORUN) if policy(named).is_some() => named.to_string(),
        _ => format!("{first}{THEN}{last}"),
    }
}

/// Was it corun all the time, under whichever policies?
pub fn is_corun(scheduler: &str) -> bool {
    let mut names = scheduler.split(THEN);
    names.all(|name| name == CORUN || policy(name).is_some())
}

/// The policy that corun had, according to what a recording calls the `scheduler`.
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

    #[test]
    fn a_daemon_that_did_not_answer_once_changes_nothing() {
        let both_ways = |one, other| [both(one, other), both(other, one)];
        assert_eq!(both_ways("corun balance", CORUN), ["corun balance"; 2]);
        assert_eq!(both_ways(CORUN, CORUN), [CORUN; 2]);
        assert_eq!(
            both("corun fair", "corun aql"),
            "corun fair, then corun aql"
        );
        assert_eq!(both("EEVDF", CORUN), "EEVDF, then corun");
        let all = [
            "corun",
            "corun of-another-version",
            "corun fair, then corun aql",
        ];
        assert!(all.iter().all(|name| is_corun(name)));
        assert!(
            !["EEVDF, then corun", "scx_lavd", "corunner"]
                .iter()
                .any(|name| is_corun(name))
        );
    }
}
