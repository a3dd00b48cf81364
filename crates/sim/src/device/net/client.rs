// SPDX-License-Identifier: GPL-2.0-only
//! Clients: programs on machines that nothing else slows down.

use super::spec::{CHUNK, ClientKind, ClientOutcome, ClientSpec, PING_ROOM, Pace, Requests};
use super::tcp::{Received, Tcp, TcpParams};
use super::{Body, End, Packet, Wake};
use crate::host::Host;
use crate::rng::Rng;
use crate::waits::Waits;
use crate::workload::Length;
use corun_model::Nanos;
use std::collections::VecDeque;

/// A client's end of a connection.
#[derive(Debug)]
struct Connection {
    tcp: Tcp,
    peer: End,
    /// When the request under way was wanted.
    request: Option<Nanos>,
    /// When the next request is due, in a closed loop.
    due: Option<Nanos>,
    /// Is it from before the client went? Then the next request opens another.
    stale: bool,
    /// When TCP's timer goes off, if it is set.
    armed: Option<Nanos>,
    /// Bytes of a stream's chunk not written yet.
    left: u64,
}

/// A client in the run.
#[derive(Debug)]
pub(super) struct Client {
    spec: ClientSpec,
    index: u32,
    rng: Rng,
    connections: Vec<Connection>,
    there: bool,
    /// When the next request is due in an open loop, or the next ping.
    due: Option<Nanos>,
    /// Open loop: connections without a request, and requests without a connection.
    idle: Vec<u32>,
    waiting: VecDeque<Nanos>,
    /// When each unanswered ping was sent.
    pings: VecDeque<Nanos>,
    responses: Waits,
    timeouts: u64,
    /// Requests for which there was no room.
    turned_away: u64,
    /// Open loop: requests under way when counting began; requests that were due since then, and since no more were
    /// under way than at first.
    first: usize,
    wished: u64,
    crowded: u64,
}

/// Packets that a client sends.
type Sent = Vec<Packet>;

impl Client {
    pub fn new(spec: &ClientSpec, index: u32, seed: u64) -> Self {
        Self {
            spec: spec.clone(),
            index,
            rng: Rng::of(seed, "client", u64::from(index)),
            connections: Vec::new(),
            there: false,
            due: None,
            idle: Vec::new(),
            waiting: VecDeque::new(),
            pings: VecDeque::new(),
            responses: Waits::default(),
            timeouts: 0,
            turned_away: 0,
            first: 0,
            wished: 0,
            crowded: 0,
        }
    }

