// SPDX-License-Identifier: GPL-2.0-only
//! From a scenario's network, clients and channels to the simulator's. Workloads that serve bring
//! clients along; a scenario's own take their place port by port.

use super::schedulers::set;
use corun_model::time::{self, SEC, US};
use corun_model::{Nanos, Presence, counted};
use corun_report::{ClientResult, Run, Spread};
use corun_scenario::{
    Case, Channel, Client, ClientKind as Kind, Located, Problem, Problems, Requests as Said,
};
use corun_sim::device::net::{
    ChannelSpec, ClientKind, ClientOutcome, ClientSpec, MOST_WAITING, NetworkParams, NetworkSpec,
    Pace, Requests,
};
use corun_sim::workload::{Length, Preset, PresetClient, Vary, parse_size, preset};
use std::fmt::Display;

/// Bytes of a request if the scenario does not say: a line and a few headers of HTTP.
const REQUEST: u64 = 512;
/// Patience of `ping`: -W 10.
const PING_TIMEOUT: u64 = 10 * SEC;
/// The least between two pings: as many a second as an open client may send at most. A guest takes longer for one.
const SHORTEST_INTERVAL: Nanos = US;
/// Between two pings: ping's default.
const PING_INTERVAL: Length = Length {
    mean: SEC,
    vary: Vary::Fixed,
};

