// SPDX-License-Identifier: GPL-2.0-only
//! The sections about the network: `[network]`, `[client.NAME]`, `[channel.NAME]`.

use crate::limits;
use crate::names;
use crate::problem::Located;
use crate::reader::Reader;
use crate::settings::Vm;
use crate::suggest::or_nearest;
use crate::vms::Vms;
use corun_model::time::{self, LONGEST, MS, SEC, US};
use corun_model::{Nanos, Presence};

/// `[network]`.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Of the NIC, Mbit/s.
    pub bandwidth: Option<u32>,
    /// One way to the clients.
    pub latency: Option<Nanos>,
    /// Between guest and host.
    pub vhost: Option<Nanos>,
    /// Lower bound of the variance in TCP's time-out.
    pub tcp_min_rto: Option<Nanos>,
    /// Time-out of a connection's first packet.
    pub tcp_first_rto: Option<Nanos>,
    /// Window of receivers and senders: a size.
    pub tcp_window: Option<Located<String>>,
    /// The longest that an ACK waits for something to be sent with.
    pub tcp_ack_delay: Option<Nanos>,
    /// Are spurious time-outs undone?
    pub tcp_undo: Option<bool>,
}

/// `[client.NAME]`, one for each VM that `vm` stands for.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// The VM's name as it was written; problems with the client are reported there.
    pub said_vm: Located<String>,
    /// The VM: its place in the list of VMs.
    pub vm: usize,
    /// What it does.
    pub kind: ClientKind,
    /// When it is present.
    pub presence: Presence,
}

/// What a client does. Ports are names that programs use; sizes and lengths are texts as in
/// programs.
#[derive(Clone, Debug)]
pub enum ClientKind {
    /// `kind = "closed"`.
    Closed {
        /// What both kinds of requests have.
        requests: Requests,
        /// From a reply to the next request: a length; `None`: at once.
        think: Option<Located<String>>,
    },
    /// `kind = "open"`.
    Open {
        /// What both kinds of requests have.
        requests: Requests,
        /// Requests per second.
        rate: u32,
        /// Are the gaps between them exponentially distributed, rather than equal?
        exponential: bool,
    },
    /// `kind = "ping"`.
    Ping {
        /// From one to the next: a length.
        interval: Option<Located<String>>,
        /// Time after which a ping counts as lost.
        timeout: Option<Nanos>,
    },
    /// `kind = "sink"`.
    Sink {
        /// The port.
        port: Located<String>,
    },
    /// `kind = "stream"`.
    Stream {
        /// The port.
        port: Located<String>,
        /// Number of connections.
        connections: u32,
    },
}

/// A client's requests.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The port.
    pub port: Located<String>,
    /// The most requests at a time.
    pub connections: u32,
    /// Of a request: a size.
    pub size: Option<Located<String>>,
    /// Time after which a request is given up.
    pub timeout: Option<Nanos>,
    /// Do connections outlive their request?
    pub keep_alive: bool,
}

/// `[channel.NAME]`, one for each VM that `from` stands for.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its name.
    pub name: String,
    /// `from` as it was written; problems with the channel are reported there.
    pub said_from: Located<String>,
    /// The VM that calls (its place in the list) and its port.
    pub from: (usize, String),
    /// The VM that is called and its port.
    pub to: (usize, String),
    /// `to` as it was written.
    pub said_to: Located<String>,
}

/// Latencies: with more than a second it is no network.
const LATENCY: std::ops::RangeInclusive<Nanos> = 0..=SEC;
/// Time-outs of TCP.
const RTO: std::ops::RangeInclusive<Nanos> = MS..=60 * SEC;
/// An ACK's delay: `TCP_DELACK_MAX` at most.
const ACK_DELAY: std::ops::RangeInclusive<Nanos> = 0..=200 * MS;
/// How long a client waits.
const PATIENCE: std::ops::RangeInclusive<Nanos> = US..=LONGEST;

pub(crate) fn network(table: Option<Reader<'_>>) -> Network {
    let Some(table) = table else {
        return Network::default();
    };
    let network = Network {
        bandwidth: table.whole("bandwidth", 1..=1_000_000),
        latency: table.duration("latency", LATENCY),
        vhost: table.duration("vhost", LATENCY),
        tcp_min_rto: table.duration("tcp_min_rto", RTO),
        tcp_first_rto: table.duration("tcp_first_rto", RTO),
        tcp_window: table.located("tcp_window"),
        tcp_ack_delay: table.duration("tcp_ack_delay", ACK_DELAY),
        tcp_undo: table.flag("tcp_undo"),
    };
    table.finish();
    network
}

