// SPDX-License-Identifier: GPL-2.0-only
//! The clients that presets bring along, so that a VM which serves has requests to serve.

use crate::device::net::{ClientKind, Pace, Requests};
use crate::workload::print::Size;
use crate::workload::{Length, Vary};
use corun_model::Nanos;
use corun_model::time::SEC;
use std::fmt;

/// The time after which a ping counts as lost, as for `[client]`.
const PATIENCE: Nanos = 10 * SEC;

/// Clients of one port of a preset.
#[derive(Clone, Copy, Debug)]
pub struct PresetClient {
    /// The port; empty for pings, which need none.
    pub port: &'static str,
    /// What they do.
    pub sends: Sends,
}

/// What a preset's clients do.
#[derive(Clone, Copy, Debug)]
pub enum Sends {
    /// One request at a time on each of so many connections.
    Requests {
        /// Connections.
        connections: u32,
        /// Time from a reply to the next request.
        think: Option<Length>,
        /// Bytes of a request.
        size: u64,
    },
    /// They send nothing but receive what threads `transmit`.
    Nothing,
    /// Pings at this interval.
    Pings(Nanos),
}

impl PresetClient {
    /// `connections` clients that send a request of `size` bytes as soon as the last is answered.
    pub(super) const fn eager(port: &'static str, connections: u32, size: u64) -> Self {
        let sends = Sends::Requests {
            connections,
            think: None,
            size,
        };
        Self { port, sends }
    }

    /// The same, thinking for exponentially distributed times about `think` in between.
    pub(super) const fn thinking(
        port: &'static str,
        connections: u32,
        size: u64,
        think: Nanos,
    ) -> Self {
        let vary = Vary::Exponential;
        let sends = Sends::Requests {
            connections,
            think: Some(Length { mean: think, vary }),
            size,
        };
        Self { port, sends }
    }

    /// The client as the network knows it.
    pub fn kind(&self) -> ClientKind {
        match self.sends {
            Sends::Requests {
                connections,
                think,
                size,
            } => ClientKind::Requests(Requests {
                port: self.port.to_string(),
                connections,
                pace: Pace::Think(think),
                size,
                timeout: None,
                keep_alive: true,
            }),
            Sends::Nothing => ClientKind::Sink {
                port: self.port.to_string(),
            },
            Sends::Pings(interval) => ClientKind::Ping {
                interval: Length {
                    mean: interval,
                    vary: Vary::Fixed,
                },
                timeout: PATIENCE,
            },
        }
    }
}

/// Writes the client in the words of `[client.NAME]`.
impl fmt::Display for PresetClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match self.sends {
            Sends::Requests {
                connections,
                think,
                size,
            } => {
                write!(f, "kind = \"closed\", port = \"{port}\", ")?;
                write!(f, "connections = {connections}, size = \"{}\"", Size(size))?;
                match think {
                    Some(think) => write!(f, ", think = \"{think}\""),
                    None => Ok(()),
                }
            }
            Sends::Nothing => write!(f, "kind = \"sink\", port = \"{port}\""),
            Sends::Pings(mean) => {
                let vary = Vary::Fixed;
                write!(
                    f,
                    "kind = \"ping\", interval = \"{}\"",
                    Length { mean, vary }
                )
            }
        }
    }
}
