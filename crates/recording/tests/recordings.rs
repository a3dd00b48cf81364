// SPDX-License-Identifier: GPL-2.0-only
//! The committed recordings of a real KVM host, against figures worked out independently.
//!
//! The expected numbers come from a separate script that replays only `sched_switch`,
//! `sched_waking` and `sched_wakeup` per thread id and per pCPU, without this crate's code.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests state what they expect by panicking.

use corun_model::PcpuId;
use corun_recording::{
    AtEnd, AtStart, Format, Grouping, Import, Recording, Role, Task, VmThread, WakeCause,
};
use std::path::PathBuf;

const BURSTY: &str = "kvm-2pcpu-bursty-io-compute.ftrace.gz";
const SYNC: &str = "kvm-2pcpu-compute-sync-io.ftrace.gz";

fn import(name: &str) -> Import {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/recordings");
    corun_recording::read(&PathBuf::from(folder).join(name)).unwrap()
}

fn task(recording: &Recording, tid: u32) -> &Task {
    recording.tasks.iter().find(|t| t.tid == tid).unwrap()
}

/// Wake-ups by tasks, and by anything else.
fn causes(task: &Task) -> (usize, usize) {
    let count = |f: fn(&WakeCause) -> bool| task.bursts.iter().filter(|b| f(&b.wake)).count();
    (
        count(|w| matches!(w, WakeCause::Task { .. })),
        count(|w| matches!(w, WakeCause::External { .. })),
    )
}

/// Thread id; run, ready and wait time in µs; switches in; wake-ups by tasks and by others.
type Row = (u32, u64, u64, u64, u64, usize, usize);

fn check(recording: &Recording, rows: &[Row]) {
    for &(tid, run, ready, wait, switches_in, by_task, external) in rows {
        let task = task(recording, tid);
        let seen = &task.observed;
        let times = (seen.run / 1000, seen.ready / 1000, seen.wait / 1000);
        assert_eq!(times, (run, ready, wait), "times of {tid} {}", task.comm);
        assert_eq!(seen.switches_in, switches_in, "switches of {tid}");
        assert_eq!(causes(task), (by_task, external), "wake-ups of {tid}");
    }
}

/// What holds in any recording without lost events.
fn check_sums(recording: &Recording) {
    let duration = recording.duration();
    let run: u64 = recording.tasks.iter().map(|t| t.observed.run).sum();
    let idle: u64 = recording.observed.pcpus.iter().map(|p| p.idle).sum();
    assert_eq!(run + idle, duration * u64::from(recording.host.pcpus.value));
    for pcpu in &recording.observed.pcpus {
        assert_eq!(pcpu.busy + pcpu.idle, duration);
    }
    for task in &recording.tasks {
        let seen = &task.observed;
        let work: u64 = task.bursts.iter().map(|b| b.work).sum();
        assert_eq!(work, seen.run, "{}", task.tid);
        if task.at_start != AtStart::Unborn && task.at_end != AtEnd::Exited {
            assert_eq!(seen.run + seen.ready + seen.wait, duration, "{}", task.tid);
        }
        for burst in &task.bursts {
            if let WakeCause::Task { waker, waker_work } = burst.wake {
                assert!(waker_work <= recording.task(waker).unwrap().observed.run);
            }
        }
    }
}

#[test]
fn the_host_of_both() {
    for name in [BURSTY, SYNC] {
        let Import { recording, notes } = import(name);
        assert_eq!(notes, []);
        assert_eq!(recording.format, Format::Ftrace);
        assert_eq!(recording.host.pcpus.value, 2);
        assert_eq!(recording.host.pcpus.source, "the `# host:` line");
        let stated = |fact: &Option<corun_recording::Fact<String>>| fact.clone().unwrap().value;
        assert_eq!(stated(&recording.host.kernel), "7.2.13+deb14-cloud-amd64");
        assert_eq!(stated(&recording.host.scheduler), "EEVDF");
        assert_eq!(stated(&recording.host.clock), "mono");
        check_sums(&recording);
    }
}

