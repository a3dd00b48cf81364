// SPDX-License-Identifier: GPL-2.0-only
//! The sections about the host's disks, and what VMs say about theirs.

use crate::cgroups::WEIGHT;
use crate::names;
use crate::problem::Located;
use crate::reader::Reader;
use crate::suggest::or_nearest;
use corun_model::Nanos;
use corun_model::guests::SMALLEST_IMAGE;
use corun_model::time::SEC;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// `[device.NAME]`. `None`: not given.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// `"ssd"` or `"hdd"`.
    pub kind: Located<String>,
    /// The host's I/O scheduler for it.
    pub scheduler: Option<Located<String>>,
    /// Size, bytes.
    pub capacity: Option<Located<u64>>,
    /// From a guest's kick to the submission by the host.
    pub submit: Option<Nanos>,
    /// From completion to the guest's interrupt.
    pub complete: Option<Nanos>,
    /// One of this many reads goes to the disk; the host's page cache answers the others. Writes all go to the disk.
    pub page_cache: Option<u32>,
    /// Keys that only solid-state disks have.
    pub ssd: SsdKeys,
    /// Keys that only hard disks have.
    pub hdd: HddKeys,
    /// Keys that only the deadline scheduler has.
    pub deadline: DeadlineKeys,
    /// Keys that only the anticipatory scheduler has.
    pub anticipatory: AnticipatoryKeys,
}

/// Keys of solid-state disks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SsdKeys {
    /// Flash access of a read.
    pub read_latency: Option<Nanos>,
    /// Flash access of a write.
    pub write_latency: Option<Nanos>,
    /// Sequential reads, bytes/s.
    pub read_bandwidth: Option<u64>,
    /// Sequential writes, bytes/s.
    pub write_bandwidth: Option<u64>,
    /// Accesses that overlap.
    pub parallel: Option<u32>,
    /// Requests that it has at once.
    pub queue_depth: Option<u32>,
}

/// Keys of hard disks.
#[derive(Clone, Debug, Default)]
pub struct HddKeys {
    /// Revolutions per minute.
    pub rpm: Option<u32>,
    /// Seek to the next track.
    pub seek_track: Option<Located<Nanos>>,
    /// Seek over a third of the disk.
    pub seek_average: Option<Located<Nanos>>,
    /// Seek over the whole disk.
    pub seek_full: Option<Located<Nanos>>,
    /// From the platter, bytes/s.
    pub bandwidth: Option<u64>,
    /// From the buffer, bytes/s.
    pub link: Option<u64>,
    /// Read ahead into the buffer, bytes.
    pub read_ahead: Option<u64>,
}

/// Keys of the deadline scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadlineKeys {
    /// Longest wait of a read.
    pub read_expire: Option<Nanos>,
    /// Longest wait of a write.
    pub write_expire: Option<Nanos>,
    /// Requests of a batch.
    pub batch: Option<u32>,
    /// Batches of reads while writes wait.
    pub writes_starved: Option<u32>,
}

/// Keys of the anticipatory scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnticipatoryKeys {
    /// How long to wait for a queue's next request.
    pub slice_idle: Option<Nanos>,
    /// How long to wait for a VM's next request.
    pub group_idle: Option<Nanos>,
    /// Time that one queue is served.
    pub slice: Option<Nanos>,
    /// The time within which every VM is served.
    pub target_latency: Option<Nanos>,
    /// Longest wait of a request in its queue's slice.
    pub expire: Option<Nanos>,
    /// Requests of one VM that the disk has at once.
    pub quantum: Option<u32>,
}

/// What a VM says about its disk.
#[derive(Clone, Debug, Default)]
pub struct DiskUse {
    /// Which one: its place in the list of disks.
    pub disk: Option<usize>,
    /// Is it named, rather than the only one?
    pub named: bool,
    /// Size of the VM's image, bytes.
    pub size: Option<Located<u64>>,
    /// Weight against the disk's other VMs.
    pub weight: Option<u32>,
    /// The most bytes per second.
    pub quota: Option<u64>,
}

/// Bytes with a unit.
struct Bytes(u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = corun_model::size::parse(text).filter(|bytes| *bytes <= MOST);
        let expected = || format!("found {text:?}, expected {SIZE}");
        bytes.map(Self).ok_or_else(expected)
    }
}

