// SPDX-License-Identifier: GPL-2.0-only
//! What leaves a guest, and TCP's timers.

use crate::device::net::tcp::Segment;
use crate::device::net::{Body, Packet, Wake};
use crate::guest::interrupts::Interrupt;
use crate::guest::vm::Vm;
use crate::host::Host;
use corun_model::Nanos;

impl Vm {
    /// Sends what TCP allows, from the running `vcpu`, and sets the timer there.
    pub(super) fn flush(&mut self, host: &mut Host, vcpu: u32, endpoint: u32) {
        let now = host.now();
        let slot = &mut self.net.endpoints[endpoint as usize];
        let segments: Vec<Segment> = std::iter::from_fn(|| slot.tcp.next_packet(now)).collect();
        if let Some(at) = slot.tcp.timer_at() {
            slot.timer_vcpu = vcpu;
            if slot.armed.is_none_or(|armed| armed > at) {
                slot.armed = Some(at);
                let vm = self.id;
                Wake::GuestRto { vm, endpoint }.at(host, at);
            }
        }
        self.send_segments(host, vcpu, endpoint, segments);
    }

    pub(super) fn send_segments(
        &mut self,
        host: &Host,
        vcpu: u32,
        endpoint: u32,
        segments: impl IntoIterator<Item = Segment>,
    ) {
        let to = self.net.endpoints[endpoint as usize].peer;
        // One exit for all: vhost is awake by the second one (event index).
        let mut kick = self.params.net.kick;
        for (place, segment) in segments.into_iter().enumerate() {
            self.vcpus[vcpu as usize].io_events += u64::from(place == 0);
            let cost = kick + self.params.net.packet + self.params.net.copying(segment.len);
            kick = 0;
            let body = Body::Tcp(segment);
            self.emit(host, vcpu, cost, Packet { to, body });
        }
    }

    /// Lets a packet go as soon as the kernel work for it is done.
    pub(super) fn emit(&mut self, host: &Host, vcpu: u32, cost: Nanos, packet: Packet) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.overhead += cost;
        let departs = (host.now() + slot.overhead).max(self.net.last_departure);
        self.net.last_departure = departs;
        self.net.outbox.push((departs, packet));
    }

    /// A timer that was set for a connection fired; it may have been set anew meanwhile.
    pub(in crate::guest) fn rto_due(&mut self, host: &mut Host, endpoint: u32) {
        let now = host.now();
        let slot = &mut self.net.endpoints[endpoint as usize];
        if slot.armed != Some(now) {
            return;
        }
        slot.armed = None;
        match slot.tcp.timer_at() {
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
    pub(in crate::guest) fn rto(&mut self, host: &mut Host, vcpu: u32, endpoint: u32) {
        let now = host.now();
        let tcp = &mut self.net.endpoints[endpoint as usize].tcp;
        let ack = tcp.timer(now);
        self.send_segments(host, vcpu, endpoint, ack);
        self.flush(host, vcpu, endpoint);
    }
}
