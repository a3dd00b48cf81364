// SPDX-License-Identifier: GPL-2.0-only
//! Failures that are the input's: they end with exit code 2, a promise that was broken with 3, what Ctrl-C
//! ended with 130, all others with 1.

use crate::interrupt::{self, Interrupted};
use corun_linux::host::HostError;
use std::fmt::Display;

/// The exit code for a failure.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<HostError>() {
        Some(HostError::RolledBack(_)) => 3,
        _ if error.is::<Invalid>() => 2,
        _ if error.is::<Interrupted>() => interrupt::EXIT_CODE,
        _ => 1,
    }
}

/// What was asked for makes no sense; the text says where and why.
#[derive(Debug)]
pub struct Invalid(String);

impl Invalid {
    /// From anything that says what is wrong.
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