/// The network of a case.
///
/// # Errors
/// Sizes and lengths that cannot be read.
pub fn spec(case: &Case) -> Result<NetworkSpec, Problems> {
    let mut problems = Problems::default();
    let params = params(case).unwrap_or_else(|problem| {
        problems.push(problem);
        NetworkParams::default()
    });
    let mut clients = Vec::new();
    for client in &case.clients {
        match kind(client) {
            Ok(kind) => clients.push(ClientSpec {
                name: client.name.clone(),
                vm: client.vm.into(),
                kind,
                presence: client.presence,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    clients.extend(of_workloads(case));
    let channels = case.channels.iter().map(|channel| ChannelSpec {
        name: channel.name.clone(),
        from: (channel.from.0.into(), channel.from.1.clone()),
        to: (channel.to.0.into(), channel.to.1.clone()),
    });
    let channels = channels.collect();
    problems.or_ok(NetworkSpec {
        params,
        clients,
        channels,
    })
}

/// The VMs, by number, whose clients or callers wait for replies, so that they have response times.
///
/// # Errors
/// As for [`spec`].
pub fn who_answers(case: &Case) -> Result<Vec<usize>, Problems> {
    let spec = spec(case)?;
    let waits = |client: &&ClientSpec| {
        !matches!(
            client.kind,
            ClientKind::Sink { .. } | ClientKind::Stream { .. }
        )
    };
    let clients = spec.clients.iter().filter(waits);
    let clients = clients.map(|client| client.vm.index());
    let called = spec.channels.iter().map(|channel| channel.to.0.index());
    Ok(clients.chain(called).collect())
}

/// The clients that workloads bring along, for ports to which the scenario gives no client or channel.
fn of_workloads(case: &Case) -> Vec<ClientSpec> {
    let mut all = Vec::new();
    for (at, vm) in case.vms.iter().enumerate() {
        let mut brought: Vec<PresetClient> = Vec::new();
        for workload in &vm.demand.workloads {
            // Unknown names are reported where threads are made.
            let preset = preset(&workload.preset.value);
            let clients = preset.iter().flat_map(Preset::clients);
            brought.extend(clients.filter(|client| !is_served(case, at, client)));
        }
        for (number, client) in brought.iter().enumerate() {
            let name = match brought.len() {
                1 => format!("clients of {}", vm.name),
                _ => format!("clients {} of {}", number + 1, vm.name),
            };
            all.push(ClientSpec {
                name,
                vm: at.into(),
                kind: client.kind(),
                presence: Presence::default(),
            });
        }
    }
    all
}

/// Does the scenario itself have a client or channel where this client of a workload would be?
fn is_served(case: &Case, vm: usize, client: &PresetClient) -> bool {
    let own = |said: &&Client| said.vm == vm;
    let port = |said: &Client| match &said.kind {
        Kind::Closed { requests, .. } | Kind::Open { requests, .. } => {
            requests.port.value == client.port
        }
        Kind::Sink { port } | Kind::Stream { port, .. } => port.value == client.port,
        Kind::Ping { .. } => client.port.is_empty(),
    };
    let called = |channel: &Channel| channel.to.0 == vm && channel.to.1 == client.port;
    case.clients.iter().filter(own).any(port) || case.channels.iter().any(called)
}

/// Clients that had more requests waiting than can be kept, and what that means.
pub fn turned_away(clients: &[ClientOutcome], case: &str) -> Vec<String> {
    let crowded = clients.iter().filter(|client| client.turned_away > 0);
    let told = |client: &ClientOutcome| {
        let case = in_case(case);
        let (what, remedy) = match client.kind {
            "ping" => ("pings were under way", "a longer `interval`"),
            _ => (
                "requests waited for a connection",
                "a lower `rate`, a `timeout`, or `kind = \"closed\"`",
            ),
        };
        format!(
            "client {:?}{case}: more {what} than can be kept ({MOST_WAITING} requests, of all clients), and any beyond \
             that count as given up: its VM answers fewer than it sends, so that ever more wait; {remedy} ends that",
            client.name
        )
    };
    crowded.map(told).collect()
}

/// Says that clients of a case come when the run is over, for people to know.
pub fn never_there(case: &Case) -> Option<String> {
    let end = case.run.warm_up.saturating_add(case.run.duration);
    let late = case.clients.iter();
    let mut late = late.filter(|client| client.presence.start >= end);
    let first = late.next()?;
    let others = match late.count() {
        0 => String::new(),
        others => format!(", and so {}", counted(others, "more client")),
    };
    Some(format!(
        "client {:?}{} never comes: its start is {}, the run ends at {}{others}",
        first.name,
        in_case(&case.name),
        time::show(first.presence.start),
        time::show(end)
    ))
}

/// With more such clients of a case than this, one note covers all.
const NAMED: usize = 2;

/// Whose response times say nothing, since their VM answers less than they send; with the policies under which that is
/// so, and medians over the seeds.
pub fn overloaded(runs: &[Run]) -> Vec<String> {
    let mut cases: Vec<(&str, Vec<&str>)> = Vec::new();
    for run in runs {
        for client in run.clients.iter().filter(|client| client.overloaded) {
            let known = cases.iter().position(|(case, _)| *case == run.case);
            let at = known.unwrap_or_else(|| {
                cases.push((&run.case, Vec::new()));
                cases.len() - 1
            });
            let names = &mut cases[at].1;
            if !names.contains(&client.name.as_str()) {
                names.push(&client.name);
            }
        }
    }
    let told = |(case, names): &(&str, Vec<&str>)| -> Vec<String> {
        let said = |who: String, name: &str| {
            format!(
                "{who}{}: fewer requests per second are answered than sent: {}; ever more wait, so that \
                 response times grow with the run's length and say nothing",
                in_case(case),
                answered(runs, case, name)
            )
        };
        match names[..] {
            [first, ..] if names.len() > NAMED => {
                vec![said(
                    format!("{} clients, such as {first:?}", names.len()),
                    first,
                )]
            }
            _ => names
                .iter()
                .map(|name| said(format!("client {name:?}"), name))
                .collect(),
        }
    };
    cases.iter().flat_map(told).collect()
}

/// How many requests per second of a client were answered, of how many, where they were too few.
fn answered(runs: &[Run], case: &str, name: &str) -> String {
    let mut policies: Vec<(&str, Vec<&ClientResult>)> = Vec::new();
    for run in runs.iter().filter(|run| run.case == case) {
        let of = |client: &&ClientResult| client.name == name && client.overloaded;
        let clients = run.clients.iter().filter(of);
        match policies
            .iter_mut()
            .find(|(policy, _)| *policy == run.policy)
        {
            Some((_, seen)) => seen.extend(clients),
            None => policies.push((&run.policy, clients.collect())),
        }
    }
    let median = |seen: &[&ClientResult], of: fn(&ClientResult) -> Option<f64>| {
        let all = seen.iter().filter_map(|client| of(client));
        Spread::of(all).map_or(0.0, |spread| spread.median)
    };
    let under = policies.iter().filter(|(_, seen)| !seen.is_empty());
    let under = under.map(|(policy, seen)| {
        let answered = median(seen, |client| client.replies_per_s);
        let sent = median(seen, |client| client.sent_per_s);
        format!("{answered:.0} of {sent:.0} under {policy}")
    });
    under.collect::<Vec<_>>().join(", ")
}

fn in_case(case: &str) -> String {
    match case {
        "" => String::new(),
        name => format!(" (case {name:?})"),
    }
}

fn params(case: &Case) -> Result<NetworkParams, Problem> {
    let (said, mut params) = (&case.network, NetworkParams::default());
    let megabits = said
        .bandwidth
        .map(|bandwidth| u64::from(bandwidth) * 1_000_000);
    set(&mut params.bandwidth, megabits);
    set(&mut params.latency, said.latency);
    set(&mut params.vhost, said.vhost);
    set(&mut params.tcp.min_rto, said.tcp_min_rto);
    set(&mut params.tcp.first_rto, said.tcp_first_rto);
    set(&mut params.tcp.ack_delay, said.tcp_ack_delay);
    set(&mut params.tcp.undo, said.tcp_undo);
    let window = read(said.tcp_window.as_ref(), parse_size)?;
    if let (Some(said), Some(window)) = (&said.tcp_window, window)
        && !(64 << 10..=6 << 20).contains(&window)
    {
        let message = format!("found {:?}, expected a size from 64KB to 6MB", said.value);
        return Err(said.problem(message));
    }
    set(&mut params.tcp.window, window);
    Ok(params)
}

/// Reads a text of the scenario, in the words of programs.
fn read<T, E: Display>(
    said: Option<&Located<String>>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, Problem> {
    let one = |said: &Located<String>| {
        parse(&said.value).map_err(|error| said.problem(error.to_string()))
    };
    said.map(one).transpose()
}

fn kind(client: &Client) -> Result<ClientKind, Problem> {
    Ok(match &client.kind {
        Kind::Closed { requests, think } => {
            let think = read(think.as_ref(), Length::parse)?;
            ClientKind::Requests(self::requests(requests, Pace::Think(think))?)
        }
        Kind::Open {
            requests,
            rate,
            exponential,
        } => {
            let vary = match exponential {
                true => Vary::Exponential,
                false => Vary::Fixed,
            };
            let mean = SEC / u64::from(*rate);
            let pace = Pace::Gap(Length { mean, vary });
            ClientKind::Requests(self::requests(requests, pace)?)
        }
        Kind::Ping { interval, timeout } => ClientKind::Ping {
            interval: self::interval(interval.as_ref())?,
            timeout: timeout.unwrap_or(PING_TIMEOUT),
        },
        Kind::Sink { port } => ClientKind::Sink {
            port: port.value.clone(),
        },
        Kind::Stream { port, connections } => ClientKind::Stream {
            port: port.value.clone(),
            connections: *connections,
        },
    })
}

fn interval(said: Option<&Located<String>>) -> Result<Length, Problem> {
    let read = read(said, Length::parse)?.unwrap_or(PING_INTERVAL);
    match said.filter(|_| read.mean < SHORTEST_INTERVAL) {
        Some(said) => {
            let message = format!("found {:?}, expected at least 1us", said.value);
            Err(said.problem(message))
        }
        None => Ok(read),
    }
}

fn requests(said: &Said, pace: Pace) -> Result<Requests, Problem> {
    Ok(Requests {
        port: said.port.value.clone(),
        connections: said.connections,
        pace,
        size: read(said.size.as_ref(), parse_size)?.unwrap_or(REQUEST),
        timeout: said.timeout,
        keep_alive: said.keep_alive,
    })
}
