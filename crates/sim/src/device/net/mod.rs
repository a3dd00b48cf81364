// SPDX-License-Identifier: GPL-2.0-only
//! The network: what happens to packets between guests and clients.
//!
//! Problem: a server's users see response times, not shares of pCPUs, and what scheduling does to
//! them shows only if requests come from outside, at their own pace. So clients live outside the
//! host ([`ClientSpec`]), behind a switch and the host's NIC, which all VMs share; VMs talk to each
//! other over the host's bridge ([`ChannelSpec`]).
//!
//! A packet from a client passes the wire to the host, the LAN's latency and vhost, then waits for
//! the guest (`guest/net/`): its interrupt goes to one vCPU and is taken only while that one runs.
//! The way back is the same: the guest's kick, vhost, wire, LAN. From VM to VM it is vhost twice.
//! Nothing is lost or reordered: rings and queues are assumed to be long enough. Only the number of clients' requests
//! that wait for a connection, and of pings under way, is limited ([`NetworkParams::most_waiting`]): an open loop that
//! sends more than its server can answer would have ever more of them.

mod client;
mod link;
mod spec;
pub(crate) mod tcp;

pub use spec::{
    CHUNK, ChannelSpec, ClientKind, ClientOutcome, ClientSpec, MOST_CONNECTIONS, MOST_WAITING,
    NetworkParams, NetworkSpec, Pace, Requests, parameters,
};
pub use tcp::TcpParams;

use crate::host::Host;
use client::Client;
use corun_model::Nanos;
use link::Wire;
use tcp::Segment;

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client {
        client: u32,
        connection: u32,
    },
    /// For pings, `endpoint` is the client that sent it.
    Guest {
        vm: u32,
        endpoint: u32,
    },
}

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub to: End,
    pub body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Tcp(Segment),
    /// An ICMP echo request or its reply, with the time when the request was sent.
    Echo {
        sent: Nanos,
    },
}

/// What a timer of the network is for; packed into 56 bits of a load timer's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A packet from a guest has left vhost.
    AtHost { packet: u32 },
    /// A packet has reached its destination.
    Arrived { packet: u32 },
    /// The retransmission timer of a guest's connection.
    GuestRto { vm: u32, endpoint: u32 },
    /// The same of a client's.
    ClientRto { client: u32, connection: u32 },
    /// A client's next request or ping.
    Next { client: u32, connection: u32 },
    /// A client's patience with a request ends.
    Patience { client: u32, connection: u32 },
    /// A client comes or goes.
    Turn { client: u32 },
}

impl Wake {
    /// Kind in 4 bits, VM or client in 20, the rest in 32.
    pub fn code(self) -> u64 {
        let (kind, owner, index) = match self {
            Wake::AtHost { packet } => (0, 0, packet),
            Wake::Arrived { packet } => (1, 0, packet),
            Wake::GuestRto { vm, endpoint } => (2, vm, endpoint),
            Wake::ClientRto { client, connection } => (3, client, connection),
            Wake::Next { client, connection } => (4, client, connection),
            Wake::Patience { client, connection } => (5, client, connection),
            Wake::Turn { client } => (6, client, 0),
        };
        kind << 52 | u64::from(owner) << 32 | u64::from(index)
    }

    pub fn of(code: u64) -> Self {
        let (owner, index) = ((code >> 32) as u32 & 0xf_ffff, code as u32);
        let (client, connection) = (owner, index);
        match code >> 52 & 0xf {
            0 => Wake::AtHost { packet: index },
            1 => Wake::Arrived { packet: index },
            2 => Wake::GuestRto {
                vm: owner,
                endpoint: index,
            },
            3 => Wake::ClientRto { client, connection },
            4 => Wake::Next { client, connection },
            5 => Wake::Patience { client, connection },
            _ => Wake::Turn { client },
        }
    }

    /// Makes the host call the load's `timer` at this time.
    pub fn at(self, host: &mut Host, at: Nanos) {
        host.load_timer(at, crate::guest::NET_TIMER | self.code());
    }
}

/// The network in the run.
#[derive(Debug)]
pub(crate) struct Network {
    params: NetworkParams,
    clients: Vec<Client>,
    /// How much of the clients' requests and pings waits.
    waiting: u64,
    /// Packets on their way, and free places among them.
    packets: Vec<Packet>,
    free: Vec<u32>,
    incoming: Wire,
    outgoing: Wire,
    /// What a client has just sent.
    sent: Vec<Packet>,
    /// VMs whose emulators handle their packets.
    emulated: Vec<bool>,
}

impl Network {
    pub fn new(spec: &NetworkSpec, seed: u64) -> Self {
        let clients = spec.clients.iter().enumerate();
        Self {
            params: spec.params,
            clients: clients
                .map(|(index, spec)| Client::new(spec, index as u32, seed))
                .collect(),
            waiting: 0,
            packets: Vec::new(),
            free: Vec::new(),
            incoming: Wire::new(spec.params.bandwidth),
            outgoing: Wire::new(spec.params.bandwidth),
            sent: Vec::new(),
            emulated: Vec::new(),
        }
    }

    /// Sets which VMs' packets are handled by emulators.
    pub fn set_emulated(&mut self, vms: Vec<bool>) {
        self.emulated = vms;
    }

