// SPDX-License-Identifier: GPL-2.0-only
//! What vMigrater (USENIX ATC 2018, §2.3, figure 2) found: two VMs of 4 vCPUs on 4 pCPUs, a
//! compute-bound task on every vCPU, slices of 11 ms (§5), CFQ that waits 8 ms.

use super::*;
use crate::device::disk::{
    AnticipatoryParams, DiskParams, HddParams, MediumParams, SchedulerParams, SsdParams,
};
use crate::load::IoAchieved;
use crate::sched::cfs::{Cfs, CfsParams};

const HOG: &str = "loop { compute 100ms }";
/// SysBench's sequential read: blocks of 16 KiB.
const READER: &str = "loop { read 16KB; count }";

/// A disk under CFQ.
fn under_cfq(medium: MediumParams) -> DiskSpec {
    DiskSpec {
        name: "disk".into(),
        params: DiskParams {
            scheduler: SchedulerParams::Anticipatory(AnticipatoryParams::default()),
            ..DiskParams::new(medium)
        },
    }
}

fn hdd() -> DiskSpec {
    under_cfq(MediumParams::Hdd(HddParams::default()))
}

fn ssd() -> DiskSpec {
    under_cfq(MediumParams::Ssd(SsdParams::default()))
}

/// Four hogs, and so many readers.
fn guest(name: &str, readers: usize, weight: Option<u32>) -> VmSpec {
    let mut programs = vec![HOG; 4];
    programs.extend(vec![READER; readers]);
    let mut spec = vm(name, GuestParams::default(), &programs);
    spec.vcpus = 4;
    spec.weight = weight;
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = None);
    spec.disk = Some(image());
    spec
}

fn cfs_run(disk: DiskSpec, vms: Vec<VmSpec>, seed: u64) -> Outcome {
    let host = machine(4, Costs::default());
    let mut cfs = CfsParams::preset("rhel-virtual-host", 4).unwrap();
    // Two vCPUs per pCPU: slices of 11 ms.
    cfs.latency = 22 * MS;
    let sched = Box::new(Cfs::new(cfs, &host));
    let guests = Guests::with_disks(vms, Vec::new(), &[disk], seed).unwrap();
    Simulation::new(host, sched, Box::new(guests), None).run(SEC, 4 * SEC, |_| {})
}

fn io(outcome: &Outcome, vm: usize) -> &IoAchieved {
    outcome.vms[vm].achieved.io.as_ref().unwrap()
}

/// MB/s of all VMs' threads.
fn total(outcome: &Outcome) -> f64 {
    let vms = outcome.vms.iter();
    let bytes = vms.filter_map(|vm| Some(vm.achieved.io.as_ref()?.bytes));
    bytes.sum::<u64>() as f64 / (outcome.measured as f64 / 1e3)
}

/// Each VM in a CPU control group, as libvirt starts them.
const EQUAL: Option<u32> = Some(100);

/// Figure 2a: "about half", the share of time that the reader's vCPU has a pCPU. The paper does not
/// say which disk it was; this is a solid-state disk.
#[test]
fn a_reader_loses_its_vcpus_inactive_time() {
    let alone = cfs_run(ssd(), vec![guest("a", 1, EQUAL)], 1);
    let shared = cfs_run(ssd(), vec![guest("a", 1, EQUAL), guest("b", 0, EQUAL)], 1);
    let alone_total = total(&alone);
    assert!(
        (545.0..=550.1).contains(&alone_total),
        "the disk's own: {alone_total}"
    );
    let left = total(&shared) / alone_total;
    assert!((0.45..=0.55).contains(&left), "{left} is left");
    assert_eq!(io(&alone, 0).inactivity, 0);
    let inactive = io(&shared, 0).inactivity as f64 / shared.measured as f64;
    assert!((0.45..=0.55).contains(&inactive), "{inactive} of the time");
    // The reader learns of its data when its vCPU has a pCPU again.
    let slowest = |outcome| io(outcome, 0).waits.quantile(0.99);
    assert!(
        slowest(&alone) < MS && slowest(&shared) > 9 * MS,
        "{}",
        slowest(&shared)
    );
}

/// On a hard disk some of that is made up for: the drive reads on into its buffer meanwhile.
#[test]
fn a_drives_buffer_reads_on_for_an_inactive_reader() {
    let left = |read_ahead| {
        let disk = under_cfq(MediumParams::Hdd(HddParams {
            read_ahead,
            ..HddParams::default()
        }));
        let alone = cfs_run(disk.clone(), vec![guest("a", 1, EQUAL)], 1);
        let shared = cfs_run(disk, vec![guest("a", 1, EQUAL), guest("b", 0, EQUAL)], 1);
        total(&shared) / total(&alone)
    };
    let (buffer, none) = (left(1_250_000), left(0));
    assert!(
        (0.5..0.8).contains(&buffer) && none < 0.5,
        "{buffer}, without {none}"
    );
}

/// Figure 2b: the total of two readers, one in each VM, drops by more than half: the scheduler waits
/// for readers that are inactive, and seeks to and fro.
#[test]
fn anticipation_waits_in_vain_for_inactive_vms() {
    let alone = cfs_run(hdd(), vec![guest("a", 2, EQUAL)], 1);
    let shared = cfs_run(hdd(), vec![guest("a", 1, EQUAL), guest("b", 1, EQUAL)], 1);
    let left = total(&shared) / total(&alone);
    assert!(left < 0.5, "{left} is left");
    let [alone, shared] = [&alone, &shared].map(|outcome| outcome.devices[0].totals);
    assert!(
        shared.held > 3 * SEC / 4 && alone.held == 0,
        "{shared:?} {alone:?}"
    );
    assert!(shared.seeks > 4 * alone.seeks, "{shared:?} {alone:?}");
}

/// Figure 2c: with a fifth and four fifths of the CPU and equal I/O priority, the VM with more CPU
/// gets even more of the disk than of the CPU.
#[test]
fn less_cpu_is_far_less_io() {
    let vms = vec![guest("a", 1, Some(20)), guest("b", 1, Some(80))];
    let shared = cfs_run(hdd(), vms, 1);
    let cpu = |vm: usize| -> Nanos { shared.vms[vm].vcpus.iter().map(|vcpu| vcpu.run).sum() };
    let ratio = cpu(1) as f64 / cpu(0) as f64;
    assert!((3.8..=4.2).contains(&ratio), "{ratio}");
    let ratio = io(&shared, 1).bytes as f64 / io(&shared, 0).bytes as f64;
    assert!(ratio > 5.0, "{ratio}");
}
