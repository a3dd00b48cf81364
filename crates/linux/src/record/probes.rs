// SPDX-License-Identifier: GPL-2.0-only
//! Loads the kernel's half and takes its events.

use super::RecordError;
use super::event::Raw;
use super::ring::Rings;
use crate::log;
use crate::object::Aligned;
use crate::perf::TRACEFS;
use corun_model::{Nanos, PcpuSet};
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// The compiled program.
static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/record.bpf.o")));

/// The programs that see which task leaves a pCPU in which state: kernels have one of them.
const SWITCHES: [&str; 2] = ["switched", "switched_before_5_18"];
/// The program that can read whether an interrupt is under way, and those that find it out
/// otherwise.
const WAKES: &str = "waking";
const BY_HANDLERS: [&str; 5] = [
    "waking_by_handlers",
    "handler_irq_begins",
    "handler_irq_ends",
    "handler_softirq_begins",
    "handler_softirq_ends",
];
/// The program whose loading needs KVM's BTF.
const EXITS: &str = "exited";
/// What a recording can do without, and what is missing then.
const OPTIONAL: [(&str, &str); 3] = [
    (EXITS, "guest exits (kvm_exit)"),
    ("halt_ended", "how halts end (kvm_vcpu_wakeup)"),
    (
        "sent_ipi",
        "interrupts between sibling vCPUs (kvm_apic_ipi)",
    ),
];

/// The kernel's half at work.
pub(super) struct Probes {
    object: Object,
    links: Vec<Link>,
    rings: Rings,
    asides: RingBuffer<'static>,
    /// What `asides` gave.
    taken: Rc<RefCell<Vec<Raw>>>,
    pub(super) counts: MapHandle,
    /// What was not available.
    pub(super) missing: Vec<Missing>,
}

/// What is not recorded, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What.
    pub what: &'static str,
    /// Why, and what helps.
    pub why: &'static str,
}

impl Missing {
    /// A program that the kernel did not take.
    fn program(name: &str, tracefs: bool) -> Option<Self> {
        let (_, what) = OPTIONAL.iter().find(|(optional, _)| *optional == name)?;
        // The others are raw tracepoints, which are asked for by name.
        let why = if name == EXITS && !tracefs {
            "tracefs is not mounted (mount -t tracefs tracefs /sys/kernel/tracing)"
        } else {
            "this kernel does not report it"
        };
        Some(Self { what, why })
    }
}

impl Probes {
    /// Begins to trace on these pCPUs.
    pub(super) fn begin(online: &PcpuSet) -> Result<Self, RecordError> {
        let (object, exits) = load(online)?;
        log::begin();
        let failed = |cause| RecordError::Load {
            cause,
            log: log::take(),
        };
        let map = |name: &'static str| {
            let found = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&found.ok_or(RecordError::Object(name))?).map_err(failed)
        };
        let counts = map("counts")?;
        let rings = Rings::map(&map("rings")?, pcpus(online)).map_err(RecordError::Rings)?;
        let taken = Rc::new(RefCell::new(Vec::new()));
        let asides = reader(&map("asides")?, &taken).map_err(failed)?;
        let mut probes = Self {
            object,
            links: Vec::new(),
            rings,
            asides,
            taken,
            counts,
            missing: Vec::new(),
        };
        probes.attach(exits)?;
        Ok(probes)
    }

    fn attach(&mut self, exits: bool) -> Result<(), RecordError> {
        let tracefs = TRACEFS
            .iter()
            .any(|root| Path::new(root).join("events").exists());
        // What was not even loaded cannot be helped by tracefs.
        let unloaded = (!exits).then(|| Missing::program(EXITS, true));
        let mut missing: Vec<Missing> = unloaded.flatten().into_iter().collect();
        for program in self.object.progs_mut() {
            if !program.autoload() {
                continue;
            }
            let name = program.name().to_string_lossy().into_owned();
            match program.attach() {
                Ok(link) => self.links.push(link),
                Err(cause) => match Missing::program(&name, tracefs) {
                    Some(lacking) => missing.push(lacking),
                    None => {
                        let log = log::take();
                        return Err(RecordError::Load { cause, log });
                    }
                },
            }
        }
        self.missing = missing;
        Ok(())
    }

    /// Adds events written before `until` to `events`, and all those written aside.
    pub(super) fn take(&mut self, until: Nanos, events: &mut Vec<Raw>) {
        self.rings.take(until, events);
        // It fails only if a callback does, and ours does not.
        let _ = self.asides.consume();
        events.append(&mut self.taken.borrow_mut());
    }

    /// How many events each pCPU has lost since the last time.
    pub(super) fn lost(&mut self) -> Vec<(u32, u64)> {
        self.rings.lost()
    }

    /// No more events from here on.
    pub(super) fn end(&mut self) {
        self.links.clear();
    }
}

/// Which programs to load.
struct Variant {
    switch: &'static str,
    context: bool,
    exits: bool,
}

impl Variant {
    /// All, the best first.
    fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|number: usize| Self {
            switch: SWITCHES[number >> 2],
            context: number & 2 == 0,
            exits: number & 1 == 0,
        })
    }

    fn has(&self, program: &str) -> bool {
        match program {
            EXITS => self.exits,
            WAKES => self.context,
            other if BY_HANDLERS.contains(&other) => !self.context,
            other => other == self.switch || !SWITCHES.contains(&other),
        }
    }

    fn load(&self, online: &PcpuSet) -> libbpf_rs::Result<Object> {
        let mut open = ObjectBuilder::default()
            .name("record")?
            .open_memory(&PROGRAM.0)?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(self.has(&name));
        }
        for mut map in open.maps_mut() {
            if map.name() == "rings" {
                map.set_max_entries(pcpus(online))?;
            }
        }
        open.load()
    }
}

/// The object as far as this kernel takes it, and whether guest exits are in it.
fn load(online: &PcpuSet) -> Result<(Object, bool), RecordError> {
    let mut failed = None;
    for variant in Variant::all() {
        log::begin();
        match variant.load(online) {
            Ok(object) => return Ok((object, variant.exits)),
            Err(cause) => failed = Some(cause),
        }
    }
    // What the plainest variant lacks, nothing else has.
    let log = log::take();
    Err(match failed {
        Some(cause) => RecordError::Load { cause, log },
        None => RecordError::Object("programs"),
    })
}

/// Up to the last of them, those between that are not online included.
fn pcpus(online: &PcpuSet) -> u32 {
    online.iter().last().map_or(1, |cpu| cpu.0 + 1)
}

fn reader(
    asides: &MapHandle,
    taken: &Rc<RefCell<Vec<Raw>>>,
) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    let into = Rc::clone(taken);
    builder.add(asides, move |bytes| {
        into.borrow_mut().extend(Raw::read(bytes));
        0
    })?;
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_only_a_mount_is_not_put_on_the_kernel() {
        let why = |name, tracefs| Missing::program(name, tracefs).unwrap().why;
        assert!(why(EXITS, false).contains("mount -t tracefs"));
        assert!(why(EXITS, true).contains("this kernel"));
        assert!(why("halt_ended", false).contains("this kernel"));
        assert_eq!(Missing::program(WAKES, false), None);
    }
}
