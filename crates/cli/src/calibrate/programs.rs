// SPDX-License-Identifier: GPL-2.0-only
//! What calibration runs: AQL_Sched's benchmarks (Table 1) fitted to a machine.
//!
//! The paper has a web application whose scripts keep its vCPU busy (IOInt), Kernbench with four
//! threads (ConSpin), and a linked list of half the last-level cache (LLCF), 90 % of the L2 (LoLCF) or
//! more than the last-level cache (LLCO). What they do at which pace is as in
//! `experiments/emergence/slices.toml`, with its sources; a list's pace follows the machine's
//! latencies. Neighbours are of all types in turn ("various workload types").

use corun_policies::aql::{Kind, Machine};
use corun_sim::host::HostParams;
use std::fmt::Write;

/// Slices in ms: the paper's four, and Xen's.
pub const SLICES: [u64; 5] = [1, 10, 30, 60, 90];
/// The place of Xen's 30 ms, which all are relative to.
pub const DEFAULT: usize = 2;
/// vCPUs per pCPU (§3.4.1).
pub const CONSOLIDATION: [u32; 3] = [2, 3, 4];
/// Runs of each case. pCPUs whose slices are equally long keep their phases relative to each other, so it depends on
/// the seed who runs beside a subject all the time, and many short runs say more than a few long ones.
pub const SEEDS: u64 = 24;

/// The machine of Table 2: an i7-3770, whose four cores the scenarios of Table 4 use without SMT; latencies from
/// 7-cpu.com. An Ivy Bridge: its last-level cache keeps streams out.
pub const PAPER: &str = "[host]\npcpus = 4\nl2 = \"256KB\"\nllc = \"8MB\"\nllc_adaptive = true\n\
    costs.llc = \"5ns\"\ncosts.memory = \"53ns\"\n\
    [vm.none]\nvcpus = 1\n[[vm.none.thread]]\nprogram = \"sleep 60min\"\n";

/// A type's program.
pub struct Subject {
    /// The type.
    pub kind: Kind,
    vcpus: u32,
}

/// One of each type.
pub const SUBJECTS: [Subject; 5] = [
    Subject {
        kind: Kind::IoInt,
        vcpus: 1,
    },
    Subject {
        kind: Kind::ConSpin,
        vcpus: 4,
    },
    Subject {
        kind: Kind::Llcf,
        vcpus: 1,
    },
    Subject {
        kind: Kind::LoLcf,
        vcpus: 1,
    },
    Subject {
        kind: Kind::Llco,
        vcpus: 1,
    },
];

/// A machine's part with one last-level cache.
pub struct Host {
    topology: String,
    pcpus: u32,
    l2: u64,
    llc: u64,
    adaptive: bool,
    /// Extra time of an access that the last-level cache or memory serves, ns.
    latency: [u64; 2],
}

impl Host {
    /// The part of this machine.
    pub fn of(machine: &Machine, params: &HostParams) -> Self {
        let (cores, threads) = (
            machine.topology.cores_per_llc(),
            machine.topology.threads_per_core(),
        );
        let caches = params.hardware.caches.unwrap_or_default();
        Self {
            topology: format!("1n1l{cores}c{threads}t"),
            pcpus: cores * threads,
            l2: machine.l2,
            llc: machine.llc,
            adaptive: caches.llc_adaptive,
            latency: [caches.llc_latency, caches.memory_latency],
        }
    }

    /// A linked list of one of the three sizes: a line per access to the cache that holds it. An L2
    /// hit takes 3.5 ns (12 cycles of 3.4 GHz).
    fn list(&self, kind: Kind) -> String {
        let (llc, memory) = (self.latency[0] + 3, self.latency[0] + self.latency[1] + 3);
        let (bytes, lines) = match kind {
            Kind::Llcf => (self.llc / 2, 1000 / llc.max(1)),
            Kind::Llco => (self.llc * 2, 1000 / memory.max(1)),
            _ => (self.l2 / 10 * 9, 280),
        };
        // How cycles divide depends on where lines come from, as in the presets list-*.
        let mix = match kind {
            Kind::Llcf => "20/70/10",
            Kind::Llco => "5/90/5",
            _ => "40/50/10",
        };
        format!("memory {bytes}B {}/us; mix {mix}; ", lines.max(1))
    }

