// SPDX-License-Identifier: GPL-2.0-only
//! AQL_Sched's rules (`corun_policies::aql`) as functions of checks. Numbers stand for types: 1 IOInt,
//! 2 ConSpin, 3 LLCF, 4 LLCO, 5 LoLCF, and with 6 IOInt+.

use super::functions::{Function, function};
use corun_model::time::MS;
use corun_model::{LlcSeen, PcpuId, PcpuSet, Signals, TaskId};
use corun_policies::aql::cluster::{Member, Pooled, cluster, level_1};
use corun_policies::aql::vtrs::{Cursors, FULL, PERIOD, WINDOW};
use corun_policies::aql::{Kind, Limits, Slices, Type};

/// Of Teabe, Tchana and Hagimont, EuroSys 2016.
pub const ALL: &[Function] = &[
    function("aql_period_ms", 0..=0, |_| PERIOD as f64 / MS as f64),
    function("aql_window", 0..=0, |_| WINDOW as f64),
    // A level and its limit: the IOInt cursor, %.
    function("aql_level_cursor", 2..=2, |of| {
        let seen = Signals {
            io_events: Some(of[0] as u64),
            ..Signals::default()
        };
        let limits = Limits {
            io_events: of[1] as u64,
            ..Limits::default()
        };
        percent(Cursors::of(&seen, None, &limits).io_int)
    }),
    // A type (3 to 5), references per million instructions and their limit, misses per million
    // references and theirs: the cursor, %.
    function("aql_cache_cursor", 5..=5, cache_cursor),
    // Numbers of IOInt, ConSpin, LLCF, LLCO and LoLCF vCPUs on one socket, its pCPUs, a slice in ms (0: all), and a
    // type: how many vCPUs of that type are in the pool with this slice; type 0: the pool's pCPUs.
    function("aql_pool", 8..=8, |of| {
        let sizes = of[..5].iter().map(|&count| count as usize);
        let members = members(&sizes.zip(TYPES).collect::<Vec<_>>());
        in_pool(&pools(&members, 1, of[5] as u32), 0, of[6], of[7])
    }),
    // Figure 3: a socket (1 to 3), a slice, a type: as above.
    function("aql_fig3", 3..=3, |of| {
        in_pool(&figure_3(), of[0] as usize - 1, of[1], of[2])
    }),
    // The vCPUs that Algorithm 1 gives to a socket of Figure 3.
    function("aql_fig3_socket", 1..=1, |of| {
        let sockets = level_1(&figure_3_members(), &sockets(3, 4), &[]);
        sockets
            .get((of[0] - 1.0) as usize)
            .map_or(f64::NAN, |it| it.len() as f64)
    }),
    function("aql_fig3_clusters", 0..=0, |_| figure_3().len() as f64),
    // Is a type (1 to 6) one that trashes the last-level cache?
    function("aql_trashes", 1..=1, |of| {
        let kind = TYPES.iter().chain([&PLUS]).nth((of[0] - 1.0) as usize);
        kind.map_or(f64::NAN, |of| f64::from(u8::from(of.trashes())))
    }),
    // The shipped slice of a type, ms; 0: agnostic.
    function("aql_slice_ms", 1..=1, |of| {
        let best = TYPES
            .get((of[0] - 1.0) as usize)
            .and_then(|of| Slices::default().best(of.kind));
        best.unwrap_or(0) as f64 / MS as f64
    }),
    // Sockets over which each of `vms` VMs of `vcpus` LLCF vCPUs is spread, at most: 3 sockets.
    function("aql_spread", 2..=2, |of| {
        spread(of[0] as usize, of[1] as usize)
    }),
];

const fn plain(kind: Kind) -> Type {
    Type { kind, plus: false }
}

const TYPES: [Type; 5] = [
    plain(Kind::IoInt),
    plain(Kind::ConSpin),
    plain(Kind::Llcf),
    plain(Kind::Llco),
    plain(Kind::LoLcf),
];
const PLUS: Type = Type {
    kind: Kind::IoInt,
    plus: true,
};

fn percent(cursor: u32) -> f64 {
    f64::from(cursor) * 100.0 / f64::from(FULL)
}

fn cache_cursor(of: &[f64]) -> f64 {
    const MILLION: u64 = 1_000_000;
    let references = of[1] as u64;
    let llc = LlcSeen {
        instructions: MILLION * MILLION,
        references: references * MILLION,
        misses: references * of[3] as u64,
    };
    let seen = Signals {
        llc: Some(llc),
        ..Signals::default()
    };
    let limits = Limits {
        llc_references: of[2] as u64,
        llc_misses: of[4] as u64,
        ..Limits::default()
    };
    let kind = TYPES.get((of[0] - 1.0) as usize);
    kind.map_or(f64::NAN, |of| {
        percent(Cursors::of(&seen, None, &limits).get(of.kind))
    })
}

/// This many of each, one after another; a hundred of each at most.
fn members(counts: &[(usize, Type)]) -> Vec<Member> {
    let types = counts
        .iter()
        .flat_map(|&(count, of)| vec![of; count.min(100)]);
    let member = |(task, of): (usize, Type)| Member {
        task: TaskId::from(task),
        of,
        weight: 100,
        bound: None,
    };
    types.enumerate().map(member).collect()
}

/// Sockets with this many pCPUs each.
fn sockets(count: u32, pcpus: u32) -> Vec<PcpuSet> {
    let socket = |at: u32| (at * pcpus..(at + 1) * pcpus).map(PcpuId).collect();
    (0..count).map(socket).collect()
}

fn pools(members: &[Member], count: u32, pcpus: u32) -> Vec<Pooled> {
    let sockets = sockets(count, pcpus.clamp(1, 64));
    cluster(members, &sockets, &[], &Slices::default(), &[])
}

/// The order of VMs is not stated; IOInt+ in socket 2 needs LLCO before some of them.
fn figure_3_members() -> Vec<Member> {
    let [_, spin, llcf, llco, _] = TYPES;
    members(&[(8, PLUS), (12, llco), (4, PLUS), (17, llcf), (7, spin)])
}

fn figure_3() -> Vec<Pooled> {
    pools(&figure_3_members(), 3, 4)
}

fn in_pool(pools: &[Pooled], socket: usize, slice_ms: f64, what: f64) -> f64 {
    let slice = (slice_ms * MS as f64) as u64;
    let meant = |pool: &&Pooled| pool.place.0 == socket && (slice == 0 || pool.slice == slice);
    let pools = pools.iter().filter(meant);
    let of = TYPES
        .iter()
        .chain([&PLUS])
        .nth((what - 1.0).max(0.0) as usize);
    let count = |pool: &Pooled| match what as u32 {
        0 => pool.pcpus.len() as usize,
        _ => pool
            .members
            .iter()
            .filter(|member| Some(&member.of) == of)
            .count(),
    };
    pools.map(count).sum::<usize>() as f64
}

/// VMs one after another, as Algorithm 1 orders them.
fn spread(vms: usize, vcpus: usize) -> f64 {
    let (vms, vcpus) = (vms.clamp(1, 100), vcpus.clamp(1, 100));
    let [_, _, llcf, ..] = TYPES;
    let members = members(&vec![(vcpus, llcf); vms]);
    let sockets = level_1(&members, &sockets(3, 4), &[]);
    let touched = |vm: usize| {
        let of = |member: &Member| member.task.index() / vcpus == vm;
        sockets
            .iter()
            .filter(|socket| socket.iter().any(of))
            .count()
    };
    (0..vms).map(touched).max().unwrap_or(0) as f64
}
