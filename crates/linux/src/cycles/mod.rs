// SPDX-License-Identifier: GPL-2.0-only
//! How the cycles of vCPUs divide (vSMT-IO, dissertation §3.4.3), counted while their SMT sibling idles or is held:
//! bpf/cycles.bpf.c reads the pCPU's counters at each switch; this opens the counters, says which threads are vCPUs,
//! and reads the sums.
//!
//! The program is loaded when the daemon starts, since later the daemon has no right to load any (confine.rs), and only
//! if the host's cores have two hardware threads. It is attached, and counters are open, only while the policy in force
//! needs them; otherwise it costs some ten kilobytes of the kernel's memory, and no time. If the first policy needs
//! counters, they are opened before the daemon gives up its rights.
//!
//! If something is missing (kernel, BTF, events, rights), that is reported and changes nothing else: vCPUs that are
//! not counted are picked in fair order. When the process ends, for whatever reason, the kernel closes its
//! descriptors: that of the link, which detaches the program, and those of the counters, which stops them. Nothing
//! is pinned.

pub(crate) mod events;

use crate::discovery::Vcpu;
use crate::namespaces;
use crate::object::Aligned;
use crate::perf::{Counter, RESTRICTED};
use corun_model::{CyclesSeen, HostSeen, PcpuId, PcpuSet};
use corun_policies::pmu::{Choice, Events};
use corun_system::procfs::ThreadKey;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramMut};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The compiled program.
static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/cycles.bpf.o")));

/// Events of a pCPU (`EVENTS`).
const EVENTS: u32 = 3;
/// Words of `struct pcpu`: what it has seen, the partner's at the beginning, partner and thread in one, and
/// count and time without a counter of each event.
const PCPU: usize = 3 + 2 * EVENTS as usize;
/// Words of `struct watched`: start, cycles, base, miss.
const WATCHED: usize = 4;

/// Cycles of vCPUs, counted if a policy wants them.
pub(crate) struct Cycles {
    /// Or why there is none.
    program: Result<Program, String>,
    /// pCPUs with their partners.
    pcpus: Vec<(PcpuId, PcpuId)>,
    /// What the policy in force wants.
    wanted: Option<Choice>,
    /// While it wants something: what counts, or why nothing does.
    counting: Option<Result<Counting, String>>,
}

/// The program, loaded.
struct Program {
    object: Object,
    pcpus: MapHandle,
    events: MapHandle,
    vcpus: MapHandle,
}

/// What is attached and open.
struct Counting {
    by: Events,
    /// Dropped first: a program that is detached reads no counters.
    _link: Link,
    _counters: Vec<Counter>,
    /// Starts of threads that are watched, by number.
    watched: BTreeMap<u32, u64>,
}

impl Cycles {
    /// Loads the program for a host with these pCPUs. If it cannot be, `note` will say why.
    pub(crate) fn load(host: &HostSeen, online: &PcpuSet) -> Self {
        let pair = |cpu: PcpuId| Some((cpu, host.partner(cpu).filter(|it| online.contains(*it))?));
        let pcpus: Vec<_> = online.iter().filter_map(pair).collect();
        let program = match pcpus.last() {
            Some((last, _)) => Program::load(last.0 + 1),
            None => Err("the cores of this host do not have two hardware threads each".into()),
        };
        Self {
            program,
            pcpus,
            wanted: None,
            counting: None,
        }
    }

    /// The policy in force wants this: begins to count, or ends it.
    pub(crate) fn want(&mut self, by: Option<Choice>) {
        if by == self.wanted {
            return;
        }
        self.wanted = by;
        self.stop();
        self.counting = by.map(|by| self.start(by));
    }

