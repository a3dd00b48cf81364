// SPDX-License-Identifier: GPL-2.0-only
//! What a disk is like, and the list of its parameters.

use super::{AnticipatoryParams, DeadlineParams, HddParams, SchedulerParams, SsdParams};
use corun_model::Nanos;
use corun_model::time::US;
use corun_model::{Parameter, Value};

/// The medium and its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumParams {
    /// A solid-state disk.
    Ssd(SsdParams),
    /// A hard disk.
    Hdd(HddParams),
}

/// A disk of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskParams {
    /// What stores the data.
    pub medium: MediumParams,
    /// The host's I/O scheduler for it.
    pub scheduler: SchedulerParams,
    /// From a guest's kick (ioeventfd) until the host's iothread has submitted the request, ns. The
    /// iothread is not a task of its own: it is assumed to find a pCPU at once. 10 us: assumed;
    /// about what is left of the 20–30 us that virtio-blk adds to a small request when the guest's
    /// share and the completion are taken off.
    pub submit: Nanos,
    /// From the disk's completion until the guest's interrupt is posted (iothread, irqfd), ns. 5 us:
    /// assumed, half of `submit`: there is one wake-up, and no request to set up.
    pub complete: Nanos,
    /// One in so many reads goes to the disk; the others are answered by the host's page cache. 1: all go to the disk
    /// (QEMU's `cache=none`). Writes always do.
    pub page_cache: u32,
}

impl DiskParams {
    /// The default disk with this medium. Its I/O scheduler is deadline, as Linux' is for disks with
    /// one hardware queue since 5.0.
    pub fn new(medium: MediumParams) -> Self {
        Self {
            medium,
            scheduler: SchedulerParams::Deadline(DeadlineParams::default()),
            submit: 10 * US,
            complete: 5 * US,
            page_cache: 1,
        }
    }

    /// Bytes that it holds.
    pub fn capacity(&self) -> u64 {
        match self.medium {
            MediumParams::Ssd(ssd) => ssd.capacity,
            MediumParams::Hdd(hdd) => hdd.capacity,
        }
    }
}

/// Every parameter of disks and their schedulers.
pub fn parameters() -> Vec<Parameter> {
    let mut all = host_parameters();
    all.extend(ssd_parameters());
    all.extend(hdd_parameters());
    all.extend(deadline_parameters());
    all.extend(anticipatory_parameters());
    all
}

const INTEL: &str = "Intel SSD DC S3610 product specification (331342)";
const SEAGATE: &str = "Seagate Constellation ES product manuals";
const CFQ: &str = "Linux 4.4 block/cfq-iosched.c";
const DEADLINE: &str = "Linux block/mq-deadline.c";
const UNTRIED: &str = "not varied";

fn entry(
    key: &'static str,
    meaning: &'static str,
    value: Value,
    source: &'static str,
) -> Parameter {
    Parameter::new(key, meaning, value, source, UNTRIED)
}

fn bandwidth(per_second: u64) -> Value {
    Value::Number(per_second as f64 / 1e6, "MB/s")
}

fn host_parameters() -> Vec<Parameter> {
    let disk = DiskParams::new(MediumParams::Ssd(SsdParams::default()));
    vec![
        entry(
            "device.*.submit",
            "guest's kick to submission by the host's iothread",
            Value::Time(disk.submit),
            "assumed: order of virtio-blk's overhead",
        ),
        entry(
            "device.*.complete",
            "disk's completion to the guest's interrupt",
            Value::Time(disk.complete),
            "assumed: half of submit",
        ),
        entry(
            "device.*.page_cache",
            "one read in so many is not answered by the host's page cache",
            Value::Number(f64::from(disk.page_cache), ""),
            "QEMU's cache=none, as hosts of many VMs have it",
        ),
    ]
}