    /// How much of [`super::NetworkParams::most_waiting`] it takes.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64 + u64::from(PING_ROOM) * self.pings.len() as u64
    }

    pub fn connect(&mut self, params: TcpParams, peer: End) -> u32 {
        let initiator = !matches!(self.spec.kind, ClientKind::Sink { .. });
        self.connections.push(Connection {
            tcp: Tcp::new(params, initiator).reading_at_once(),
            peer,
            request: None,
            due: None,
            stale: false,
            armed: None,
            left: CHUNK,
        });
        (self.connections.len() - 1) as u32
    }

    fn requests(&self) -> Option<&Requests> {
        match &self.spec.kind {
            ClientKind::Requests(requests) => Some(requests),
            _ => None,
        }
    }

    /// The client comes or goes, if it is time for that; to be called at the beginning and whenever the client asks for
    /// it.
    pub fn turn(&mut self, host: &mut Host, sent: &mut Sent) {
        let now = host.now();
        if let Some(at) = self.spec.presence.next_change(now) {
            let client = self.index;
            Wake::Turn { client }.at(host, at);
        }
        let there = self.spec.presence.at(now);
        if there == self.there {
            return;
        }
        self.there = there;
        match there {
            true => self.come(host, sent),
            false => self.go(host, sent),
        }
    }

    fn come(&mut self, host: &mut Host, sent: &mut Sent) {
        match &self.spec.kind {
            ClientKind::Requests(requests) => match requests.pace {
                Pace::Think(think) => {
                    for connection in 0..self.connections.len() as u32 {
                        self.think(host, connection, think);
                    }
                }
                Pace::Gap(gap) => {
                    // The last is used first: number them from the back.
                    self.idle = (0..self.connections.len() as u32).rev().collect();
                    self.think(host, 0, Some(gap));
                }
            },
            ClientKind::Ping { interval, .. } => self.think(host, 0, Some(*interval)),
            ClientKind::Stream { .. } => {
                for connection in 0..self.connections.len() as u32 {
                    self.connections[connection as usize].tcp.open();
                    self.flush(host, connection, sent);
                }
            }
            ClientKind::Sink { .. } => {}
        }
    }

    /// The client is killed: what is under way is given up, and not counted.
    fn go(&mut self, host: &mut Host, sent: &mut Sent) {
        self.due = None;
        self.waiting.clear();
        let streams = matches!(self.spec.kind, ClientKind::Stream { .. });
        for connection in 0..self.connections.len() as u32 {
            let slot = &mut self.connections[connection as usize];
            slot.due = None;
            slot.stale = true;
            if slot.request.take().is_some() || streams {
                // Opening stands for the reset that its kernel sends the server: replies have nowhere to go.
                slot.tcp.open();
                slot.left = CHUNK;
                self.flush(host, connection, sent);
            }
        }
    }

    /// When [`Client::next`] is due: for a connection in a closed loop, else for the client.
    fn due(&mut self, connection: u32) -> &mut Option<Nanos> {
        match self.requests().map(|requests| requests.pace) {
            Some(Pace::Think(_)) => &mut self.connections[connection as usize].due,
            _ => &mut self.due,
        }
    }

    /// Lets [`Client::next`] be called after a time.
    fn think(&mut self, host: &mut Host, connection: u32, time: Option<Length>) {
        let time = time.map_or(0, |time| time.draw(&mut self.rng));
        let (client, at) = (self.index, host.now() + time);
        *self.due(connection) = Some(at);
        Wake::Next { client, connection }.at(host, at);
    }

    /// The time for the next request or ping has come, unless the client went meanwhile.
    /// `room`: how much of [`Client::waiting`] there is room for.
    pub fn next(&mut self, host: &mut Host, connection: u32, room: u64, sent: &mut Sent) {
        let now = host.now();
        if self.due(connection).take_if(|due| *due == now).is_none() {
            return;
        }
        match &self.spec.kind {
            ClientKind::Ping { interval, .. } => {
                let interval = *interval;
                match room < u64::from(PING_ROOM) {
                    true => self.turn_away(),
                    false => self.ping(now, sent),
                }
                self.think(host, 0, Some(interval));
            }
            ClientKind::Requests(requests) => match requests.pace {
                Pace::Think(_) => self.request(host, connection, now, sent),
                Pace::Gap(gap) => {
                    self.wished += 1;
                    self.crowded = match self.under_way() > self.first {
                        true => self.crowded + 1,
                        false => 0,
                    };
                    match self.idle.pop() {
                        Some(idle) => self.request(host, idle, now, sent),
                        None => self.wait(now, room),
                    }
                    self.think(host, 0, Some(gap));
                }
            },
            ClientKind::Sink { .. } | ClientKind::Stream { .. } => {}
        }
    }

    /// A request waits for a connection, unless there is no room for it.
    fn wait(&mut self, now: Nanos, room: u64) {
        let before = self.waiting.len();
        if room == 0 {
            self.forget_late(now);
        }
        match room == 0 && self.waiting.len() == before {
            true => self.turn_away(),
            false => self.waiting.push_back(now),
        }
    }

    fn turn_away(&mut self) {
        self.timeouts += 1;
        self.turned_away += 1;
    }

    /// Gives up requests that have waited for longer than their timeout.
    fn forget_late(&mut self, now: Nanos) {
        let Some(timeout) = self.requests().and_then(|requests| requests.timeout) else {
            return;
        };
        let late = |since: &Nanos| *since + timeout <= now;
        while self.waiting.front().is_some_and(late) {
            self.waiting.pop_front();
            self.timeouts += 1;
        }
    }

    fn ping(&mut self, now: Nanos, sent: &mut Sent) {
        self.pings.push_back(now);
        sent.push(Packet {
            to: End::Guest {
                vm: self.spec.vm.0,
                endpoint: self.index,
            },
            body: Body::Echo { sent: now },
        });
    }

    /// Sends a request that was wanted at `since`.
    fn request(&mut self, host: &mut Host, connection: u32, since: Nanos, sent: &mut Sent) {
        let Some(requests) = self.requests() else {
            return;
        };
        let (size, timeout, fresh) = (requests.size, requests.timeout, !requests.keep_alive);
        let slot = &mut self.connections[connection as usize];
        if fresh || slot.stale || slot.tcp.is_closed() {
            slot.stale = false;
            slot.tcp.open();
        }
        slot.tcp.write(size, true);
        slot.request = Some(since);
        if let Some(timeout) = timeout {
            let client = self.index;
            Wake::Patience { client, connection }.at(host, since + timeout);
        }
        self.flush(host, connection, sent);
    }

    /// Sends what TCP allows, and sets its timer.
    fn flush(&mut self, host: &mut Host, connection: u32, sent: &mut Sent) {
        let now = host.now();
        let slot = &mut self.connections[connection as usize];
        if self.there && matches!(self.spec.kind, ClientKind::Stream { .. }) {
            slot.fill();
        }
        while let Some(segment) = slot.tcp.next_packet(now) {
            sent.push(slot.packet(segment));
        }
        if let Some(at) = slot.tcp.timer_at()
            && slot.armed.is_none_or(|armed| armed > at)
        {
            slot.armed = Some(at);
            let client = self.index;
            Wake::ClientRto { client, connection }.at(host, at);
        }
    }

    /// TCP's timer went off; meanwhile it may have been set anew for later.
    pub fn timed_out(&mut self, host: &mut Host, connection: u32, sent: &mut Sent) {
        let now = host.now();
        let slot = &mut self.connections[connection as usize];
        if slot.armed != Some(now) {
            return;
        }
        slot.armed = None;
        if let Some(ack) = slot.tcp.timer(now) {
            sent.push(slot.packet(ack));
        }
        self.flush(host, connection, sent);
    }

    pub fn receive(&mut self, host: &mut Host, connection: u32, body: &Body, sent: &mut Sent) {
        match body {
            Body::Echo { sent: at } => self.pong(host.now(), *at),
            Body::Tcp(segment) => {
                let slot = &mut self.connections[connection as usize];
                let received = slot.tcp.receive(host.now(), segment);
                self.received(host, connection, received, sent);
            }
        }
    }

    fn received(&mut self, host: &mut Host, connection: u32, received: Received, sent: &mut Sent) {
        let slot = &mut self.connections[connection as usize];
        if let Some(answer) = received.answer {
            sent.push(slot.packet(answer));
        }
        if received.messages > 0
            && let Some(since) = slot.request.take()
        {
            self.responses.record(host.now() - since);
            self.after(host, connection, sent);
        }
        self.flush(host, connection, sent);
    }

    /// A request is over; what does its connection do next?
    fn after(&mut self, host: &mut Host, connection: u32, sent: &mut Sent) {
        let Some(requests) = self.requests() else {
            return;
        };
        if let Pace::Think(think) = requests.pace {
            return self.think(host, connection, think);
        }
        self.forget_late(host.now());
        match self.waiting.pop_front() {
            Some(since) => self.request(host, connection, since, sent),
            None => self.idle.push(connection),
        }
    }

    /// A request's time is up; is it still under way?
    pub fn give_up(&mut self, host: &mut Host, connection: u32, sent: &mut Sent) {
        let timeout = self.requests().and_then(|requests| requests.timeout);
        let slot = &mut self.connections[connection as usize];
        let late = |since: Nanos| timeout.is_some_and(|timeout| since + timeout <= host.now());
        if !slot.request.is_some_and(late) {
            return;
        }
        slot.request = None;
        slot.tcp.open();
        self.timeouts += 1;
        self.flush(host, connection, sent);
        self.after(host, connection, sent);
    }

    fn pong(&mut self, now: Nanos, sent: Nanos) {
        let ClientKind::Ping { timeout, .. } = self.spec.kind else {
            return;
        };
        // They come back in the order they were sent.
        self.pings.pop_front();
        match now - sent {
            time if time > timeout => self.timeouts += 1,
            time => self.responses.record(time),
        }
    }

    pub fn reset(&mut self) {
        self.responses = Waits::default();
        self.timeouts = 0;
        self.turned_away = 0;
        self.wished = 0;
        self.crowded = 0;
        self.first = self.under_way();
        for connection in &mut self.connections {
            connection.tcp.retransmissions = 0;
            connection.tcp.delivered = 0;
        }
    }

    /// Open loop: requests without a reply.
    fn under_way(&self) -> usize {
        match self.there {
            true => self.waiting.len() + self.connections.len() - self.idle.len(),
            false => 0,
        }
    }

    /// Open loop: does the VM answer less than is sent, so that ever more requests wait? To tell that from a crowd that
    /// comes and goes: for at least half of the time more were under way than at first, and in the end more than a
    /// fiftieth of all and more than chance explains, which is about the square root.
    fn overloaded(&self) -> bool {
        let all = self.wished;
        let more = self.under_way().saturating_sub(self.first) as u64 + self.turned_away;
        let lasts = 2 * self.crowded >= all;
        all > 0 && lasts && 50 * more > all && more.saturating_mul(more) > 9 * all
    }

    pub fn outcome(&self, now: Nanos) -> ClientOutcome {
        let overdue = match self.spec.kind {
            ClientKind::Ping { timeout, .. } => {
                let late = |sent: &&Nanos| now - **sent > timeout;
                self.pings.iter().filter(late).count() as u64
            }
            _ => 0,
        };
        let tcps = || self.connections.iter().map(|connection| &connection.tcp);
        ClientOutcome {
            name: self.spec.name.clone(),
            kind: match &self.spec.kind {
                ClientKind::Requests(requests) => match requests.pace {
                    Pace::Think(_) => "closed loop",
                    Pace::Gap(_) => "open loop",
                },
                ClientKind::Ping { .. } => "ping",
                ClientKind::Sink { .. } => "sink",
                ClientKind::Stream { .. } => "stream",
            },
            vm: self.spec.vm,
            responses: self.responses.clone(),
            timeouts: self.timeouts + overdue,
            turned_away: self.turned_away,
            wished: self.wished,
            overloaded: self.overloaded(),
            retransmissions: tcps().map(|tcp| tcp.retransmissions).sum(),
            bytes: tcps().map(|tcp| tcp.delivered).sum(),
        }
    }
}

impl Connection {
    fn packet(&self, segment: super::Segment) -> Packet {
        Packet {
            to: self.peer,
            body: Body::Tcp(segment),
        }
    }

    /// Writes as much of a stream as there is room for.
    fn fill(&mut self) {
        while self.tcp.room() > 0 {
            let bytes = self.tcp.room().min(self.left);
            self.left -= bytes;
            self.tcp.write(bytes, self.left == 0);
            if self.left == 0 {
                self.left = CHUNK;
            }
        }
    }
}
