// SPDX-License-Identifier: GPL-2.0-only
//! The guest's side of the network: virtio-net, softirqs, sockets.
//!
//! A packet for the VM goes to one receive queue, whose interrupt is bound to one vCPU and taken
//! only while that one runs. The interrupt starts polling (NAPI): packet by packet, each paid for
//! before it takes effect, before any thread goes on; packets that come meanwhile need no further
//! interrupt. TCP, replies to pings and the waking of threads happen there, so all of it waits for
//! that vCPU (`net/core/dev.c`, `drivers/net/virtio_net.c`). Timers of TCP are on the vCPU that set
//! them. One that is overdue when a vCPU gets its pCPU back goes off before the packets that have
//! arrived meanwhile are seen, be it the ACK it waits for: `TIMER_SOFTIRQ` comes before
//! `NET_RX_SOFTIRQ`.
//!
//! What a thread or softirq sends leaves the guest when the kernel work before it and its own is
//! done, even if the vCPU loses its pCPU within these microseconds. Kept out: ksoftirqd (softirqs
//! always go first), interrupt coalescing, packets lost in full rings.

use super::interrupts::Interrupt;
use super::thread::Doing;
use super::vm::Vm;
use crate::device::net::tcp::{Segment, Tcp};
use crate::device::net::{Body, ClientOutcome, End, Packet, Wake};
use crate::host::Host;
use crate::waits::Waits;
use corun_model::{Nanos, Parameter, Value};
use std::collections::VecDeque;

/// A guest kernel's network path and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetParams {
    /// The vCPU that takes the first receive queue's interrupt, the next one the second queue's and
    /// so on, modulo the number of vCPUs. 0: where Linux has it without irqbalance.
    pub irq: u32,
    /// Receive queues, 1–512; connections are spread over them. 1: virtio-net's default.
    pub queues: u32,
    /// Kernel work for a packet, received or sent. 3 us: some 8000 cycles for driver, IP, TCP and
    /// socket at 2.6 GHz, the order that profiles of Linux's stack show.
    pub packet: Nanos,
    /// Copying a KiB between kernel and program. 250 ns: 4 GB/s, one core's copy from memory.
    pub copy: Nanos,
    /// The exit that tells the host of packets. 2 us: an I/O exit handled in the kernel (ioeventfd),
    /// kvm-unit-tests `vmexit` `pci-io-eventfd`, 3000–5000 cycles.
    pub kick: Nanos,
}

impl Default for NetParams {
    fn default() -> Self {
        Self {
            irq: 0,
            queues: 1,
            packet: 3_000,
            copy: 250,
            kick: 2_000,
        }
    }
}

/// The guest network path's parameters, for the table of all parameters.
pub fn parameters() -> Vec<Parameter> {
    let default = NetParams::default();
    let parameter = |key, meaning, value, source, tried| Parameter {
        key,
        meaning,
        value,
        source,
        tried,
    };
    vec![
        parameter(
            "vm.*.guest.net_irq",
            "vCPU that takes the first receive queue's interrupt",
            Value::Number(f64::from(default.irq), ""),
            "Linux without irqbalance",
            "0 and 1 in tests",
        ),
        parameter(
            "vm.*.guest.net_queues",
            "receive queues, each with its own interrupt",
            Value::Number(f64::from(default.queues), ""),
            "virtio-net without mq",
            "1 and 2 in tests",
        ),
        parameter(
            "vm.*.guest.net_packet",
            "kernel work for a packet, received or sent",
            Value::Time(default.packet),
            "assumed: 8000 cycles at 2.6 GHz, the order that profiles of Linux's stack show",
            "0 to 100 us in tests",
        ),
        parameter(
            "vm.*.guest.net_copy",
            "copying a KiB between kernel and program",
            Value::Time(default.copy),
            "assumed: 4 GB/s, one core's copy from memory",
            "0 and 250 ns in tests",
        ),
        parameter(
            "vm.*.guest.net_kick",
            "the exit that tells the host of packets",
            Value::Time(default.kick),
            "kvm-unit-tests vmexit, 3000–5000 cycles",
            "0 and 2 us in tests",
        ),
    ]
}

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
    /// Opened by a thread, which alone reads and writes here; else it serves.
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
    /// Calls not answered, since when.
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

    /// Adds what it knows to its client's or channel's account.
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