    /// How long it takes to handle a packet between a guest and the host.
    pub fn handling(&self) -> Nanos {
        self.params.vhost
    }

    /// The same, as far as it is time that just passes.
    fn passing(&self, to: &End) -> Nanos {
        match to {
            End::Guest { vm, .. } if self.emulated.get(*vm as usize) == Some(&true) => 0,
            _ => self.params.vhost,
        }
    }

    /// Gives a client another connection, to `peer`; returns the client's end of it.
    pub fn connect(&mut self, client: usize, peer: End) -> End {
        let connection = self.clients[client].connect(self.params.tcp, peer);
        End::Client {
            client: client as u32,
            connection,
        }
    }

    pub fn start(&mut self, host: &mut Host) {
        for client in &mut self.clients {
            client.turn(host, &mut self.sent);
        }
        self.send(host);
    }

    /// Passes on what clients have sent.
    fn send(&mut self, host: &mut Host) {
        let mut sent = std::mem::take(&mut self.sent);
        for packet in sent.drain(..) {
            let out = self.incoming.send(host.now(), &packet);
            let at = out + self.params.latency + self.passing(&packet.to);
            let packet = self.keep(packet);
            Wake::Arrived { packet }.at(host, at);
        }
        self.sent = sent;
    }

    /// Takes a guest's packet, kicked off at `departs`.
    pub fn carry_from_guest(&mut self, host: &mut Host, departs: Nanos, packet: Packet) {
        let packet = self.keep(packet);
        Wake::AtHost { packet }.at(host, departs + self.params.vhost);
    }

    /// Takes a packet that a guest's emulator has sent.
    pub fn at_nic(&mut self, host: &mut Host, packet: Packet) {
        let packet = self.keep(packet);
        self.at_host(host, packet);
    }

    fn keep(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.packets[place as usize] = packet;
                place
            }
            None => {
                self.packets.push(packet);
                (self.packets.len() - 1) as u32
            }
        }
    }

    /// A timer of the network, other than a guest's, went off. Returns a packet that has arrived
    /// for a VM, if any.
    pub fn timer(&mut self, host: &mut Host, wake: Wake) -> Option<(u32, Packet)> {
        match wake {
            Wake::AtHost { packet } => self.at_host(host, packet),
            Wake::Arrived { packet } => {
                self.free.push(packet);
                let packet = self.packets[packet as usize];
                match packet.to {
                    End::Guest { vm, .. } => return Some((vm, packet)),
                    End::Client { client, connection } => {
                        self.act(client, |client, sent| {
                            client.receive(host, connection, &packet.body, sent);
                        });
                    }
                }
            }
            Wake::ClientRto { client, connection } => {
                self.act(client, |client, sent| {
                    client.timed_out(host, connection, sent)
                });
            }
            Wake::Next { client, connection } => {
                let room = u64::from(self.params.most_waiting).saturating_sub(self.waiting);
                self.act(client, |client, sent| {
                    client.next(host, connection, room, sent)
                });
            }
            Wake::Patience { client, connection } => {
                self.act(client, |client, sent| {
                    client.give_up(host, connection, sent)
                });
            }
            Wake::Turn { client } => {
                self.act(client, |client, sent| client.turn(host, sent));
            }
            Wake::GuestRto { .. } => debug_assert!(false, "{wake:?} is a guest's"),
        }
        self.send(host);
        None
    }

    /// Lets a client do something, which may change how much waits.
    fn act(&mut self, client: u32, what: impl FnOnce(&mut Client, &mut Vec<Packet>)) {
        let client = &mut self.clients[client as usize];
        let before = client.waiting();
        what(client, &mut self.sent);
        self.waiting = self.waiting - before + client.waiting();
    }

    /// A guest's packet is through vhost: on to the NIC, or to another VM.
    fn at_host(&mut self, host: &mut Host, packet: u32) {
        let contents = &self.packets[packet as usize];
        let at = match contents.to {
            // Not at once, however fast vhost is: two VMs must not call each other endlessly in one
            // moment.
            End::Guest { .. } => host.now() + self.passing(&contents.to).max(1),
            End::Client { .. } => self.outgoing.send(host.now(), contents) + self.params.latency,
        };
        Wake::Arrived { packet }.at(host, at);
    }

    pub fn reset(&mut self) {
        self.clients.iter_mut().for_each(Client::reset);
    }

    /// What the clients saw, without what the guests' ends know.
    pub fn outcomes(&self, now: Nanos) -> Vec<ClientOutcome> {
        let outcome = |client: &Client| client.outcome(now);
        self.clients.iter().map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_keep_what_they_are_for() {
        let (client, connection) = (0xf_ffff, u32::MAX);
        for wake in [
            Wake::AtHost { packet: u32::MAX },
            Wake::Arrived { packet: 7 },
            Wake::GuestRto {
                vm: 0xf_ffff,
                endpoint: 3,
            },
            Wake::ClientRto { client, connection },
            Wake::Next { client, connection },
            Wake::Patience { client, connection },
            Wake::Turn { client },
        ] {
            assert_eq!(Wake::of(wake.code()), wake);
            assert_eq!(wake.code() >> 56, 0);
        }
    }
}
