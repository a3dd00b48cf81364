// SPDX-License-Identifier: GPL-2.0-only
//! Failures that are the input's end with exit code 2, a broken promise with 3, a host that may not be taken over until
//! somebody does something with 4, what Ctrl-C ended with 130, all others with 1. Exit codes 2, 3 and 4 tell
//! corun.service not to start again.

use crate::interrupt::{self, Interrupted};
use corun_linux::host::HostError;
use corun_linux::preflight::Finding;
use std::fmt::Display;

/// The exit code for a failure.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<HostError>() {
        Some(HostError::RolledBack(_)) => 3,
        Some(HostError::NewCookies(_)) => 4,
        Some(HostError::Load(why)) if why.stays() => 4,
        Some(HostError::Preflight(findings)) if findings.iter().any(Finding::stays) => 4,
        _ if error.is::<Invalid>() => 2,
        _ if error.is::<Interrupted>() => interrupt::EXIT_CODE,
        _ => 1,
    }
}

/// What was asked for makes no sense; the text says where and why.
#[derive(Debug)]
pub struct Invalid(String);

impl Invalid {
    /// Makes one from anything that says what is wrong.
    pub fn error(problem: impl Display) -> anyhow::Error {
        anyhow::Error::new(Self(problem.to_string()))
    }
}

impl Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_linux::LoadError;
    use corun_linux::preflight::Severity;

    fn refused(ids: &[&'static str]) -> anyhow::Error {
        let finding = |id: &&'static str| Finding {
            id,
            severity: Severity::Dangerous,
            what: String::new(),
            why: "",
            remedy: "",
        };
        HostError::Preflight(ids.iter().map(finding).collect()).into()
    }

    /// As in corun.service: started again after 1, not after 4.
    #[test]
    fn refusals_that_stay_have_a_code_of_their_own() {
        assert_eq!(exit_code(&refused(&["crash-loop"])), 4);
        assert_eq!(exit_code(&refused(&["kvm", "cve-2026-43392"])), 4);
        assert_eq!(exit_code(&refused(&["kvm", "load"])), 1);
        let broken = LoadError::Object(".bss");
        assert_eq!(exit_code(&HostError::Load(broken).into()), 4);
        let no_memory = LoadError::Map(std::io::ErrorKind::OutOfMemory.into());
        assert_eq!(exit_code(&HostError::Load(no_memory).into()), 1);
        let unit = include_str!("../../../packaging/systemd/corun.service");
        assert!(unit.contains("\nRestartPreventExitStatus=2 3 4\n"));
    }
}
