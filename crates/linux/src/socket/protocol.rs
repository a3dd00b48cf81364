// SPDX-License-Identifier: GPL-2.0-only
//! What is said on the control socket, version 1: docs/socket.md.
//!
//! ```text
//! → {"version": 1, "command": "policy"}
//! ← {"version": 1, "ok": {"policy": "balance", …}}
//! → {"version": 1, "command": "set-policy", "name": "blance"}
//! ← {"version": 1, "error": {"kind": "unknown-policy", "message": "…", "accepted": ["fair", …]}}
//! ```
//! Fields may be added to answers without a new version; those that are there keep their meaning.

use corun_model::Wakers;
use corun_policies::pmu::{Event, Events};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The version spoken here.
pub const VERSION: u64 = 1;
/// The longest request, bytes without the end of the line.
pub const LONGEST_REQUEST: usize = 4096;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Which policy is in force?
    Policy,
    /// What do you know of yourself and your VMs?
    Status,
    /// Put this one in force.
    SetPolicy(SetPolicy),
}

/// Which policy to put in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// Its name.
    pub name: String,
    /// Its settings, key by key, as in `[policy.NAME]` of a scenario; the rest has its defaults.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The events by which vsmtio divides cycles; if absent, those that the daemon was started
    /// with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventsSaid>,
}

/// Events of `perf_event_open()`: type and config of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsSaid {
    /// All cycles.
    pub cycles: (u32, u64),
    /// Those in which a thread stalls.
    pub stalls: (u32, u64),
    /// Cycles in which it stalls on misses, if these are distinguished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<(u32, u64)>,
}

impl From<Events> for EventsSaid {
    fn from(events: Events) -> Self {
        let said = |event: Event| (event.kind, event.config);
        Self {
            cycles: said(events.cycles),
            stalls: said(events.stalls),
            misses: events.misses.map(said),
        }
    }
}

impl EventsSaid {
    /// The events.
    ///
    /// # Errors
    /// The type of an event that does not count cycles.
    pub(crate) fn events(self) -> Result<Events, u32> {
        let event = |(kind, config): (u32, u64)| match Event::is_kind(kind) {
            true => Ok(Event { kind, config }),
            false => Err(kind),
        };
        Ok(Events {
            cycles: event(self.cycles)?,
            stalls: event(self.stalls)?,
            misses: self.misses.map(event).transpose()?,
        })
    }
}

/// A request without arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// Its name.
    pub policy: String,
    /// What it does, in a line.
    pub summary: String,
    /// Where it comes from.
    pub source: String,
    /// What can be set for it, with the values in force.
    pub parameters: BTreeMap<String, String>,
    /// How long it has been in force, seconds.
    pub for_s: f64,
    /// How often the policy was changed since the daemon began.
    pub changes: u64,
    /// What it thinks of each VM, if it thinks something of VMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<VmInForce>,
    /// What it cannot see or do on this host, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<String>,
}

/// What a policy thinks of a VM at the moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmInForce {
    /// The VM.
    pub name: String,
    /// Is what the policy decides carried out? Otherwise the VM is left to plain balance.
    pub enforced: bool,
    /// CPU time it has borrowed (lent, if negative), percent of what it is entitled to.
    pub loan_percent: f64,
    /// Are the siblings that wake its vCPUs seen? Hardware that delivers IPIs hides them.
    pub wakers_seen: bool,
    /// What wakes its vCPUs, as far as that is seen; earlier daemons do not say.
    #[serde(default)]
    pub wakers: Option<Wakers>,
    /// The weights of its vCPUs among siblings, percent of the default, vCPU 0 first.
    pub weights_percent: Vec<f64>,
    /// Their rescheduling latencies, ms.
    pub latencies_ms: Vec<f64>,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request is not what it should be.
    Request,
    /// It is in a version that is not spoken here.
    Version,
    /// There is no such command.
    UnknownCommand,
    /// There is no such policy.
    UnknownPolicy,
    /// It has no such parameter, or not with this value; the policy before is still in force.
    Parameter,
    /// The policy could not be put in force; the one before still is.
    NotChanged,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
    /// What would have been accepted instead, where that can be listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The version it is in.
    pub version: u64,
    /// What was asked for, or why not.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Done: what was asked for.
    Ok(Value),
    /// Not done.
    Error(Refusal),
}

