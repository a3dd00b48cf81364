// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario says about the network, and what came of it.

use super::TcpParams;
use crate::waits::Waits;
use crate::workload::Length;
use corun_model::{Nanos, Parameter, Presence, Value, VmId};

/// The most connections of all clients and channels.
pub const MOST_CONNECTIONS: u32 = 65_536;

/// The most requests that wait for a connection, of all clients: 8 bytes each, 32 MB. A server that falls behind by
/// 1000 requests per second has that many after more than an hour.
pub const MOST_WAITING: u32 = 1 << 22;

/// The bytes that one `request` takes from a stream: 64 KiB, as programs that copy bulk data read
/// (assumed; `ttcp -l` and `cp` use 8 to 128 KiB).
pub const CHUNK: u64 = 64 << 10;

/// The host's network. All its VMs share one NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkParams {
    /// Bandwidth of the NIC in each direction, bit/s, at least 1 Mbit/s. 1 Gbit/s: the NICs of the
    /// balance paper's hosts.
    pub bandwidth: u64,
    /// Latency one way between the host's NIC and a client, cables and one switch included, without
    /// the time to send. 50 us, assumed: half of what `ping` shows on an idle gigabit LAN, 100–200
    /// us, less the hosts' own work.
    pub latency: Nanos,
    /// From a guest's kick to the host's network stack, and from there to the guest's interrupt:
    /// the wake-up of the vhost thread and its copying. It uses no modelled pCPU. 10 us, assumed:
    /// a wake-up on an idle CPU takes 3–5 us, tap and bridge as much again.
    pub vhost: Nanos,
    /// TCP on all hosts and guests.
    pub tcp: TcpParams,
    /// How many requests may wait for a connection, of all clients together; pings under way count
    /// [`PING_ROOM`] times. Requests beyond that are given up at once.
    pub most_waiting: u32,
}

/// How many times as much memory a ping under way takes as a request that waits: that of its
/// packet.
pub(super) const PING_ROOM: u32 = 8;

impl Default for NetworkParams {
    fn default() -> Self {
        Self {
            bandwidth: 1_000_000_000,
            latency: 50_000,
            vhost: 10_000,
            tcp: TcpParams::default(),
            most_waiting: MOST_WAITING,
        }
    }
}

/// The network's parameters, for the table of all parameters.
pub fn parameters() -> Vec<Parameter> {
    let NetworkParams {
        bandwidth,
        latency,
        vhost,
        tcp,
        most_waiting: _,
    } = NetworkParams::default();
    let parameter = Parameter::new;
    vec![
        parameter(
            "network.bandwidth",
            "of the host's NIC, each direction",
            Value::Number(bandwidth as f64 / 1e6, "Mbit/s"),
            "balance paper: 1 Gbit/s NICs",
            "1 Gbit/s and 1 Tbit/s in tests",
        ),
        parameter(
            "network.latency",
            "one way between NIC and client, switch included",
            Value::Time(latency),
            "assumed: half of ping on an idle gigabit LAN",
            "0 and 50 us in tests",
        ),
        parameter(
            "network.vhost",
            "between guest and host's network stack, each way",
            Value::Time(vhost),
            "assumed: a wake-up (3–5 us), tap and bridge",
            "0 and 10 us in tests",
        ),
        parameter(
            "network.tcp_min_rto",
            "floor under the variance in TCP's time-out",
            Value::Time(tcp.min_rto),
            "Linux TCP_RTO_MIN",
            "not varied: a constant of the kernel",
        ),
        parameter(
            "network.tcp_first_rto",
            "time-out of a connection's first packet",
            Value::Time(tcp.first_rto),
            "Linux TCP_TIMEOUT_INIT since 3.1 (3 s before)",
            "not varied: a constant of the kernel",
        ),
        parameter(
            "network.tcp_window",
            "bytes that a receiver holds for its program, a sender for the network",
            Value::Bytes(tcp.window),
            "assumed: between 64 KiB and 6 MiB, the bounds of Linux's autotuning (tcp_rmem)",
            "64 KiB to 6 MiB in unit tests of TCP",
        ),
        parameter(
            "network.tcp_ack_delay",
            "the longest that an ACK waits for something to be sent with",
            Value::Time(tcp.ack_delay),
            "TCP_DELACK_MIN in Linux's include/net/tcp.h",
            "0 and 40 ms in unit tests of TCP",
        ),
        parameter(
            "network.tcp_undo",
            "undo time-outs that timestamps show to be spurious",
            Value::Switch(tcp.undo),
            "Linux tcp_timestamps = 1, tcp_try_undo_loss",
            "on and off in tests",
        ),
    ]
}

