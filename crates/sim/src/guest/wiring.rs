// SPDX-License-Identifier: GPL-2.0-only
//! Connects ports of programs with clients and with other VMs, with the checks that need both: a
//! port that no program serves, a client that no program answers.

use super::net::Endpoint;
use super::{GuestError, Guests};
use crate::device::net::tcp::Tcp;
use crate::device::net::{
    ChannelSpec, ClientKind, ClientOutcome, ClientSpec, End, MOST_CONNECTIONS, NetworkSpec,
};
use crate::waits::Waits;
use crate::workload::{NUMBER, Op};
use corun_model::{Nanos, VmId};

type Wired<T> = Result<T, GuestError>;

/// What the threads of a VM do with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Request,
    Reply,
    Transmit,
}

/// Connects everything.
pub(super) fn wire(guests: &mut Guests, spec: &NetworkSpec) -> Wired<()> {
    check_network(spec)?;
    let mut wiring = Wiring {
        guests,
        spec,
        connections: 0,
    };
    for client in 0..spec.clients.len() {
        wiring.client(client)?;
    }
    for channel in &spec.channels {
        wiring.channel(channel)?;
    }
    wiring.check_ports()
}

fn check_network(spec: &NetworkSpec) -> Wired<()> {
    let (params, tcp) = (&spec.params, &spec.params.tcp);
    let window = 64 << 10..=6 << 20;
    let bandwidth = 1_000_000..=1_000_000_000_000;
    let second = 1_000_000_000;
    let fault = if !bandwidth.contains(&params.bandwidth) {
        format!(
            "bandwidth is {} bit/s; accepted: 1 Mbit/s to 1 Tbit/s",
            params.bandwidth
        )
    } else if !window.contains(&tcp.window) {
        format!(
            "tcp_window is {} bytes; accepted: 64 KiB to 6 MiB",
            tcp.window
        )
    } else if params.latency.max(params.vhost) > second {
        "latency and vhost are at most 1 s each".to_string()
    } else if tcp.min_rto.min(tcp.first_rto) == 0 || tcp.min_rto.max(tcp.first_rto) > 60 * second {
        "tcp_min_rto and tcp_first_rto are above 0 and at most 1 min".to_string()
    } else {
        return Ok(());
    };
    Err(GuestError::new("the network", fault))
}

struct Wiring<'a> {
    guests: &'a mut Guests,
    spec: &'a NetworkSpec,
    connections: u32,
}