/// Bytes per second: decimal, as in data sheets and quotas.
struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("found {text:?}, expected {RATE}");
        let per_second = text.trim().strip_suffix("/s").ok_or_else(expected)?;
        let unit_at = per_second.find(|c: char| c.is_ascii_alphabetic());
        let (number, unit) = per_second.split_at(unit_at.unwrap_or(per_second.len()));
        let scale: u64 = match unit.trim() {
            "B" => 1,
            "KB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(expected()),
        };
        let bytes = number.trim().parse::<u64>().ok();
        match bytes.and_then(|number| number.checked_mul(scale)) {
            Some(bytes) if (1..=MOST).contains(&bytes) => Ok(Self(bytes)),
            _ => Err(expected()),
        }
    }
}

/// 1 PiB; disks are smaller and slower than that.
const MOST: u64 = 1 << 50;
const SIZE: &str = "a size from 0B to 1048576GB, whole, such as \"32GB\"";
const RATE: &str = "a rate from 1B/s to 1000000GB/s, whole, such as \"50MB/s\"";

pub(crate) fn size(table: &Reader<'_>, key: &'static str) -> Option<u64> {
    table.parsed::<Bytes>(key, SIZE).map(|bytes| bytes.0)
}

/// A size that is checked again later.
fn located_size(table: &Reader<'_>, key: &'static str) -> Option<Located<u64>> {
    table.said(key, size(table, key)?)
}

fn rate(table: &Reader<'_>, key: &'static str) -> Option<u64> {
    table.parsed::<Rate>(key, RATE).map(|rate| rate.0)
}

/// Times of devices and their schedulers.
const TIME: RangeInclusive<Nanos> = 0..=100 * SEC;
/// Slices and batches, which are not over before they begin.
const LENGTH: RangeInclusive<Nanos> = 1..=100 * SEC;
const DEPTH: RangeInclusive<u32> = 1..=1024;
const COUNT: RangeInclusive<u32> = 1..=10_000;
const CACHED: RangeInclusive<u32> = 1..=1_000_000;

const SSD: [&str; 6] = [
    "read_latency",
    "write_latency",
    "read_bandwidth",
    "write_bandwidth",
    "parallel",
    "queue_depth",
];
const HDD: [&str; 7] = [
    "rpm",
    "seek_track",
    "seek_average",
    "seek_full",
    "bandwidth",
    "link",
    "read_ahead",
];
const DEADLINE: [&str; 4] = ["read_expire", "write_expire", "batch", "writes_starved"];
const ANTICIPATORY: [&str; 6] = [
    "slice_idle",
    "group_idle",
    "slice",
    "target_latency",
    "expire",
    "quantum",
];
/// What the simulator uses unless told otherwise.
const DEFAULT_SCHEDULER: &str = "deadline";

/// All disks.
pub(crate) fn disks(top: &Reader<'_>) -> Vec<Disk> {
    let named = top.named("device").into_iter();
    named
        .filter_map(|(name, table)| disk(name, table))
        .collect()
}

fn disk(name: &str, table: Reader<'_>) -> Option<Disk> {
    names::check(&table, name);
    let kind = table.required("kind", "\"ssd\" or \"hdd\"");
    let scheduler = table.located("scheduler");
    let disk = kind.map(|kind| Disk {
        name: name.to_string(),
        kind,
        scheduler,
        capacity: located_size(&table, "capacity"),
        submit: table.duration("submit", TIME),
        complete: table.duration("complete", TIME),
        page_cache: table.whole("page_cache", CACHED),
        ssd: ssd(&table),
        hdd: hdd(&table),
        deadline: deadline(&table),
        anticipatory: anticipatory(&table),
    });
    if let Some(disk) = &disk {
        check(disk, &table);
    }
    table.finish();
    disk
}