#[test]
fn bursty_io_compute() {
    let recording = import(BURSTY).recording;
    assert_eq!(recording.duration(), 8_067_003_000);
    assert_eq!(recording.observed.switches, 8816);
    assert_eq!(recording.observed.events["kvm_exit"], 17_736);
    assert_eq!(recording.observed.events.values().sum::<u64>(), 62_049);
    assert_eq!(recording.observed.stacked, 5_286_583_000);
    assert_eq!(recording.observed.pcpus[0].idle, 6_345_000);
    assert_eq!(recording.observed.pcpus[1].idle, 0);
    check(
        &recording,
        &[
            (119, 1_468_145, 2_515_695, 4_083_163, 1758, 1329, 0),
            (126, 2_017_961, 3_453_654, 2_595_388, 1081, 222, 365),
            (130, 2_380_710, 3_828_401, 1_857_892, 1081, 149, 183),
            (131, 1_148_719, 2_060_889, 4_857_395, 885, 308, 166),
            (132, 3_629_585, 4_437_418, 0, 952, 0, 0),
            (134, 3_513_474, 4_553_529, 0, 1049, 0, 0),
            (135, 1_496_492, 2_331_888, 4_238_623, 1007, 365, 231),
            (218, 109_191, 297_894, 7_659_918, 285, 266, 0),
            (26, 617, 238_944, 7_827_442, 5, 2, 3),
            (118, 0, 0, 8_067_003, 0, 0, 0),
        ],
    );
    assert_eq!(task(&recording, 135).observed.migrations, 7);
    assert_eq!(task(&recording, 41).observed.migrations, 16);
    assert_eq!(task(&recording, 134).at_start, AtStart::Ready);
    assert_eq!(task(&recording, 135).at_start, AtStart::Running(PcpuId(0)));
    assert_eq!(task(&recording, 134).at_end, AtEnd::Running(PcpuId(0)));
    assert_eq!(task(&recording, 266).at_start, AtStart::Unborn);
    assert_eq!(task(&recording, 266).at_end, AtEnd::Exited);
}

#[test]
fn compute_sync_io() {
    let recording = import(SYNC).recording;
    assert_eq!(recording.duration(), 8_055_750_000);
    assert_eq!(recording.observed.switches, 8240);
    assert_eq!(recording.observed.events["kvm_vcpu_wakeup"], 2819);
    assert_eq!(recording.observed.events.values().sum::<u64>(), 68_488);
    assert_eq!(recording.observed.stacked, 8_187_228_000);
    assert_eq!(recording.observed.pcpus[0].idle, 2_124_000);
    assert_eq!(recording.observed.pcpus[1].idle, 7_007_000);
    check(
        &recording,
        &[
            (120, 1_049_914, 2_473_572, 4_532_264, 1111, 922, 0),
            (128, 2_524_522, 3_893_528, 1_637_700, 1523, 707, 256),
            (130, 3_560_667, 4_495_083, 0, 914, 0, 0),
            (131, 2_240_110, 3_783_006, 2_032_634, 1494, 736, 264),
            (132, 3_442_100, 4_613_650, 0, 909, 0, 0),
            (133, 1_612_458, 2_712_166, 3_731_126, 916, 283, 214),
            (134, 1_208_207, 2_118_548, 4_728_995, 644, 234, 119),
            (50, 35_658, 59_924, 7_960_168, 40, 1, 35),
        ],
    );
}

#[test]
fn vms_and_their_threads() {
    let expected = [
        (
            BURSTY,
            ["vm1-bursty", "vm2-io", "vm3-compute"],
            [[126, 130], [131, 135], [132, 134]],
        ),
        (
            SYNC,
            ["vm1-compute", "vm2-sync", "vm3-io"],
            [[130, 132], [128, 131], [133, 134]],
        ),
    ];
    for (file, names, vcpus) in expected {
        let recording = import(file).recording;
        let seen: Vec<_> = recording.vms.iter().map(|vm| vm.name.as_str()).collect();
        assert_eq!(seen, names);
        for (vm, vcpus) in recording.vms.iter().zip(vcpus) {
            let tids: Vec<_> = vm
                .vcpus
                .iter()
                .map(|&t| recording.task(t).unwrap().tid)
                .collect();
            assert_eq!(tids, vcpus, "{}", vm.name);
            assert_eq!(vm.grouping, Grouping::Stated);
        }
    }
    let recording = import(BURSTY).recording;
    let kind = |tid| match task(&recording, tid).role {
        Role::VmThread { vm, kind } => Some((vm.0, kind)),
        _ => None,
    };
    assert_eq!(kind(119), Some((1, VmThread::Emulator)));
    assert_eq!(kind(241), Some((1, VmThread::Worker)));
    assert_eq!(kind(41), None);
}
