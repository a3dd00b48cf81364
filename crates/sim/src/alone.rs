// SPDX-License-Identifier: GPL-2.0-only
//! What a workload is like when nothing disturbs it.
//!
//! Problem: a reader of results must know whether a preset computes, spins, sleeps or switches all
//! the time, and text about it would sooner or later be wrong. So the simulator measures it: one VM
//! of four vCPUs alone on four pCPUs, each vCPU on a pCPU of its own (policy `affinity`, so that no
//! scheduler interferes), guest and machine with their defaults. Its clients are those that the
//! preset brings along, its disk a solid-state disk; what it calls runs in VMs with pCPUs of their
//! own.
//!
//! The busier a workload, the shorter its run: what happens a million times does not need two
//! seconds to be measured. A pilot run shows how busy it is. Same seed, same figures.

use crate::Simulation;
use crate::device::disk::{DiskParams, MediumParams, Share, SsdParams};
use crate::device::net::{ChannelSpec, ClientSpec, NetworkSpec};
use crate::guest::{DiskSpec, DiskUse, GuestError, Guests, ThreadSpec, VmSpec};
use crate::host::{Costs, HardwareParams, HostParams, Standstill, Totals};
use crate::sched::dispatcher::Dispatcher;
use crate::workload::{self, ParseError, Preset, PresetClient};
use corun_model::guests::IMAGE;
use corun_model::time::{HOST_HZ, MS, SEC};
use corun_model::{DispatcherParams, Nanos, PcpuId, Presence, Topology, TopologyError, VmId};

/// vCPUs of the VM, and pCPUs of its host.
pub const VCPUS: u32 = 4;
/// The longest measured part.
pub const LONGEST: Nanos = 2 * SEC;
/// The shortest measured part.
const SHORTEST: Nanos = 20 * MS;
/// Time before the measured part, in which threads find their vCPUs.
const WARM_UP: Nanos = 20 * MS;
/// The pilot run's length.
const PILOT: Nanos = 10 * MS;
/// The most events that a measured part should have; statistics need no more.
const EVENTS: u64 = 20_000;
const SEED: u64 = 1;

/// What a workload did alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// Length of the measured part, ns.
    pub measured: Nanos,
    /// Units of work per second.
    pub throughput: f64,
    /// What a unit is.
    pub unit: String,
    /// Share of the four pCPUs' time that it used.
    pub cpu_use: f64,
    /// Share of the time used that went into the guest kernel's interrupts and thread switches.
    pub kernel_share: f64,
    /// Share of the time used that went into spinning.
    pub spin_share: f64,
    /// Times per second that a vCPU changed its thread.
    pub thread_switches: f64,
    /// Times per second that a halted vCPU was woken.
    pub vcpu_wakeups: f64,
    /// Contended acquisitions of locks per second.
    pub lock_waits: f64,
    /// What its clients saw; `None` if none was answered.
    pub responses: Option<Responses>,
}

/// Answers to clients: replies, or round trips of pings.
#[derive(Clone, Debug, PartialEq)]
pub struct Responses {
    /// Per second.
    pub rate: f64,
    /// Mean time until the end of the reply arrived, ns.
    pub mean: f64,
}

