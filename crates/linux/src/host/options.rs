// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's options.

use crate::safety::{self, Limits};
use crate::socket;
use corun_model::time::MS;
use corun_model::{DispatcherParams, Nanos};
use corun_policies::{PolicyInfo, Settings};
use std::io::{self, Write};
use std::path::PathBuf;

/// What to do.
pub struct HostOptions {
    /// The policy.
    pub policy: &'static PolicyInfo,
    /// The settings of it, and of policies put in force later unless others are given.
    pub settings: Settings,
    /// The dispatcher's parameters.
    pub params: DispatcherParams,
    /// How often statistics are printed; `None`: never.
    pub interval: Option<Nanos>,
    /// How long to stay in charge; `None`: until SIGINT, SIGTERM or SIGHUP.
    pub run_for: Option<Nanos>,
    /// Statistics as lines of JSON instead of text.
    pub json: bool,
    /// Where to record every input and decision of the dispatcher, for `corun lockstep`.
    pub record: Option<PathBuf>,
    /// Where to answer `corun policy`.
    pub socket: PathBuf,
    /// Where to answer clients of scx_stats; `None`: nowhere.
    pub scx_stats: Option<PathBuf>,
    /// Findings of the preflight that shall not stand in the way.
    pub force: Vec<String>,
    /// Where runs are remembered.
    pub state_dir: PathBuf,
    /// What is promised to VMs.
    pub limits: Limits,
    /// The VMs that the policy is for, by name, UUID or their manager's number; empty: all.
    pub only: Vec<String>,
    /// The longest time that KVM polls before a vCPU halts, meanwhile, ns; `None`: as it is.
    pub halt_poll: Option<Nanos>,
    /// Where statistics go.
    pub out: Box<dyn Write + Send>,
    /// Where notes for people go, a sentence each.
    pub notes: fn(&str),
}

impl HostOptions {
    /// This policy with everything else as by default: statistics every second, as text.
    pub fn new(policy: &'static PolicyInfo) -> Self {
        Self {
            policy,
            settings: Settings::default(),
            params: DispatcherParams::default(),
            interval: Some(1000 * MS),
            run_for: None,
            json: false,
            record: None,
            socket: socket::DEFAULT.into(),
            scx_stats: Some(socket::scx_stats::DEFAULT.into()),
            force: Vec::new(),
            state_dir: safety::STATE_DIR.into(),
            limits: Limits::default(),
            only: Vec::new(),
            halt_poll: None,
            out: Box::new(io::stdout()),
            notes: |_| {},
        }
    }

    /// Shall this finding of the preflight not stand in the way?
    pub(crate) fn is_forced(&self, finding: &str) -> bool {
        self.force.iter().any(|forced| forced == finding)
    }
}