/// The VMs that a name stands for: the one of that name, or those that a `count` made of it.
fn meant(vms: &[Vm], name: &str) -> Vec<usize> {
    let all = || vms.iter().enumerate();
    if let Some((at, _)) = all().find(|(_, vm)| vm.name == name) {
        return vec![at];
    }
    let of_it = all().filter(|(_, vm)| vm.table == name);
    of_it.map(|(at, _)| at).collect()
}

/// As [`meant`]; none is a problem.
fn some_meant(table: &Reader<'_>, key: &str, vms: &Vms<'_>, name: &str) -> Vec<usize> {
    let found = meant(&vms.read, name);
    if found.is_empty() {
        vms.is_unknown(table, key, name);
    }
    found
}

/// What is made for a VM that a `count` made is named after that VM, too: whatever the count is, so that names stay
/// when it changes.
fn name_for(name: &str, vm: &Vm, said: &str) -> String {
    match vm.name == said {
        true => name.to_string(),
        false => format!("{name} {}", vm.name),
    }
}

/// All clients.
pub(crate) fn clients(top: &Reader<'_>, vms: &Vms<'_>) -> Vec<Client> {
    let mut all = Vec::new();
    for (name, table) in top.named("client") {
        names::check(&table, name);
        let said = table.required("vm", "the name of the VM that serves it");
        let kind = kind(&table);
        let presence = presence(&table);
        if let Some(said_vm) = said {
            let places = some_meant(&table, "vm", vms, &said_vm.value);
            let client = |&vm: &usize| {
                Some(Client {
                    name: name_for(name, &vms.read[vm], &said_vm.value),
                    said_vm: said_vm.clone(),
                    vm,
                    kind: kind.clone()?,
                    presence,
                })
            };
            for client in places.iter().filter_map(client) {
                if all.iter().any(|other: &Client| other.name == client.name) {
                    let message = format!("there is a client {:?} already", client.name);
                    table.problem_here(message);
                }
                all.push(client);
            }
        }
        table.finish();
    }
    all
}

const KINDS: [&str; 5] = ["closed", "open", "ping", "sink", "stream"];

/// Keys of clients, and the kinds that heed them.
const HEEDED: [(&str, &[&str]); 13] = [
    ("port", &["closed", "open", "sink", "stream"]),
    ("connections", &["closed", "open", "stream"]),
    ("think", &["closed"]),
    ("rate", &["open"]),
    ("gaps", &["open"]),
    ("size", &["closed", "open"]),
    ("timeout", &["closed", "open", "ping"]),
    ("keep_alive", &["closed", "open"]),
    ("interval", &["ping"]),
    ("start", &["closed", "open", "ping", "stream"]),
    ("stop", &["closed", "open", "ping", "stream"]),
    ("on", &["closed", "open", "ping", "stream"]),
    ("off", &["closed", "open", "ping", "stream"]),
];

/// Reports keys that a client of this kind would not heed. If there is no such kind, no key is refused for that.
fn foreign(table: &Reader<'_>, said: &str) {
    let known = KINDS.contains(&said);
    for (key, kinds) in HEEDED {
        if table.find(key).is_some() && known && !kinds.contains(&said) {
            let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
            let kinds = kinds.join(" or ");
            let message = format!("goes with kind = {kinds}, but here it is {said:?}");
            table.problem(key, message);
        }
    }
}

fn kind(table: &Reader<'_>) -> Option<ClientKind> {
    let said = table.required("kind", "closed, open, ping, sink or stream");
    foreign(table, said.as_ref().map_or("", |said| &said.value));
    let said = said?;
    let port = || table.required("port", "the name of a port that programs of the VM use");
    match said.value.as_str() {
        "closed" => Some(ClientKind::Closed {
            think: table.located("think"),
            requests: requests(table, 1)?,
        }),
        "open" => {
            let (rate, exponential) = (rate(table), exponential(table));
            Some(ClientKind::Open {
                requests: requests(table, 1000)?,
                rate: rate?,
                exponential: exponential?,
            })
        }
        "ping" => Some(ClientKind::Ping {
            interval: table.located("interval"),
            timeout: table.duration("timeout", PATIENCE),
        }),
        "sink" => Some(ClientKind::Sink { port: port()? }),
        "stream" => {
            let connections = connections(table, 1);
            Some(ClientKind::Stream {
                port: port()?,
                connections,
            })
        }
        other => {
            let hint = or_nearest(other, &KINDS);
            table.problem("kind", format!("found {other:?}, {hint}"));
            None
        }
    }
}