fn ssd_parameters() -> Vec<Parameter> {
    let ssd = SsdParams::default();
    vec![
        entry(
            "device.*.read_latency",
            "SSD: flash access of a read",
            Value::Time(ssd.read_latency),
            INTEL,
        ),
        entry(
            "device.*.write_latency",
            "SSD: flash access of a write",
            Value::Time(ssd.write_latency),
            INTEL,
        ),
        entry(
            "device.*.read_bandwidth",
            "SSD: sequential reads",
            bandwidth(ssd.read_bandwidth),
            INTEL,
        ),
        entry(
            "device.*.write_bandwidth",
            "SSD: sequential writes",
            bandwidth(ssd.write_bandwidth),
            INTEL,
        ),
        entry(
            "device.*.parallel",
            "SSD: accesses that overlap",
            Value::Number(f64::from(ssd.parallel), ""),
            "84,000 reads/s of 4 KiB (Intel) × read_latency",
        ),
        entry(
            "device.*.queue_depth",
            "SSD: requests in the drive",
            Value::Number(f64::from(ssd.queue_depth), ""),
            "SATA native command queueing",
        ),
    ]
}

fn hdd_parameters() -> Vec<Parameter> {
    let hdd = HddParams::default();
    vec![
        entry(
            "device.*.capacity",
            "size of a disk: 1 TB as vendors count, while units of sizes are powers of 1024",
            Value::Bytes(hdd.capacity),
            "vMigrater (USENIX ATC 2018), §5",
        ),
        entry(
            "device.*.rpm",
            "HDD: revolutions per minute",
            Value::Number(f64::from(hdd.rpm), "/min"),
            SEAGATE,
        ),
        entry(
            "device.*.seek_track",
            "HDD: seek to the next track",
            Value::Time(hdd.seek_track),
            "typical of data sheets of 7200 rpm drives",
        ),
        entry(
            "device.*.seek_average",
            "HDD: seek over a third of the disk",
            Value::Time(hdd.seek_average),
            "data sheets of 7200 rpm drives: average read seek",
        ),
        entry(
            "device.*.seek_full",
            "HDD: seek over the whole disk",
            Value::Time(hdd.seek_full),
            "assumed: twice the average",
        ),
        entry(
            "device.*.bandwidth",
            "HDD: from the platter",
            bandwidth(hdd.bandwidth),
            SEAGATE,
        ),
        entry(
            "device.*.link",
            "HDD: from the drive's buffer",
            bandwidth(hdd.link),
            "SATA 6 Gbit/s",
        ),
        Parameter {
            tried: "0 and 1.25 MB (test of figure 2a)",
            ..entry(
                "device.*.read_ahead",
                "HDD: read ahead into the drive's buffer",
                Value::Bytes(hdd.read_ahead),
                "assumed: one track",
            )
        },
    ]
}

fn deadline_parameters() -> Vec<Parameter> {
    let deadline = DeadlineParams::default();
    vec![
        entry(
            "device.*.read_expire",
            "deadline: a read's longest wait for its batch",
            Value::Time(deadline.read_expire),
            DEADLINE,
        ),
        entry(
            "device.*.write_expire",
            "deadline: a write's longest wait for its batch",
            Value::Time(deadline.write_expire),
            DEADLINE,
        ),
        entry(
            "device.*.batch",
            "deadline: requests of a batch",
            Value::Number(f64::from(deadline.batch), ""),
            DEADLINE,
        ),
        entry(
            "device.*.writes_starved",
            "deadline: batches of reads while writes wait",
            Value::Number(f64::from(deadline.writes_starved), ""),
            DEADLINE,
        ),
    ]
}

fn anticipatory_parameters() -> Vec<Parameter> {
    let cfq = AnticipatoryParams::default();
    vec![
        entry(
            "device.*.slice_idle",
            "anticipatory: wait for a queue's next request (on SSDs 0)",
            Value::Time(cfq.slice_idle),
            CFQ,
        ),
        entry(
            "device.*.group_idle",
            "anticipatory: wait for a VM's next request",
            Value::Time(cfq.group_idle),
            CFQ,
        ),
        entry(
            "device.*.slice",
            "anticipatory: time that one queue is served",
            Value::Time(cfq.slice),
            CFQ,
        ),
        entry(
            "device.*.target_latency",
            "anticipatory: every VM is served within",
            Value::Time(cfq.target_latency),
            CFQ,
        ),
        entry(
            "device.*.expire",
            "anticipatory: a request's longest wait in its queue's slice",
            Value::Time(cfq.expire),
            CFQ,
        ),
        entry(
            "device.*.quantum",
            "anticipatory: requests of one VM in the disk",
            Value::Number(f64::from(cfq.quantum), ""),
            CFQ,
        ),
    ]
}