    fn start(&self, by: Choice) -> Result<Counting, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let by = match by {
            Choice::These(events) => events,
            Choice::OfHost => events::of_host(Path::new("/")),
        };
        let counters = self.open(&by)?;
        let link = program.attach(&self.pcpus, &by, &counters);
        let link = link.map_err(|why| {
            program.clear();
            format!("the program that counts cannot be attached: {why:#}")
        })?;
        Ok(Counting {
            by,
            _link: link,
            _counters: counters,
            watched: BTreeMap::new(),
        })
    }

    /// The counters of all pCPUs, each pCPU's in a group.
    fn open(&self, by: &Events) -> Result<Vec<Counter>, String> {
        let (names, events): (Vec<_>, Vec<_>) = by.named().unzip();
        let mut all = Vec::new();
        for &(cpu, _) in &self.pcpus {
            let opened = Counter::group(&events, cpu);
            all.extend(opened.map_err(|(at, why)| {
                let known = match why.raw_os_error() {
                    Some(libc::ENOENT | libc::EOPNOTSUPP) => {
                        " (not counted on this machine)".into()
                    }
                    Some(libc::EACCES | libc::EPERM) => {
                        format!(" ({RESTRICTED}, or start with the policy)")
                    }
                    _ => String::new(),
                };
                let (name, event) = (names[at], events[at]);
                format!("{name}, {event}, on pCPU {}: {why}{known}", cpu.0)
            })?);
        }
        Ok(all)
    }

    /// Detaches the program and closes counters.
    fn stop(&mut self) {
        if let Some(Ok(counting)) = self.counting.take() {
            let watched: Vec<u32> = counting.watched.keys().copied().collect();
            drop(counting);
            if let Ok(program) = &self.program {
                watched.iter().for_each(|tid| program.forget(*tid));
                program.clear();
            }
        }
    }

    /// These are the vCPUs now.
    pub(crate) fn watch<'a>(&mut self, vcpus: impl Iterator<Item = &'a Vcpu>) {
        self.watch_threads(vcpus.map(|vcpu| vcpu.key));
    }

    fn watch_threads(&mut self, keys: impl Iterator<Item = ThreadKey>) {
        let (Some(Ok(counting)), Ok(program)) = (&mut self.counting, &self.program) else {
            return;
        };
        let now: BTreeMap<u32, u64> = keys.map(|key| (key.tid, key.start)).collect();
        for (tid, start) in &now {
            if counting.watched.get(tid) == Some(start) {
                continue;
            }
            // If there is no room, it is not counted, and what is not there cannot be read.
            if program.watch(*tid, *start).is_ok() {
                counting.watched.insert(*tid, *start);
            }
        }
        counting.watched.retain(|tid, _| {
            let stays = now.contains_key(tid);
            if !stays {
                program.forget(*tid);
            }
            stays
        });
    }

    /// What was counted of a thread since it is watched; `None`: it is not.
    pub(crate) fn read(&self, key: ThreadKey) -> Option<CyclesSeen> {
        let (Some(Ok(_)), Ok(program)) = (&self.counting, &self.program) else {
            return None;
        };
        program.read(key)
    }

    /// The note about it, for people.
    pub(crate) fn note(&self) -> Option<String> {
        Some(match self.counting.as_ref()? {
            Err(why) => format!("cycles of vCPUs are not counted: {why}"),
            Ok(counting) => {
                let by: Vec<String> = (counting.by.named())
                    .map(|(name, event)| format!("{name} by {event}"))
                    .collect();
                let misses = match counting.by.misses {
                    Some(_) => "",
                    None => "; stalls on misses are not told apart, and count as waiting",
                };
                format!(
                    "cycles of vCPUs are counted in turns beside an idle SMT sibling: {}{misses}",
                    by.join(", ")
                )
            }
        })
    }
}

impl Drop for Cycles {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Program {
    /// For pCPUs with numbers below `pcpus`.
    fn load(pcpus: u32) -> Result<Self, String> {
        if !namespaces::numbers_are_the_kernels() || !namespaces::starts_are_the_kernels() {
            return Err("this process is in a PID or time namespace of its own".into());
        }
        let loaded = Self::load_for(pcpus);
        loaded.map_err(|why| format!("the kernel does not take the program that counts: {why:#}"))
    }

