// SPDX-License-Identifier: GPL-2.0-only
//! Loads the kernel's half and takes its events.

use super::RecordError;
use super::event::Raw;
use crate::log;
use corun_model::PcpuSet;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, RingBuffer,
    RingBufferBuilder,
};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;

/// The compiled program, aligned as ELF wants it.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/record.bpf.o")));

/// Room for events of a pCPU that have not been taken, bytes: some 30,000 events.
const ROOM: u32 = 1 << 20;

/// The programs that see who leaves a pCPU in which state: kernels have one of them.
const SWITCHES: [&str; 2] = ["switched", "switched_before_5_18"];
/// The program that knows by itself whether an interrupt is under way, and those that find it out.
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
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<Raw>>>,
    pub(super) counts: MapHandle,
    lost: MapHandle,
    told_lost: Vec<u64>,
    /// What could not be had.
    pub(super) missing: Vec<&'static str>,
    // The rings live as long as somebody holds them.
    _rings: Vec<MapHandle>,
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
        let (outer, counts, lost) = (map("rings")?, map("counts")?, map("lost")?);
        let mut rings = Vec::new();
        for cpu in online.iter() {
            rings.push(ring(&outer, cpu.0).map_err(failed)?);
        }
        let taken = Rc::new(RefCell::new(Vec::new()));
        let ring = reader(&rings, &taken).map_err(failed)?;
        let mut probes = Self {
            object,
            links: Vec::new(),
            ring,
            taken,
            counts,
            lost,
            told_lost: Vec::new(),
            missing: Vec::new(),
            _rings: rings,
        };
        probes.attach(exits)?;
        Ok(probes)
    }

    fn attach(&mut self, exits: bool) -> Result<(), RecordError> {
        let mut missing = Vec::new();
        for program in self.object.progs_mut() {
            if !program.autoload() {
                continue;
            }
            let name = program.name().to_string_lossy().into_owned();
            match program.attach() {
                Ok(link) => self.links.push(link),
                Err(cause) => match OPTIONAL.iter().find(|(optional, _)| *optional == name) {
                    Some((_, what)) => missing.push(*what),
                    None => {
                        let log = log::take();
                        return Err(RecordError::Load { cause, log });
                    }
                },
            }
        }
        missing.extend(
            OPTIONAL
                .iter()
                .filter_map(|(name, what)| (*name == EXITS && !exits).then_some(*what)),
        );
        self.missing = missing;
        Ok(())
    }

    /// Adds what the rings hold to `events`.
    pub(super) fn take(&mut self, events: &mut Vec<Raw>) {
        // It fails only if a callback does, and ours does not.
        let _ = self.ring.consume();
        events.append(&mut self.taken.borrow_mut());
    }

    /// How many events each pCPU has lost since the last time.
    pub(super) fn lost(&mut self) -> Vec<(u32, u64)> {
        let values = self.lost.lookup_percpu(&[0; 4], MapFlags::ANY);
        let Ok(Some(values)) = values else {
            return Vec::new();
        };
        self.told_lost.resize(values.len(), 0);
        let mut news = Vec::new();
        for (cpu, (value, told)) in values.iter().zip(&mut self.told_lost).enumerate() {
            let count = value.first_chunk().map_or(0, |it| u64::from_ne_bytes(*it));
            if count > *told {
                news.push((cpu as u32, count - *told));
                *told = count;
            }
        }
        news
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
                let last = online.iter().last().map_or(0, |cpu| cpu.0);
                map.set_max_entries(last + 1)?;
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

/// Makes the ring of a pCPU.
fn ring(outer: &MapHandle, cpu: u32) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let ring = MapHandle::create(MapType::RingBuf, Some("ring"), 0, 0, ROOM, &options)?;
    let descriptor = ring.as_fd().as_raw_fd().to_ne_bytes();
    outer.update(&cpu.to_ne_bytes(), &descriptor, MapFlags::ANY)?;
    Ok(ring)
}

fn reader(
    rings: &[MapHandle],
    taken: &Rc<RefCell<Vec<Raw>>>,
) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    for ring in rings {
        let into = Rc::clone(taken);
        builder.add(ring, move |bytes| {
            into.borrow_mut().extend(Raw::read(bytes));
            0
        })?;
    }
    builder.build()
}