/// Reports keys that this disk would not heed.
fn check(disk: &Disk, table: &Reader<'_>) {
    let foreign = |keys: &[&'static str], said: &str, needs: &str| {
        for key in keys.iter().filter(|key| table.has(key)) {
            table.problem(key, format!("goes with {needs}, but here it is {said:?}"));
        }
    };
    let kind = disk.kind.value.as_str();
    match kind {
        "ssd" => foreign(&HDD, kind, "kind = \"hdd\""),
        "hdd" => foreign(&SSD, kind, "kind = \"ssd\""),
        _ => {}
    }
    let scheduler = disk.scheduler.as_ref();
    let scheduler = scheduler.map_or(DEFAULT_SCHEDULER, |said| said.value.as_str());
    if scheduler != "deadline" {
        foreign(&DEADLINE, scheduler, "scheduler = \"deadline\"");
    }
    if scheduler != "anticipatory" {
        foreign(&ANTICIPATORY, scheduler, "scheduler = \"anticipatory\"");
    }
}

fn ssd(table: &Reader<'_>) -> SsdKeys {
    SsdKeys {
        read_latency: table.duration("read_latency", TIME),
        write_latency: table.duration("write_latency", TIME),
        read_bandwidth: rate(table, "read_bandwidth"),
        write_bandwidth: rate(table, "write_bandwidth"),
        parallel: table.whole("parallel", DEPTH),
        queue_depth: table.whole("queue_depth", DEPTH),
    }
}

fn hdd(table: &Reader<'_>) -> HddKeys {
    HddKeys {
        rpm: table.whole("rpm", 1..=100_000),
        seek_track: table.located_duration("seek_track", TIME),
        seek_average: table.located_duration("seek_average", TIME),
        seek_full: table.located_duration("seek_full", TIME),
        bandwidth: rate(table, "bandwidth"),
        link: rate(table, "link"),
        read_ahead: size(table, "read_ahead"),
    }
}

fn deadline(table: &Reader<'_>) -> DeadlineKeys {
    DeadlineKeys {
        read_expire: table.duration("read_expire", TIME),
        write_expire: table.duration("write_expire", TIME),
        batch: table.whole("batch", COUNT),
        writes_starved: table.whole("writes_starved", COUNT),
    }
}

fn anticipatory(table: &Reader<'_>) -> AnticipatoryKeys {
    AnticipatoryKeys {
        slice_idle: table.duration("slice_idle", TIME),
        group_idle: table.duration("group_idle", TIME),
        slice: table.duration("slice", LENGTH),
        target_latency: table.duration("target_latency", LENGTH),
        expire: table.duration("expire", TIME),
        quantum: table.whole("quantum", DEPTH),
    }
}

/// What a VM says about its disk. If the host has just one disk, the VM means that one.
pub(crate) fn disk_use(table: &Reader<'_>, disks: &[Disk]) -> DiskUse {
    let disk = named_disk(table, disks);
    let said = DiskUse {
        disk,
        named: table.has("disk"),
        size: located_size(table, "disk_size"),
        weight: table.whole("io_weight", WEIGHT),
        quota: rate(table, "io_quota"),
    };
    for key in ["disk_size", "io_weight", "io_quota"] {
        if table.has(key) && disk.is_none() && !table.has("disk") {
            let message = "goes with a disk, but the VM names none and the host has not just one";
            table.problem(key, message);
        }
    }
    if said
        .size
        .as_ref()
        .is_some_and(|size| size.value < SMALLEST_IMAGE)
    {
        let found = table.text("disk_size").unwrap_or_default();
        table.problem(
            "disk_size",
            format!("found {found:?}, expected at least 1MB"),
        );
    }
    let scheduler = disk.and_then(|disk| disks[disk].scheduler.as_ref());
    let weighs = scheduler.is_some_and(|said| said.value == "anticipatory");
    if table.has("io_weight") && disk.is_some() && !weighs {
        let message = "only a disk with scheduler = \"anticipatory\" heeds weights";
        table.problem("io_weight", message);
    }
    said
}

fn named_disk(table: &Reader<'_>, disks: &[Disk]) -> Option<usize> {
    let Some(name) = table.text("disk") else {
        return (disks.len() == 1 && !table.has("disk")).then_some(0);
    };
    let at = disks.iter().position(|disk| disk.name == name);
    if at.is_none() {
        let names: Vec<&str> = disks
            .iter()
            .map(|disk| disk.name.as_str())
            .take(20)
            .collect();
        let hint = match names.is_empty() {
            true => "the scenario has no [device.NAME]".to_string(),
            false => or_nearest(&name, &names),
        };
        table.problem("disk", format!("there is no device {name:?}, {hint}"));
    }
    at
}