/// The network of a run.
#[derive(Clone, Debug, Default)]
pub struct NetworkSpec {
    /// NIC, LAN and TCP.
    pub params: NetworkParams,
    /// Programs outside the host.
    pub clients: Vec<ClientSpec>,
    /// Connections between VMs.
    pub channels: Vec<ChannelSpec>,
}

/// A client: one program outside the host, with one VM as its server.
#[derive(Clone, Debug)]
pub struct ClientSpec {
    /// Its name.
    pub name: String,
    /// The VM it talks to.
    pub vm: VmId,
    /// What it does.
    pub kind: ClientKind,
    /// When it is there. Sinks always are: it is the guest that sends.
    pub presence: Presence,
}

/// What a client does.
#[derive(Clone, Debug)]
pub enum ClientKind {
    /// Sends requests and waits for replies.
    Requests(Requests),
    /// Sends ICMP echo requests, which the guest's kernel answers.
    Ping {
        /// Time from one to the next, whether answered or not.
        interval: Length,
        /// Answers that take longer count as lost.
        timeout: Nanos,
    },
    /// Receives what threads `transmit` on this port: one connection for each.
    Sink {
        /// Its name in the programs.
        port: String,
    },
    /// Sends as much as TCP allows; a `request` takes [`CHUNK`] bytes.
    Stream {
        /// Its name in the programs.
        port: String,
        /// Number of connections.
        connections: u32,
    },
}

/// A client's requests.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The port's name in the programs.
    pub port: String,
    /// Connections: at most so many requests are under way.
    pub connections: u32,
    /// When it sends.
    pub pace: Pace,
    /// Bytes of a request.
    pub size: u64,
    /// The time after which a request is given up and its connection opened anew.
    pub timeout: Option<Nanos>,
    /// Do connections outlive their request?
    pub keep_alive: bool,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Closed loop: on each connection this long after the last reply; `None`: at once.
    Think(Option<Length>),
    /// Open loop: this long after the one before, whatever became of that. A request waits if no
    /// connection is free, which counts as response time.
    Gap(Length),
}

/// Connections from the threads of one VM to another VM.
///
/// What a thread `transmit`s on the one port arrives as a request on the other; the reply comes
/// back to that thread's `request` on the first port.
#[derive(Clone, Debug)]
pub struct ChannelSpec {
    /// Its name.
    pub name: String,
    /// The VM that calls, and its port.
    pub from: (VmId, String),
    /// The VM that is called, and its port.
    pub to: (VmId, String),
}

/// What a client or channel saw since the accounts were last reset.
#[derive(Clone, Debug)]
pub struct ClientOutcome {
    /// Its name.
    pub name: String,
    /// `closed loop`, `open loop`, `ping`, `sink`, `stream` or `channel`.
    pub kind: &'static str,
    /// The VM that serves it.
    pub vm: VmId,
    /// Times from the wish to send until the end of the reply arrived; round-trip times of pings.
    /// Empty for sinks and streams.
    pub responses: Waits,
    /// Requests given up; pings not answered in time.
    pub timeouts: u64,
    /// Those of them that were given up at once because too many waited: [`NetworkParams::most_waiting`].
    pub turned_away: u64,
    /// Open loops: requests that were due.
    pub wished: u64,
    /// Open loops: were fewer answered than were due, so that ever more waited?
    pub overloaded: bool,
    /// TCP segments sent again, by either end.
    pub retransmissions: u64,
    /// Bytes that arrived at either end, duplicates and headers not counted.
    pub bytes: u64,
}