fn presence(table: &Reader<'_>) -> Presence {
    let start = table.duration("start", 0..=LONGEST).unwrap_or(0);
    let stop = table.duration("stop", US..=LONGEST);
    if let Some(at) = stop
        && at <= start
    {
        let (at, start) = (time::show(at), time::show(start));
        let message = format!("found {at}, expected later than start, {start}");
        table.problem("stop", message);
    }
    for (key, other) in [("on", "off"), ("off", "on")] {
        if table.has(key) && !table.has(other) {
            table.missing(other, &format!("a time, to go with `{key}`"));
        }
    }
    let on = table.duration("on", US..=LONGEST);
    let off = table.duration("off", US..=LONGEST);
    let turns = on.zip(off);
    Presence { start, stop, turns }
}

fn connections(table: &Reader<'_>, default: u32) -> u32 {
    let range = 1..=limits::CONNECTIONS;
    table.whole("connections", range).unwrap_or(default)
}

fn requests(table: &Reader<'_>, default_connections: u32) -> Option<Requests> {
    let connections = connections(table, default_connections);
    let size = table.located("size");
    let timeout = table.duration("timeout", PATIENCE);
    let keep_alive = table.flag("keep_alive").unwrap_or(true);
    let port = table.required("port", "the name of a port that programs of the VM use")?;
    Some(Requests {
        port,
        connections,
        size,
        timeout,
        keep_alive,
    })
}

fn rate(table: &Reader<'_>) -> Option<u32> {
    if !table.has("rate") {
        table.missing("rate", "requests per second");
    }
    table.whole("rate", 1..=1_000_000)
}

fn exponential(table: &Reader<'_>) -> Option<bool> {
    match table.text("gaps").as_deref() {
        None | Some("exponential") => Some(true),
        Some("fixed") => Some(false),
        Some(other) => {
            let hint = or_nearest(other, &["exponential", "fixed"]);
            table.problem("gaps", format!("found {other:?}, {hint}"));
            None
        }
    }
}

/// All channels.
pub(crate) fn channels(top: &Reader<'_>, vms: &Vms<'_>) -> Vec<Channel> {
    let mut all = Vec::new();
    for (name, table) in top.named("channel") {
        names::check(&table, name);
        let from = end(&table, "from", vms);
        let to = end(&table, "to", vms);
        if let (Some((said_from, froms, calls)), Some((said_to, tos, serves))) = (from, to) {
            if tos.len() > 1 {
                let names: Vec<&str> = tos.iter().map(|&vm| vms.read[vm].name.as_str()).collect();
                let message = format!("means several VMs, expected one of {}", names.join(", "));
                table.problem("to", message);
            }
            let channel = |&from: &usize| Channel {
                name: name_for(name, &vms.read[from], caller(&said_from.value)),
                said_from: said_from.clone(),
                from: (from, calls.clone()),
                to: (tos[0], serves.clone()),
                said_to: said_to.clone(),
            };
            for channel in froms.iter().map(channel) {
                if all.iter().any(|other: &Channel| other.name == channel.name) {
                    let message = format!("there is a channel {:?} already", channel.name);
                    table.problem_here(message);
                }
                all.push(channel);
            }
        }
        table.finish();
    }
    all
}

/// The VM in `web:dbreq`.
fn caller(said: &str) -> &str {
    said.split_once(':').map_or(said, |(vm, _)| vm)
}

/// An end of a channel: as written, the VMs that it stands for, the port.
fn end(
    table: &Reader<'_>,
    key: &'static str,
    vms: &Vms<'_>,
) -> Option<(Located<String>, Vec<usize>, String)> {
    let expected = "a VM and a port of its programs such as \"web:dbreq\"";
    let said = table.required(key, expected)?;
    let Some((vm, port)) = said.value.split_once(':') else {
        table.problem(key, format!("found {:?}, expected {expected}", said.value));
        return None;
    };
    let (places, port) = (some_meant(table, key, vms, vm), port.to_string());
    (!places.is_empty()).then_some((said, places, port))
}
