// SPDX-License-Identifier: GPL-2.0-only
//! A state that a core without a task may be put into (a C-state).

use crate::Nanos;
use crate::time::{self, SEC};
use std::str::FromStr;

/// What Linux' cpuidle knows about an idle state, written "104us/345us".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// How long it takes to leave it.
    pub exit: Nanos,
    /// The shortest stay that saves energy.
    pub residency: Nanos,
}

impl IdleState {
    /// How it is written, for messages.
    const SUCH_AS: &str = "exit latency and target residency such as \"104us/345us\"";
}

impl FromStr for IdleState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let both = text.split_once('/');
        let both = both.and_then(|(exit, stay)| time::parse(exit).zip(time::parse(stay)));
        match both {
            Some((exit, residency)) if exit.max(residency) <= SEC => Ok(Self { exit, residency }),
            _ => Err(format!(
                "found {text:?}, expected {}, up to 1s each",
                Self::SUCH_AS
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_two_times() {
        let state = "104us/345us".parse();
        let (exit, residency) = (104_000, 345_000);
        assert_eq!(state, Ok(IdleState { exit, residency }));
        for bad in [
            "",
            "104us",
            "104us/",
            "/345us",
            "2s/3s",
            "1us/2us/3us",
            "1/2",
        ] {
            let error = bad.parse::<IdleState>().unwrap_err();
            assert!(
                error.contains("such as \"104us/345us\", up to 1s"),
                "{error}"
            );
        }
    }
}
