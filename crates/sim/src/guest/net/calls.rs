// SPDX-License-Identifier: GPL-2.0-only
//! What threads ask of the network: `request`, `reply`, `transmit`.

use crate::guest::tell::of_port;
use crate::guest::thread::Doing;
use crate::guest::vm::Vm;
use crate::host::{Host, Span};

/// What a thread does with the network.
#[derive(Debug, Default)]
pub(in crate::guest) struct Talk {
    /// Per port, the request that was taken last and is not answered yet: endpoint and its
    /// connection's number.
    serving: Vec<(u32, u32, u32)>,
    /// Bytes left of what it is sending.
    sending: Option<u64>,
}

impl Vm {
    /// `request PORT`: takes a message, or waits for one.
    pub(in crate::guest) fn request(&mut self, host: &mut Host, vcpu: u32, thread: u32, port: u32) {
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
            self.tell_begin(host, thread, Span::IoWait, of_port(port));
            return self.block(host, vcpu, thread, Doing::Off);
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
    pub(in crate::guest) fn reply(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        port: u32,
        size: u64,
    ) {
        let talk = &self.threads[thread as usize].talk;
        let serving = talk.serving.iter().find(|serving| serving.0 == port);
        let Some(&(_, endpoint, generation)) = serving else {
            return self.sent(thread);
        };
        let open = self.net.endpoints[endpoint as usize].tcp.generation() == generation;
        // Nobody waits for the reply if the client has opened another connection.
        if !open || self.write_socket(host, vcpu, thread, endpoint, size) {
            let talk = &mut self.threads[thread as usize].talk;
            talk.serving.retain(|serving| serving.0 != port);
            self.sent(thread);
        }
    }

    /// `transmit PORT SIZE`: sends on the thread's own connection.
    pub(in crate::guest) fn transmit(
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
        if self.write_socket(host, vcpu, thread, endpoint, size) {
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
    fn write_socket(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        thread: u32,
        endpoint: u32,
        size: u64,
    ) -> bool {
        let left = self.threads[thread as usize].talk.sending.unwrap_or(size);
        let slot = &mut self.net.endpoints[endpoint as usize];
        let bytes = slot.tcp.room().min(left);
        if bytes > 0 {
            slot.tcp.write(bytes, bytes == left);
        }
        let (done, port) = (bytes == left, slot.port);
        if !done {
            slot.writer = Some(thread);
        }
        self.threads[thread as usize].talk.sending = Some(left - bytes);
        self.flush(host, vcpu, endpoint);
        if !done {
            self.tell_begin(host, thread, Span::IoWait, of_port(port));
            self.block(host, vcpu, thread, Doing::Off);
        }
        done
    }
}