    fn load_for(pcpus: u32) -> libbpf_rs::Result<Self> {
        let mut open = ObjectBuilder::default()
            .name("cycles")?
            .open_memory(&PROGRAM.0)?;
        for mut map in open.maps_mut() {
            match map.name().to_str().unwrap_or("") {
                "pcpus" => map.set_max_entries(pcpus)?,
                "events" => map.set_max_entries(pcpus * EVENTS)?,
                _ => {}
            }
        }
        let object = open.load()?;
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            let missing = || libbpf_rs::Error::from(io::Error::other(format!("no map {name}")));
            MapHandle::try_from(&found.ok_or_else(missing)?)
        };
        Ok(Self {
            pcpus: map("pcpus")?,
            events: map("events")?,
            vcpus: map("vcpus")?,
            object,
        })
    }

    /// Counts on these pCPUs from now on.
    fn attach(
        &self,
        pcpus: &[(PcpuId, PcpuId)],
        by: &Events,
        counters: &[Counter],
    ) -> libbpf_rs::Result<Link> {
        let each = by.named().count();
        for ((cpu, partner), counters) in pcpus.iter().zip(counters.chunks(each)) {
            self.begin(*cpu, *partner)?;
            for (event, counter) in (0..).zip(counters) {
                let key = (cpu.0 * EVENTS + event).to_ne_bytes();
                let fd = counter.as_raw_fd().to_ne_bytes();
                self.events.update(&key, &fd, MapFlags::ANY)?;
            }
        }
        self.program()?.attach()
    }

    /// Nothing has been seen of this pCPU yet.
    fn begin(&self, cpu: PcpuId, partner: PcpuId) -> libbpf_rs::Result<()> {
        self.set(cpu, [0, 0, u64::from_ne_bytes(both(partner.0, 0))])
    }

    /// Sets the first words of what is known about a pCPU; all others become 0.
    fn set(&self, cpu: PcpuId, first: [u64; 3]) -> libbpf_rs::Result<()> {
        let mut words = [0u64; PCPU];
        words[..3].copy_from_slice(&first);
        let key = cpu.0.to_ne_bytes();
        self.pcpus.update(&key, &bytes(&words), MapFlags::ANY)
    }

    /// Lets go of the counters.
    fn clear(&self) {
        for key in 0..self.events.max_entries() {
            // Most have none.
            let _ = self.events.delete(&key.to_ne_bytes());
        }
    }

    fn watch(&self, tid: u32, start: u64) -> libbpf_rs::Result<()> {
        let value = bytes(&[start, 0, 0, 0]);
        self.vcpus.update(&tid.to_ne_bytes(), &value, MapFlags::ANY)
    }

    fn forget(&self, tid: u32) {
        // It may never have been there: there was no room.
        let _ = self.vcpus.delete(&tid.to_ne_bytes());
    }

    fn read(&self, key: ThreadKey) -> Option<CyclesSeen> {
        let value = self.vcpus.lookup(&key.tid.to_ne_bytes(), MapFlags::ANY);
        let [start, cycles, base, miss] = words(&value.ok()??)?;
        (start == key.start).then_some(CyclesSeen { cycles, base, miss })
    }

    fn program(&self) -> libbpf_rs::Result<ProgramMut<'_>> {
        let found = self.object.progs_mut().find(|it| it.name() == "cycles");
        found.ok_or_else(|| io::Error::other("no program cycles").into())
    }
}

/// Two halves of a word.
fn both(first: u32, second: u32) -> [u8; 8] {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    [a, b, c, d, e, f, g, h]
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words(bytes: &[u8]) -> Option<[u64; WATCHED]> {
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().copied().map(u64::from_ne_bytes).collect();
    words.try_into().ok()
}

#[cfg(test)]
mod tests;