impl Command {
    /// The command as it is sent.
    pub fn line(&self) -> Vec<u8> {
        let mut request = match self {
            Self::Policy => serde_json::json!({ "command": POLICY }),
            Self::Status => serde_json::json!({ "command": STATUS }),
            Self::SetPolicy(SetPolicy { name, set, events }) => {
                let mut request =
                    serde_json::json!({ "command": SET_POLICY, "name": name, "set": set });
                if let Some(events) = events {
                    request["events"] = serde_json::json!(events);
                }
                request
            }
        };
        request["version"] = VERSION.into();
        format!("{request}\n").into_bytes()
    }
}

const POLICY: &str = "policy";
const STATUS: &str = "status";
const SET_POLICY: &str = "set-policy";

impl Reply {
    /// What was asked for.
    pub fn ok(answer: &impl Serialize) -> Self {
        // Numbers, strings and lists of them: there is nothing in it that JSON does not have.
        Self::of(Outcome::Ok(
            serde_json::to_value(answer).unwrap_or_default(),
        ))
    }

    /// Why not.
    pub fn refusal(kind: ErrorKind, message: impl Into<String>, accepted: &[&str]) -> Self {
        Self::of(Outcome::Error(Refusal {
            kind,
            message: message.into(),
            accepted: accepted.iter().map(|name| (*name).to_string()).collect(),
        }))
    }

    pub(super) fn too_long() -> Self {
        let message = format!("a request has at most {LONGEST_REQUEST} bytes");
        Self::refusal(ErrorKind::Request, message, &[])
    }

    fn of(outcome: Outcome) -> Self {
        Self {
            version: VERSION,
            outcome,
        }
    }

    /// The reply as it is sent.
    pub(super) fn line(&self) -> Vec<u8> {
        // As above.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Understands a request; what is wrong with it is the reply.
pub(super) fn parse(line: &[u8]) -> Result<Command, Box<Reply>> {
    let wrong = |kind, message: String| Box::new(Reply::refusal(kind, message, &[]));
    let mut request: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
        let message = format!("expected a JSON object in a line: {error}");
        wrong(ErrorKind::Request, message)
    })?;
    match request.remove("version") {
        Some(version) if version == VERSION => {}
        version => {
            let found = version.map_or("none".to_string(), |version| version.to_string());
            let message = format!("found version {found}, this corun speaks version {VERSION}");
            return Err(wrong(ErrorKind::Version, message));
        }
    }
    let command = request.remove("command");
    let arguments = Value::Object(request);
    let told = |error: serde_json::Error| wrong(ErrorKind::Request, error.to_string());
    match command.as_ref().and_then(Value::as_str) {
        Some(POLICY) => serde_json::from_value(arguments)
            .map(|Nothing {}| Command::Policy)
            .map_err(told),
        Some(STATUS) => serde_json::from_value(arguments)
            .map(|Nothing {}| Command::Status)
            .map_err(told),
        Some(SET_POLICY) => serde_json::from_value(arguments)
            .map(Command::SetPolicy)
            .map_err(told),
        _ => {
            let found = command.map_or("none".to_string(), |command| command.to_string());
            let accepted = [POLICY, STATUS, SET_POLICY];
            let message = format!(
                "found command {found}, accepted are {}",
                accepted.join(", ")
            );
            Err(Box::new(Reply::refusal(
                ErrorKind::UnknownCommand,
                message,
                &accepted,
            )))
        }
    }
}