/// Why a workload cannot be run alone: each is a defect of a preset.
#[derive(Debug, thiserror::Error)]
pub enum AloneError {
    /// Its text is not a program.
    #[error(transparent)]
    Program(#[from] ParseError),
    /// Its programs do not fit together.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// No host of four pCPUs can be made.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Virtual time stands still while it runs.
    #[error(transparent)]
    Standstill(#[from] Standstill),
}

impl Alone {
    /// Runs `preset`, with as many threads as it has by default.
    ///
    /// # Errors
    /// [`AloneError`] if the preset is not a runnable program.
    pub fn of(preset: &Preset) -> Result<Self, AloneError> {
        let pilot = simulation(preset)?.try_run(0, PILOT, |_| {})?;
        let measured = length(pilot.events);
        let outcome = simulation(preset)?.try_run(WARM_UP, WARM_UP + measured, |_| {})?;
        let per_second = |count: u64| count as f64 * SEC as f64 / measured as f64;
        let mut alone = Self {
            measured,
            throughput: 0.0,
            unit: String::new(),
            cpu_use: 0.0,
            kernel_share: 0.0,
            spin_share: 0.0,
            thread_switches: 0.0,
            vcpu_wakeups: 0.0,
            lock_waits: 0.0,
            responses: None,
        };
        let clients = outcome.clients.iter();
        for seen in clients.filter(|client| client.vm == VmId(0) && client.responses.count() > 0) {
            alone.responses = Some(Responses {
                rate: per_second(seen.responses.count()),
                mean: seen.responses.mean(),
            });
        }
        if let Some(vm) = outcome.vms.first() {
            let sum = |of: fn(&Totals) -> u64| vm.vcpus.iter().map(of).sum::<u64>();
            let (run, done) = (sum(|totals| totals.run), &vm.achieved);
            let of_run = |part: Nanos| part as f64 / run.max(1) as f64;
            alone.throughput = done.throughput;
            alone.unit.clone_from(&done.throughput_unit);
            // Idle vCPUs for which the host polls, on pCPUs of their own, do not use them.
            let busy = run.saturating_sub(done.idling);
            alone.cpu_use = busy as f64 / (measured as f64 * f64::from(VCPUS));
            alone.kernel_share = of_run(done.kernel);
            alone.spin_share = of_run(done.spin);
            alone.thread_switches = per_second(done.thread_switches);
            alone.vcpu_wakeups = per_second(sum(|totals| totals.wakeups));
            alone.lock_waits = per_second(done.lock_waits.count());
        }
        Ok(alone)
    }
}

/// How long to measure a workload with so many events in the pilot run: whole steps of 20 ms.
fn length(pilot: u64) -> Nanos {
    let fitting = PILOT.saturating_mul(EVENTS) / pilot.max(1);
    (fitting / SHORTEST * SHORTEST).clamp(SHORTEST, LONGEST)
}

fn simulation(preset: &Preset) -> Result<Simulation, AloneError> {
    let (guests, pcpus) = guests(preset, SEED)?;
    let host = HostParams {
        topology: Topology::flat(pcpus)?,
        hz: HOST_HZ,
        tick_skew: false,
        idle_states: Vec::new(),
        costs: Costs::default(),
        hardware: HardwareParams::default(),
    };
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let policy = Box::<corun_policies::Affinity>::default();
    Ok(Simulation::new(host, Box::new(sched), Box::new(guests), None).with_policy(policy))
}

/// `preset` in the first VM with its clients, what it calls in others; each VM has pCPUs of its own.
/// Also returns the number of pCPUs.
pub(crate) fn guests(preset: &Preset, seed: u64) -> Result<(Guests, u32), AloneError> {
    let (mut vms, mut network) = (Vec::new(), NetworkSpec::default());
    let client = |client: &PresetClient| ClientSpec {
        name: client.port.to_string(),
        vm: VmId(0),
        kind: client.kind(),
        presence: Presence::default(),
    };
    network.clients = preset.clients().iter().map(client).collect();
    let mut next = Some(*preset);
    while let Some(preset) = next {
        let number = vms.len() as u32;
        vms.push(vm(&preset, number)?);
        next = preset.calls().and_then(|calls| {
            network.channels.push(ChannelSpec {
                name: calls.port.to_string(),
                from: (VmId(number), calls.port.to_string()),
                to: (VmId(number + 1), calls.serves.to_string()),
            });
            workload::preset(calls.preset)
        });
    }
    let ssd = DiskSpec {
        name: "ssd".to_string(),
        params: DiskParams::new(MediumParams::Ssd(SsdParams::default())),
    };
    let pcpus = vms.len() as u32 * VCPUS;
    let guests = Guests::with_devices(vms, Vec::new(), &[ssd], &network, seed)?;
    Ok((guests, pcpus))
}

/// The VM of a preset; with an image on a solid-state disk of its own if it reads or writes.
fn vm(preset: &Preset, number: u32) -> Result<VmSpec, AloneError> {
    let threads = preset.threads(preset.default_threads(VCPUS))?;
    let uses_disk = threads.iter().any(|thread| thread.program.uses_disk());
    let disk = uses_disk.then_some(DiskUse {
        disk: 0,
        size: IMAGE,
        share: Share {
            weight: 100,
            quota: None,
        },
    });
    let thread = |thread: workload::PresetThread| ThreadSpec {
        name: thread.name,
        program: thread.program,
        vcpu: None,
    };
    let pcpus = number * VCPUS..(number + 1) * VCPUS;
    Ok(VmSpec {
        threads: threads.into_iter().map(thread).collect(),
        disk,
        ..VmSpec::new(preset.name, VCPUS, pcpus.map(PcpuId).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::preset;

    fn alone(name: &str) -> Alone {
        Alone::of(&preset(name).unwrap()).unwrap()
    }

    #[test]
    fn what_computes_uses_everything_and_what_waits_does_not() {
        let cpu = alone("cpu");
        assert_eq!((cpu.measured, cpu.unit.as_str()), (LONGEST, "work s/s"));
        assert!(cpu.cpu_use > 0.999 && cpu.spin_share == 0.0, "{cpu:?}");
        let sync = alone("sync");
        assert!(
            sync.cpu_use < 0.95,
            "barriers of ±20 % leave gaps: {sync:?}"
        );
        // The gaps are so short that the host's halt polling catches them.
        assert!(sync.thread_switches > 10_000.0, "{sync:?}");
        assert!(sync.vcpu_wakeups < 100.0, "{sync:?}");
        let locks = alone("lockheavy");
        assert!(
            locks.spin_share > 0.0 && locks.lock_waits > 1_000.0,
            "{locks:?}"
        );
    }

    #[test]
    fn what_the_papers_say_holds_by_structure() {
        let matmul = alone("matmul");
        assert!(matmul.cpu_use > 0.999 && matmul.vcpu_wakeups == 0.0);
        // In parts of its vCPU's time: it has one thread, and the VM four vCPUs.
        let sockperf = alone("sockperf");
        assert!(sockperf.cpu_use * 4.0 < 0.2, "{sockperf:?}");
        let responses = sockperf.responses.unwrap();
        let network = 2.0 * 50_000.0;
        assert!(
            responses.mean > network && responses.mean < 2.0 * network,
            "{responses:?}"
        );
        // Kernels answer pings without any thread.
        let ping = alone("ping");
        assert!(ping.responses.unwrap().rate > 900.0 && ping.thread_switches == 0.0);
        assert_eq!(alone("cpu").responses, None);
    }

    /// The presets are as AQL classifies them, by what is measured here with the default host's
    /// caches.
    #[test]
    fn working_sets_are_of_the_sizes_that_aql_names() {
        let (l2, llc) = (256 << 10, 10 << 20);
        let sizes = |names: &[&str]| {
            let size = |name: &&str| {
                let threads = preset(name).unwrap().threads(1).unwrap();
                let memory = threads[0]
                    .program
                    .statements()
                    .iter()
                    .find_map(|it| match it {
                        workload::Statement::Memory(memory) => Some(memory.bytes),
                        _ => None,
                    });
                memory.unwrap()
            };
            names.iter().map(size).collect::<Vec<u64>>()
        };
        let fits = sizes(&[
            "astar",
            "xalancbmk",
            "spec-bzip2",
            "gcc",
            "omnetpp",
            "list-llcf",
        ]);
        assert!(
            fits.iter().all(|size| (l2 + 1..llc).contains(size)),
            "{fits:?}"
        );
        let low = [
            "hmmer",
            "gobmk",
            "perlbench",
            "sjeng",
            "h264ref",
            "list-lolcf",
        ];
        let low = sizes(&low);
        assert!(low.iter().all(|size| *size <= l2), "{low:?}");
        let over = sizes(&["mcf", "libquantum", "list-llco"]);
        assert!(over.iter().all(|size| *size > llc), "{over:?}");
    }

    #[test]
    fn the_same_figures_each_time() {
        assert_eq!(alone("hackbench"), alone("hackbench"));
    }

    #[test]
    fn the_busier_the_shorter() {
        assert_eq!(length(0), LONGEST);
        assert_eq!(length(u64::MAX), SHORTEST);
        assert_eq!(length(2_000), 100 * MS);
    }
}
