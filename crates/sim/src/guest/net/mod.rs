// SPDX-License-Identifier: GPL-2.0-only
//! The guest's side of the network: virtio-net, softirqs, sockets.
//!
//! A packet for the VM goes to one receive queue, whose interrupt is bound to one vCPU and taken
//! only while that one runs. The interrupt starts polling (NAPI): packet by packet, each charged
//! before it takes effect, and all before any thread goes on; packets that come meanwhile need no
//! further interrupt. TCP, replies to pings and the waking of threads happen there, so all of it
//! waits for that vCPU (`net/core/dev.c`, `drivers/net/virtio_net.c`). Timers of TCP are on the
//! vCPU that set them. A timer that is overdue when its vCPU gets its pCPU back goes off before the
//! packets that have arrived meanwhile are seen, even if the ACK it waits for is among them:
//! `TIMER_SOFTIRQ` comes before `NET_RX_SOFTIRQ`.
//!
//! What a thread or softirq sends leaves the guest when the kernel work before it and its own is
//! done, even if the vCPU loses its pCPU within these microseconds. Left out: ksoftirqd (softirqs
//! always go first), interrupt coalescing, packets lost in full rings.

mod calls;
mod params;
mod send;

pub(super) use calls::Talk;
pub use params::{NetParams, parameters};

use super::interrupts::Interrupt;
use super::tell::of_port;
use super::vm::Vm;
use crate::device::net::tcp::{Segment, Tcp};
use crate::device::net::{Body, ClientOutcome, End, Packet};
use crate::host::{Host, Span};
use crate::waits::Waits;
use corun_model::{Nanos, PcpuId};
use std::collections::VecDeque;

/// A vCPU's receive work.
#[derive(Debug, Default)]
pub(super) struct Receive {
    queue: VecDeque<Packet>,
    /// The interrupt was taken and the queue not empty since.
    pub polling: bool,
    /// The first packet's work is done.
    paid: bool,
}

/// A port that programs name.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub name: String,
    /// Requests for any thread: the endpoint, its connection's number, bytes.
    ready: VecDeque<(u32, u32, u64)>,
    waiting: VecDeque<u32>,
    /// By thread: the endpoint of the connection that it opens itself, if it does.
    pub own: Vec<Option<u32>>,
}

/// The guest's end of a connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub tcp: Tcp,
    pub peer: End,
    pub port: u32,
    /// Was it opened by a thread, which alone reads and writes here? Otherwise it serves requests.
    owned: bool,
    /// The channel that it belongs to.
    pub channel: Option<u32>,
    inbox: VecDeque<u64>,
    /// Threads blocked here: for a message, for room.
    reader: Option<u32>,
    writer: Option<u32>,
    /// When the timer goes off, if it is set, and on which vCPU.
    armed: Option<Nanos>,
    timer_vcpu: u32,
    /// Since when each unanswered call has been waiting.
    calls: VecDeque<Nanos>,
    pub responses: Waits,
}

impl Endpoint {
    pub fn new(tcp: Tcp, peer: End, port: u32, owned: bool, channel: Option<u32>) -> Self {
        Self {
            tcp,
            peer,
            port,
            owned,
            channel,
            inbox: VecDeque::new(),
            reader: None,
            writer: None,
            armed: None,
            timer_vcpu: 0,
            calls: VecDeque::new(),
            responses: Waits::default(),
        }
    }

    /// Adds what this end knows to its client's or channel's account.
    pub fn add_to(&self, outcome: &mut ClientOutcome) {
        outcome.retransmissions += self.tcp.retransmissions;
        outcome.bytes += self.tcp.delivered;
        outcome.responses.add(&self.responses);
    }
}

/// The sockets of a VM.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    pub ports: Vec<Port>,
    pub endpoints: Vec<Endpoint>,
    /// Packets that leave, and when.
    pub outbox: Vec<(Nanos, Packet)>,
    last_departure: Nanos,
}

impl Sockets {
    pub fn new(ports: &[String], threads: usize) -> Self {
        let port = |name: &String| Port {
            name: name.clone(),
            own: vec![None; threads],
            ..Port::default()
        };
        Self {
            ports: ports.iter().map(port).collect(),
            ..Self::default()
        }
    }