/// What a thread does with the network.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// Per port, the request taken last and not answered: endpoint and its connection's number.
    serving: Vec<(u32, u32, u32)>,
    /// Bytes left of what it is sending.
    sending: Option<u64>,
}

impl Vm {
    /// A packet is there for this VM.
    pub fn packet_due(&mut self, host: &mut Host, packet: Packet) {
        let End::Guest { endpoint, .. } = packet.to else {
            return;
        };
        let queue = endpoint % self.params.net.queues;
        let vcpu = (self.params.net.irq + queue) % self.vcpus.len() as u32;
        let receive = &mut self.vcpus[vcpu as usize].receive;
        receive.queue.push_back(packet);
        // Else the interrupt is pending, or polling finds it.
        if receive.queue.len() == 1 && !receive.polling {
            self.post(host, vcpu, Interrupt::Net, None);
        }
    }

    /// Goes on with a vCPU's receive softirq; is there something to be paid or seen again?
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
            // Of several in one packet only the sum is known.
            let rest = if message == 0 {
                received.bytes % messages
            } else {
                0
            };
            self.message(host, vcpu, endpoint, received.bytes / messages + rest);
        }
        self.flush(host, vcpu, endpoint);
        if let Some(thread) = writer {
            self.wake(host, thread, vcpu);
        }
    }

    /// A message is complete: whose is it?
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
            self.wake(host, thread, vcpu);
        }
    }

    /// `request PORT`: takes a message, or waits for one.
    pub(super) fn request(&mut self, host: &mut Host, vcpu: u32, thread: u32, port: u32) {
        let slot = &mut self.net.ports[port as usize];
        let taken = match slot.own[thread as usize] {
            Some(endpoint) => {
                let end = &mut self.net.endpoints[endpoint as usize];
                let message = end.inbox.pop_front();
                if message.is_none() {
                    end.reader = Some(thread);
                }
                message.map(|bytes| (endpoint, end.tcp.generation(), bytes))
            }
            None => {
                let request = slot.ready.pop_front();
                match request {
                    Some((endpoint, generation, _)) => {
                        let talk = &mut self.threads[thread as usize].talk;
                        talk.serving.retain(|serving| serving.0 != port);
                        talk.serving.push((port, endpoint, generation));
                    }
                    None => slot.waiting.push_back(thread),
                }
                request
            }
        };
        let Some((endpoint, generation, bytes)) = taken else {
            return self.block(vcpu, thread, Doing::Off);
        };
        self.threads[thread as usize].code.done();
        self.vcpus[vcpu as usize].overhead += self.params.net.copying(bytes);
        let tcp = &mut self.net.endpoints[endpoint as usize].tcp;
        if tcp.generation() == generation
            && let Some(update) = tcp.take(host.now(), bytes)
        {
            self.send_segments(host, vcpu, endpoint, [update]);
        }
    }

    /// `reply PORT SIZE`: answers the request that the thread took last from this port, once.
    pub(super) fn reply(&mut self, host: &mut Host, vcpu: u32, thread: u32, port: u32, size: u64) {
        let talk = &self.threads[thread as usize].talk;
        let serving = talk.serving.iter().find(|serving| serving.0 == port);
        let Some(&(_, endpoint, generation)) = serving else {
            return self.sent(thread);
        };
        let open = self.net.endpoints[endpoint as usize].tcp.generation() == generation;
        // Nobody waits for it if the client has opened another connection.
        if !open || self.write(host, vcpu, thread, endpoint, size) {
            let talk = &mut self.threads[thread as usize].talk;
            talk.serving.retain(|serving| serving.0 != port);
            self.sent(thread);
        }
    }

    /// `transmit PORT SIZE`: sends on the thread's own connection.
    pub(super) fn transmit(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        port: u32,
        size: u64,
    ) {
        let Some(endpoint) = self.net.ports[port as usize].own[thread as usize] else {
            debug_assert!(false, "a port without a connection for thread {thread}");
            return self.sent(thread);
        };
        let slot = &mut self.net.endpoints[endpoint as usize];
        if slot.tcp.is_closed() {
            slot.tcp.open();
        }
        let begins = self.threads[thread as usize].talk.sending.is_none();
        if begins && slot.channel.is_some() {
            slot.calls.push_back(host.now());
        }
        if self.write(host, vcpu, thread, endpoint, size) {
            self.sent(thread);
        }
    }

    fn sent(&mut self, thread: u32) {
        let thread = &mut self.threads[thread as usize];
        thread.talk.sending = None;
        thread.code.done();
    }

    /// Writes a message of `size` bytes as far as there is room; is it all written? If not, the
    /// thread blocks.
    fn write(&mut self, host: &mut Host, vcpu: u32, thread: u32, endpoint: u32, size: u64) -> bool {
        let left = self.threads[thread as usize].talk.sending.unwrap_or(size);
        let slot = &mut self.net.endpoints[endpoint as usize];
        let bytes = slot.tcp.room().min(left);
        if bytes > 0 {
            slot.tcp.write(bytes, bytes == left);
        }
        let done = bytes == left;
        if !done {
            slot.writer = Some(thread);
        }
        self.threads[thread as usize].talk.sending = Some(left - bytes);
        self.flush(host, vcpu, endpoint);
        if !done {
            self.block(vcpu, thread, Doing::Off);
        }
        done
    }

    /// Sends what TCP lets, from the running `vcpu`, and sets the timer there.
    fn flush(&mut self, host: &mut Host, vcpu: u32, endpoint: u32) {
        let now = host.now();
        let slot = &mut self.net.endpoints[endpoint as usize];
        let segments: Vec<Segment> = std::iter::from_fn(|| slot.tcp.next_packet(now)).collect();
        if let Some(at) = slot.tcp.timeout_at() {
            slot.timer_vcpu = vcpu;
            if slot.armed.is_none_or(|armed| armed > at) {
                slot.armed = Some(at);
                let vm = self.id;
                Wake::GuestRto { vm, endpoint }.at(host, at);
            }
        }
        self.send_segments(host, vcpu, endpoint, segments);
    }

    fn send_segments(
        &mut self,
        host: &Host,
        vcpu: u32,
        endpoint: u32,
        segments: impl IntoIterator<Item = Segment>,
    ) {
        let to = self.net.endpoints[endpoint as usize].peer;
        // One exit for all: vhost is awake by the second one (event index).
        let mut kick = self.params.net.kick;
        for segment in segments {
            let cost = kick + self.params.net.packet + self.params.net.copying(segment.len);
            kick = 0;
            let body = Body::Tcp(segment);
            self.emit(host, vcpu, cost, Packet { to, body });
        }
    }

    /// Lets a packet go as soon as the kernel work for it is done.
    fn emit(&mut self, host: &Host, vcpu: u32, cost: Nanos, packet: Packet) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.overhead += cost;
        let departs = (host.now() + slot.overhead).max(self.net.last_departure);
        self.net.last_departure = departs;
        self.net.outbox.push((departs, packet));
    }

    /// A timer that was set for a connection fired; it may have been set anew meanwhile.
    pub(super) fn rto_due(&mut self, host: &mut Host, endpoint: u32) {
        let now = host.now();
        let slot = &mut self.net.endpoints[endpoint as usize];
        if slot.armed != Some(now) {
            return;
        }
        slot.armed = None;
        match slot.tcp.timeout_at() {
            Some(at) if at > now => {
                slot.armed = Some(at);
                let vm = self.id;
                Wake::GuestRto { vm, endpoint }.at(host, at);
            }
            Some(_) => {
                let vcpu = slot.timer_vcpu;
                self.post(host, vcpu, Interrupt::TcpTimer(endpoint), None);
            }
            None => {}
        }
    }

    /// The vCPU takes the timer's interrupt; an ACK may have been seen elsewhere by now.
    pub(super) fn rto(&mut self, host: &mut Host, vcpu: u32, endpoint: u32) {
        let now = host.now();
        let tcp = &mut self.net.endpoints[endpoint as usize].tcp;
        if tcp.timeout_at().is_some_and(|at| at <= now) {
            tcp.timed_out(now);
        }
        self.flush(host, vcpu, endpoint);
    }
}

impl NetParams {
    /// What copying so many bytes costs.
    fn copying(&self, bytes: u64) -> Nanos {
        (u128::from(bytes) * u128::from(self.copy) / 1024) as Nanos
    }
}