    /// The threads of a single-vCPU VM of a type. All begin some 50 ms after the run does.
    fn threads(&self, kind: Kind, port: &str) -> Vec<String> {
        let page =
            format!("loop {{ request {port}; compute 50us; reply {port} 4KB; count 1 pages }}");
        match kind {
            Kind::IoInt => vec![page, "sleep 50ms exp; loop { compute 20ms }".to_string()],
            Kind::ConSpin => {
                let round = "compute 20us ±50%; lock zone { compute 1us }; count 1 rounds";
                vec![format!("sleep 50ms exp; loop {{ {round} }}"); 4]
            }
            _ => {
                let list = self.list(kind);
                vec![format!(
                    "sleep 50ms exp; {list}loop {{ compute 1ms; count 1 loops }}"
                )]
            }
        }
    }
}

/// A VM's part of a scenario. Guests are the paper's: ticket locks, and pause-loop exits after 4096
/// cycles (Xen's default).
fn vm(text: &mut String, name: &str, count: u32, vcpus: u32, threads: &[String]) {
    let _ = write!(text, "[vm.{name}]\nvcpus = {vcpus}\n");
    if count > 1 {
        let _ = writeln!(text, "count = {count}");
    }
    let _ = write!(
        text,
        "guest.lock = \"ticket\"\nguest.ple_window = \"1.2us\"\n"
    );
    for thread in threads {
        let _ = write!(text, "[[vm.{name}.thread]]\nprogram = \"{thread}\"\n");
    }
}

fn visitors(text: &mut String, name: &str, vm: &str, port: &str) {
    let _ = write!(
        text,
        "[client.{name}]\nvm = \"{vm}\"\nkind = \"closed\"\nport = \"{port}\"\nconnections = 10\n\
         think = \"500ms exp\"\n"
    );
}

/// The scenario: a subject beside others, with this many vCPUs per pCPU, at this slice.
pub fn scenario(of: &Subject, host: &Host, consolidation: u32, slice: u64) -> String {
    // Eight rounds of four vCPUs with the longest slice; VMs begin within one round, so that pCPUs are not in step. As
    // on Xen, where the control domain has the threads that a Linux host has on its pCPUs.
    let (stagger, warm_up, duration) = (360, 720, 3000);
    let mut text = format!(
        "[host]\ntopology = \"{}\"\nhousekeeping = 0\nl2 = \"{}B\"\nllc = \"{}B\"\nllc_adaptive = {}\ncosts.llc = \"{}ns\"\n\
         costs.memory = \"{}ns\"\n\
         [run]\nduration = \"{duration}ms\"\nwarm_up = \"{warm_up}ms\"\nstagger = \"{stagger}ms\"\n\
         [scheduler.corun]\nslice = \"{slice}ms\"\n[scheduler.credit]\nslice = \"{slice}ms\"\n",
        host.topology, host.l2, host.llc, host.adaptive, host.latency[0], host.latency[1]
    );
    vm(
        &mut text,
        "subject",
        1,
        of.vcpus,
        &host.threads(of.kind, "http"),
    );
    if of.kind == Kind::IoInt {
        visitors(&mut text, "visitors", "subject", "http");
    }
    let others = (consolidation * host.pcpus).saturating_sub(of.vcpus);
    let kinds = [Kind::Llcf, Kind::LoLcf, Kind::Llco, Kind::IoInt];
    for (at, kind) in (0..).zip(kinds) {
        let count = (others + 3 - at) / 4;
        let name = kind.name().to_lowercase();
        if count > 0 {
            vm(&mut text, &name, count, 1, &host.threads(kind, "web"));
        }
        if count > 0 && kind == Kind::IoInt {
            visitors(&mut text, "surfers", &name, "web");
        }
    }
    text
}