    pub fn reset(&mut self) {
        for endpoint in &mut self.endpoints {
            endpoint.tcp.retransmissions = 0;
            endpoint.tcp.delivered = 0;
            endpoint.responses = Waits::default();
        }
    }
}

impl Vm {
    /// A packet is there for this VM, brought by a thread on the pCPU `from` (`None`: by no
    /// thread).
    pub fn packet_due(&mut self, host: &mut Host, packet: Packet, from: Option<PcpuId>) {
        let End::Guest { endpoint, .. } = packet.to else {
            return;
        };
        let queue = endpoint % self.params.net.queues;
        let vcpu = (self.params.net.irq + queue) % self.vcpus.len() as u32;
        let receive = &mut self.vcpus[vcpu as usize].receive;
        receive.queue.push_back(packet);
        // Otherwise the interrupt is already pending, or polling finds the packet.
        if receive.queue.len() == 1 && !receive.polling {
            self.post(host, vcpu, Interrupt::Net, from);
        }
    }

    /// Goes on with a vCPU's receive softirq; returns whether there is work to be charged, or to
    /// look at again.
    pub(super) fn softirq(&mut self, host: &mut Host, vcpu: u32) -> bool {
        let cost = self.params.net.packet;
        let slot = &mut self.vcpus[vcpu as usize];
        let receive = &mut slot.receive;
        if !receive.polling {
            return false;
        }
        if receive.paid {
            receive.paid = false;
            if let Some(packet) = receive.queue.pop_front() {
                self.packet(host, vcpu, packet);
            }
        } else if receive.queue.is_empty() {
            receive.polling = false;
            return false;
        } else {
            receive.paid = true;
            slot.overhead += cost;
        }
        true
    }

    /// The protocols see a packet.
    fn packet(&mut self, host: &mut Host, vcpu: u32, packet: Packet) {
        let End::Guest { endpoint, .. } = packet.to else {
            return;
        };
        match packet.body {
            Body::Echo { .. } => {
                let to = End::Client {
                    client: endpoint,
                    connection: 0,
                };
                let cost = self.params.net.kick + self.params.net.packet;
                self.vcpus[vcpu as usize].io_events += 1;
                self.emit(host, vcpu, cost, Packet { to, ..packet });
            }
            Body::Tcp(segment) => self.segment(host, vcpu, endpoint, &segment),
        }
    }

    fn segment(&mut self, host: &mut Host, vcpu: u32, endpoint: u32, segment: &Segment) {
        let slot = &mut self.net.endpoints[endpoint as usize];
        let received = slot.tcp.receive(host.now(), segment);
        let writable = slot.tcp.writable() || received.reset;
        let writer = if writable { slot.writer.take() } else { None };
        if let Some(answer) = received.answer {
            self.send_segments(host, vcpu, endpoint, [answer]);
        }
        let messages = u64::from(received.messages);
        for message in 0..messages {
            // Of several messages in one packet only the total size is known.
            let rest = if message == 0 {
                received.bytes % messages
            } else {
                0
            };
            self.message(host, vcpu, endpoint, received.bytes / messages + rest);
        }
        self.flush(host, vcpu, endpoint);
        if let Some(thread) = writer {
            self.tell_port_end(host, thread, endpoint);
            self.wake(host, thread, vcpu);
        }
    }

    /// A message is complete: which thread is it for?
    fn message(&mut self, host: &mut Host, vcpu: u32, endpoint: u32, bytes: u64) {
        let slot = &mut self.net.endpoints[endpoint as usize];
        let thread = match slot.owned {
            true => {
                if let Some(since) = slot.calls.pop_front() {
                    slot.responses.record(host.now() - since);
                }
                slot.inbox.push_back(bytes);
                slot.reader.take()
            }
            false => {
                let request = (endpoint, slot.tcp.generation(), bytes);
                let port = &mut self.net.ports[slot.port as usize];
                port.ready.push_back(request);
                port.waiting.pop_front()
            }
        };
        if let Some(thread) = thread {
            self.tell_port_end(host, thread, endpoint);
            self.wake_sync(host, thread, vcpu);
        }
    }

    /// A thread no longer waits for the port of this endpoint.
    fn tell_port_end(&self, host: &mut Host, thread: u32, endpoint: u32) {
        let port = self.net.endpoints[endpoint as usize].port;
        self.tell_end(host, thread, Span::IoWait, of_port(port));
    }
}