impl Wiring<'_> {
    /// The threads of a VM that use a port in this way.
    fn users(&self, vm: VmId, port: u32, how: Use) -> Vec<u32> {
        let fits = |op: &Op| match op {
            Op::Request(at) => *at == port && how == Use::Request,
            Op::Reply(at, _) => *at == port && how == Use::Reply,
            Op::Transmit(at, _) => *at == port && how == Use::Transmit,
            _ => false,
        };
        let threads = self.guests.vms[vm.index()].threads.iter().enumerate();
        threads
            .filter(|(_, thread)| thread.code.ops().iter().any(fits))
            .map(|(index, _)| index as u32)
            .collect()
    }

    fn uses(&self, vm: VmId, port: u32, how: Use) -> bool {
        !self.users(vm, port, how).is_empty()
    }

    /// The number of a port that `subject` names.
    fn port(&self, subject: &str, vm: VmId, name: &str) -> Wired<u32> {
        let Some(known) = self.guests.vms.get(vm.index()) else {
            let message = format!(
                "it names VM number {vm}, but there are {}",
                self.guests.vms.len()
            );
            return Err(GuestError::new(subject, message));
        };
        let ports = &known.net.ports;
        if let Some(place) = ports.iter().position(|port| port.name == name) {
            return Ok(place as u32);
        }
        let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let known = match names.is_empty() {
            true => "none".to_string(),
            false => names.join(", "),
        };
        let vm = &self.guests.infos[vm.index()].name;
        let message = format!("no program of VM {vm} uses the port {name}; used are: {known}");
        Err(GuestError::new(subject, message))
    }

    /// An error unless some thread of the VM uses the port in this way.
    fn need(&self, subject: &str, of: VmId, port: u32, how: Use) -> Wired<()> {
        if self.uses(of, port, how) {
            return Ok(());
        }
        let name = &self.guests.vms[of.index()].net.ports[port as usize].name;
        let vm = &self.guests.infos[of.index()].name;
        let statement = match how {
            Use::Request => format!("request {name}"),
            Use::Reply => format!("reply {name} SIZE"),
            Use::Transmit => format!("transmit {name} SIZE"),
        };
        let mut message = format!("no program of VM {vm} has `{statement}`: add it to one");
        let others = self.ports_of(of, how);
        if !others.is_empty() {
            message += &format!(
                ", or name a port on which one does so: {}",
                others.join(", ")
            );
        }
        Err(GuestError::new(subject, message))
    }

    /// The ports that threads of a VM use in this way.
    fn ports_of(&self, vm: VmId, how: Use) -> Vec<&str> {
        let ports = self.guests.vms[vm.index()].net.ports.iter().enumerate();
        let used = ports.filter(|(port, _)| self.uses(vm, *port as u32, how));
        used.map(|(_, port)| port.name.as_str()).collect()
    }

    /// An error if the port, which takes requests, is one that threads `transmit` on.
    fn serves_only(&self, subject: &str, vm: VmId, port: u32) -> Wired<()> {
        if !self.uses(vm, port, Use::Transmit) {
            return Ok(());
        }
        let name = &self.guests.vms[vm.index()].net.ports[port as usize].name;
        let message = format!(
            "it sends requests to the port {name}, which programs `transmit` on; use two ports"
        );
        Err(GuestError::new(subject, message))
    }

    /// The number of a client's port.
    fn port_of(&self, client: &ClientSpec, subject: &str, name: &str) -> Wired<u32> {
        let found = self.port(subject, client.vm, name);
        found.map_err(|error| error.about("port"))
    }

    /// An error unless some thread uses the client's port in this way.
    fn need_of(&self, client: &ClientSpec, subject: &str, port: u32, how: Use) -> Wired<()> {
        let needed = self.need(subject, client.vm, port, how);
        needed.map_err(|error| error.about("port"))
    }

    fn client(&mut self, index: usize) -> Wired<()> {
        let spec = self.spec;
        let client = &spec.clients[index];
        let subject = format!("client {}", client.name);
        match &client.kind {
            ClientKind::Ping { .. } => {
                let vms = self.guests.vms.len();
                if client.vm.index() >= vms {
                    let message = format!("it names VM number {}, but there are {vms}", client.vm);
                    return Err(GuestError::new(subject, message));
                }
                Ok(())
            }
            ClientKind::Requests(requests) => {
                let uses = [Use::Request, Use::Reply];
                self.serve(
                    &subject,
                    index,
                    (&requests.port, requests.connections),
                    &uses,
                )
            }
            ClientKind::Stream { port, connections } => {
                self.serve(&subject, index, (port, *connections), &[Use::Request])
            }
            ClientKind::Sink { port } => {
                let port = self.port_of(client, &subject, port)?;
                self.need_of(client, &subject, port, Use::Transmit)?;
                if self.uses(client.vm, port, Use::Request) {
                    let message = "it receives only, but programs wait for its requests";
                    return Err(GuestError::new(subject, message));
                }
                for thread in self.users(client.vm, port, Use::Transmit) {
                    let endpoint = self.own(&subject, client.vm, port, thread, None)?;
                    let end = self.guests.network.connect(index, endpoint);
                    self.set_peer(endpoint, end);
                }
                Ok(())
            }
        }
    }

    /// Connects a client with the port that takes its requests, or with those of each connection.
    fn serve(
        &mut self,
        subject: &str,
        index: usize,
        (name, connections): (&str, u32),
        uses: &[Use],
    ) -> Wired<()> {
        if connections == 0 {
            return Err(GuestError::new(
                subject,
                "connections is 0; accepted: at least 1",
            ));
        }
        let spec = self.spec;
        let client = &spec.clients[index];
        let numbered = name.contains(NUMBER);
        let mut port = self.served(client, subject, name, 0, uses)?;
        for i in 0..connections {
            if numbered && i > 0 {
                port = self.served(client, subject, name, i, uses)?;
            }
            let endpoint = self.endpoint(subject, client.vm, port, false, None)?;
            let end = self.guests.network.connect(index, endpoint);
            self.set_peer(endpoint, end);
        }
        Ok(())
    }

    /// The number of the port of a client's `i`-th connection, which threads must use in these
    /// ways.
    fn served(
        &self,
        client: &ClientSpec,
        subject: &str,
        name: &str,
        i: u32,
        uses: &[Use],
    ) -> Wired<u32> {
        let name = name.replace(NUMBER, &i.to_string());
        let port = self.port_of(client, subject, &name)?;
        for how in uses {
            self.need_of(client, subject, port, *how)?;
        }
        self.serves_only(subject, client.vm, port)
            .map_err(|error| error.about("port"))?;
        Ok(port)
    }

    fn channel(&mut self, spec: &ChannelSpec) -> Wired<()> {
        let subject = format!("channel {}", spec.name);
        let (from, to) = (spec.from.0, spec.to.0);
        let of_to = |error: GuestError| error.about("to");
        let calls = self.port(&subject, from, &spec.from.1)?;
        let serves = self.port(&subject, to, &spec.to.1).map_err(of_to)?;
        if from == to {
            let message = "it begins and ends in the same VM; use a queue within a VM";
            return Err(GuestError::new(subject, message));
        }
        self.need(&subject, from, calls, Use::Transmit)?;
        self.need(&subject, to, serves, Use::Request)
            .map_err(of_to)?;
        self.serves_only(&subject, to, serves).map_err(of_to)?;
        if self.uses(from, calls, Use::Request) {
            self.need(&subject, to, serves, Use::Reply).map_err(of_to)?;
        }
        let number = self.guests.channels.len() as u32;
        for thread in self.users(from, calls, Use::Transmit) {
            let caller = self.own(&subject, from, calls, thread, Some(number))?;
            let server = self.endpoint(&subject, to, serves, false, Some(number))?;
            self.set_peer(caller, server);
            self.set_peer(server, caller);
        }
        self.guests.channels.push((spec.name.clone(), to));
        Ok(())
    }

    /// A thread's own connection from a port.
    fn own(
        &mut self,
        subject: &str,
        vm: VmId,
        port: u32,
        thread: u32,
        channel: Option<u32>,
    ) -> Wired<End> {
        let end = self.endpoint(subject, vm, port, true, channel)?;
        let sockets = &mut self.guests.vms[vm.index()].net;
        let slot = &mut sockets.ports[port as usize];
        let place = sockets.endpoints.len() as u32 - 1;
        if slot.own[thread as usize].replace(place).is_some() {
            let message = format!(
                "another client or channel has the port {} already",
                slot.name
            );
            return Err(GuestError::new(subject, message).about("port"));
        }
        Ok(end)
    }

    /// A new end of a connection in a VM; its peer is not known yet.
    fn endpoint(
        &mut self,
        subject: &str,
        vm: VmId,
        port: u32,
        owned: bool,
        channel: Option<u32>,
    ) -> Wired<End> {
        self.connections += 1;
        if self.connections > MOST_CONNECTIONS {
            let message = format!("with it there are more than {MOST_CONNECTIONS} connections");
            return Err(GuestError::new(subject, message));
        }
        let tcp = Tcp::new(self.spec.params.tcp, owned);
        let endpoints = &mut self.guests.vms[vm.index()].net.endpoints;
        let end = End::Guest {
            vm: vm.0,
            endpoint: endpoints.len() as u32,
        };
        endpoints.push(Endpoint::new(tcp, end, port, owned, channel));
        Ok(end)
    }

    fn set_peer(&mut self, of: End, peer: End) {
        if let End::Guest { vm, endpoint } = of {
            let endpoints = &mut self.guests.vms[vm as usize].net.endpoints;
            endpoints[endpoint as usize].peer = peer;
        }
    }

    /// What could be connected with a port that has no connection, in the words of scenarios.
    fn partner(&self, vm: VmId, port: u32) -> String {
        let name = &self.guests.vms[vm.index()].net.ports[port as usize].name;
        let own = &self.guests.infos[vm.index()].name;
        if !self.uses(vm, port, Use::Transmit) {
            return format!(
                "[client.NAME] with vm = \"{own}\" and port = \"{name}\", or [channel.NAME] with to = \
                 \"{own}:{name}\""
            );
        }
        let called = self.somebody_called(vm, name);
        let called = called.unwrap_or_else(|| "VM:PORT".to_string());
        let channel = format!("[channel.NAME] with from = \"{own}:{name}\" and to = \"{called}\"");
        match self.uses(vm, port, Use::Request) {
            true => channel,
            false => format!(
                "{channel}, or [client.NAME] with kind = \"sink\", vm = \"{own}\" and port = \"{name}\""
            ),
        }
    }

    /// A port of another VM that takes requests and that a caller of the port `name` is likely to
    /// mean: it has the same name, or nothing calls it yet.
    fn somebody_called(&self, by: VmId, name: &str) -> Option<String> {
        let others = (0..self.guests.vms.len())
            .map(VmId::from)
            .filter(|vm| *vm != by);
        let serving = others.flat_map(|vm| {
            let calls = self.ports_of(vm, Use::Transmit);
            let asked = self.ports_of(vm, Use::Request).into_iter();
            let served = asked.filter(move |port| !calls.contains(port));
            served.map(move |port| (vm, port))
        });
        let serving: Vec<(VmId, &str)> = serving.collect();
        let free = |(vm, port): &&(VmId, &str)| {
            let net = &self.guests.vms[vm.index()].net;
            !net.endpoints
                .iter()
                .any(|end| net.ports[end.port as usize].name == *port)
        };
        let same = serving.iter().find(|(_, port)| *port == name);
        let (vm, port) = same.or_else(|| serving.iter().find(free))?;
        Some(format!("{}:{port}", self.guests.infos[vm.index()].name))
    }

    /// Checks that every port is connected, and that threads that answer or wait have something to
    /// answer or wait for.
    fn check_ports(&self) -> Wired<()> {
        for (vm, known) in self.guests.vms.iter().enumerate() {
            let subject = format!("VM {}", self.guests.infos[vm].name);
            let vm = VmId::from(vm);
            for (port, slot) in known.net.ports.iter().enumerate() {
                let port = port as u32;
                let name = &slot.name;
                let asks = self.users(vm, port, Use::Request);
                let sends = self.users(vm, port, Use::Transmit);
                let answers = self.users(vm, port, Use::Reply);
                let error = |thread: Option<&u32>, message: String| {
                    let thread = thread.map(|thread| *thread as usize);
                    Err(GuestError::new(subject.clone(), message).of_thread(thread))
                };
                if !known.net.endpoints.iter().any(|end| end.port == port) {
                    let users = asks.iter().chain(&sends).chain(&answers);
                    let message = format!(
                        "the port {name} is used, but no client or channel connects to it: add {}",
                        self.partner(vm, port)
                    );
                    return error(users.min(), message);
                }
                let unasked = answers.iter().find(|thread| !asks.contains(thread));
                if unasked.is_some() {
                    let message = format!("a thread has `reply {name}` without `request {name}`");
                    return error(unasked, message);
                }
                let unsent = asks.iter().find(|thread| !sends.contains(thread));
                if !sends.is_empty() && unsent.is_some() {
                    let message = format!(
                        "a thread has `request {name}` without the `transmit {name}` of others"
                    );
                    return error(unsent, message);
                }
                if !sends.is_empty() && !answers.is_empty() {
                    let message = format!("`reply {name}` answers nothing that was asked");
                    return error(answers.first(), message);
                }
            }
        }
        Ok(())
    }
}

/// What clients and channels saw, put together from what each end knows.
pub(super) fn outcomes(guests: &Guests, now: Nanos) -> Vec<ClientOutcome> {
    let mut all = guests.network.outcomes(now);
    let clients = all.len();
    all.extend(guests.channels.iter().map(|(name, vm)| ClientOutcome {
        name: name.clone(),
        kind: "channel",
        vm: *vm,
        responses: Waits::default(),
        timeouts: 0,
        turned_away: 0,
        wished: 0,
        overloaded: false,
        retransmissions: 0,
        bytes: 0,
    }));
    for end in guests.vms.iter().flat_map(|vm| &vm.net.endpoints) {
        let outcome = match (end.peer, end.channel) {
            (End::Client { client, .. }, _) => &mut all[client as usize],
            (End::Guest { .. }, Some(channel)) => &mut all[clients + channel as usize],
            (End::Guest { .. }, None) => continue,
        };
        end.add_to(outcome);
    }
    all
}
