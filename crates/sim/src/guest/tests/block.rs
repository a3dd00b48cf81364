// SPDX-License-Identifier: GPL-2.0-only
//! Reads and writes that can be computed by hand.

use super::*;
use crate::device::disk::{DiskParams, HddParams, MediumParams, SchedulerParams, SsdParams};
use crate::load::IoAchieved;
use corun_model::time::US;

const KIB: u64 = 1 << 10;

/// A guest kernel whose own work costs nothing.
fn free_block() -> GuestParams {
    GuestParams {
        block_submit: 0,
        cached_read: 0,
        copy_kib: 0,
        ..free()
    }
}

/// The medium alone: getting there and back takes no time.
fn disk(medium: MediumParams) -> DiskSpec {
    DiskSpec {
        name: "disk".into(),
        params: DiskParams {
            scheduler: SchedulerParams::None,
            submit: 0,
            complete: 0,
            ..DiskParams::new(medium)
        },
    }
}

fn ssd() -> DiskSpec {
    disk(MediumParams::Ssd(SsdParams::default()))
}

fn hdd() -> DiskSpec {
    disk(MediumParams::Hdd(HddParams::default()))
}

/// The VM with an image on the first disk.
fn stored(mut vm: VmSpec) -> VmSpec {
    vm.disk = Some(image());
    vm
}

fn run_on(pcpus: u32, slice: Nanos, disk: DiskSpec, vms: Vec<VmSpec>) -> Outcome {
    let guests = Guests::with_disks(vms, Vec::new(), &[disk], 1).unwrap();
    simulate(machine(pcpus, FREE), slice, guests)
}

fn io(outcome: &Outcome, vm: usize) -> &IoAchieved {
    outcome.vms[vm].achieved.io.as_ref().unwrap()
}

/// One I/O thread and a hog on one vCPU.
fn with_hog(params: GuestParams, program: &str) -> VmSpec {
    let mut spec = stored(vm("a", params, &["loop { compute 100ms }", program]));
    spec.vcpus = 1;
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = Some(0));
    spec
}

#[test]
fn a_random_read_takes_what_its_parts_take() {
    let params = GuestParams {
        block_submit: 4 * US,
        interrupt: 2 * US,
        ..free_block()
    };
    let mut disk = ssd();
    (disk.params.submit, disk.params.complete) = (10 * US, 5 * US);
    let reader = stored(vm("a", params, &["loop { read 4KB random; count reads }"]));
    let outcome = run_on(1, 10 * MS, disk, vec![reader]);
    // 4 us to the kick, 10 to the disk, 55.448 there, 5 back, 2 in the interrupt.
    let time = 4 * US + 10 * US + 55_448 + 5 * US + 2 * US;
    let io = io(&outcome, 0);
    assert!(io.operations.abs_diff(SEC / time) <= 1, "{}", io.operations);
    assert_eq!(io.bytes, io.operations * 4 * KIB);
    assert!(
        io.waits.quantile(0.5).abs_diff(time) < 100,
        "{:?}",
        io.waits
    );
    assert_eq!(io.inactivity, 0);
    // Nothing is read ahead: the thread waits for nothing but the request, except for the interrupt's own work.
    let taken = time - 2 * US;
    let [reads, writes] = io.requests;
    assert!(reads.count.abs_diff(io.operations) <= 1, "{reads:?}");
    let mean = reads.total / reads.count;
    assert!(mean.abs_diff(taken) < 10, "{mean} instead of {taken}");
    assert_eq!((writes.count, writes.mean()), (0, None));
    let busy = outcome.devices[0].totals.busy;
    assert!(busy.abs_diff(io.operations * 55_448) < 60 * US, "{busy}");
}

/// Read-ahead counts as a request, too, whether or not a thread waits for it.
#[test]
fn requests_count_that_nobody_waits_for() {
    let vms = vec![stored(vm(
        "a",
        free_block(),
        &["loop { read 16KB; compute 200us }"],
    ))];
    let outcome = run_on(1, 10 * MS, hdd(), vms);
    let io = io(&outcome, 0);
    assert!(io.waits.count() <= 1, "{:?}", io.waits);
    // 128 KiB each, which the disk has read ahead itself: 600 MB/s from its buffer.
    let [reads, _] = io.requests;
    assert!(
        reads.count.abs_diff(io.bytes / (128 * KIB)) <= 2,
        "{reads:?}"
    );
    let mean = reads.total / reads.count;
    assert!(mean.abs_diff(218_453) < 2 * US, "{mean}");
}

/// A write is no read.
#[test]
fn requests_to_write_are_counted_apart() {
    let vms = vec![stored(vm(
        "a",
        free_block(),
        &["loop { write 4KB; count writes }"],
    ))];
    let outcome = run_on(1, 10 * MS, ssd(), vms);
    let io = io(&outcome, 0);
    let [reads, writes] = io.requests;
    assert_eq!(reads.count, 0);
    assert!(writes.count.abs_diff(io.operations) <= 1, "{writes:?}");
}

#[test]
fn read_ahead_overlaps_with_work() {
    let reader = |program| {
        let vms = vec![stored(vm("a", free_block(), &[program]))];
        let outcome = run_on(1, 10 * MS, hdd(), vms);
        io(&outcome, 0).bytes
    };
    // The disk streams 150 MB/s, in pieces of 128 KiB per 874 us.
    let alone = reader("loop { read 16KB }");
    assert!((149_000_000..=151_000_000).contains(&alone), "{alone}");
    // 50 us of work per 16 KiB are 400 us per piece: hidden behind the next.
    let beside_work = reader("loop { read 16KB; compute 50us }");
    assert!(
        (149_000_000..=151_000_000).contains(&beside_work),
        "{beside_work}"
    );
    // 200 us are 1.6 ms per piece: the work is slower than the disk, and never waits for it.
    let slow = reader("loop { read 16KB; compute 200us }");
    assert_eq!(slow.div_ceil(16 * KIB), 5000);
}

#[test]
fn writes_wait_for_the_disk() {
    let vms = vec![stored(vm(
        "a",
        free_block(),
        &["loop { write 4KB; compute 100us }"],
    ))];
    let outcome = run_on(1, 10 * MS, hdd(), vms);
    // Each write has just missed its place: a turn of the platter, 8.33 ms.
    assert_eq!(io(&outcome, 0).operations, 120);
    assert_eq!(outcome.devices[0].totals.seeks, 0);
}

/// One write at a time; all threads that come meanwhile are served together by the next one.
#[test]
fn appends_to_a_log_go_together() {
    let program = "loop { append wal 4KB; compute 100us; count commits }";
    // The next writer has just missed its place.
    let params = GuestParams {
        block_submit: 4 * US,
        ..free_block()
    };
    let run = |programs: &[&str]| {
        let mut spec = stored(vm("a", params, programs));
        spec.vcpus = programs.len() as u32;
        for (at, thread) in spec.threads.iter_mut().enumerate() {
            thread.vcpu = Some(at as u32);
        }
        let outcome = run_on(programs.len() as u32, 10 * MS, hdd(), vec![spec]);
        let io = io(&outcome, 0);
        (io.operations, io.bytes, outcome.devices[0].totals)
    };
    // Alone: a turn of the platter each, as with `write`.
    let (operations, ..) = run(&[program]);
    assert_eq!(operations, 120);
    // Of three threads, one and the two others write alternately: a turn of the platter each, and
    // no seek.
    let (operations, bytes, totals) = run(&[program; 3]);
    assert!((178..=181).contains(&operations), "{operations}");
    assert_eq!(bytes, operations * 4 * KIB);
    assert!((119..=121).contains(&totals.requests), "{totals:?}");
    assert_eq!(totals.seeks, 0);
    // Two logs are two files: the arm goes to and fro.
    let other = "loop { append other 4KB; compute 100us; count commits }";
    assert!(run(&[program, other]).2.seeks > 50);
    // Long ones are cut into pieces, and begin again where the log's part of the image ends.
    let long = "loop { append wal 3MB; count commits }";
    let (operations, bytes, totals) = run(&[long; 2]);
    assert_eq!(bytes, operations * 3072 * KIB);
    assert!(totals.requests.abs_diff(3 * operations) <= 6, "{totals:?}");
}

#[test]
fn a_large_direct_access_is_several_requests_and_one_wait() {
    let vms = vec![stored(vm(
        "a",
        free_block(),
        &["loop { read 4MB random; compute 1ms }"],
    ))];
    let outcome = run_on(1, 10 * MS, ssd(), vms);
    let (io, totals) = (io(&outcome, 0), outcome.devices[0].totals);
    assert!(
        totals.requests.abs_diff(4 * io.operations) <= 8,
        "{totals:?}"
    );
    assert_eq!(io.waits.count(), io.operations);
    // 4 MiB at 550 MB/s and 1 ms of work.
    assert!((115..=117).contains(&io.operations), "{}", io.operations);
}

#[test]
fn a_completion_for_a_descheduled_vcpu_waits_until_it_runs() {
    let reads = |slice| {
        let hog = on(0, vm("b", free(), &["loop { compute 100ms }"]));
        let reader = with_hog(free_block(), "loop { read 4KB random; count }");
        let outcome = run_on(1, slice, ssd(), vec![reader, hog]);
        let io = io(&outcome, 0);
        (io.operations, io.inactivity)
    };
    // In a slice of 10 ms it reads 180 times; in the 10 ms without a pCPU the last read is done at
    // once, but the guest does not learn of it: inactive for half of the time.
    let (operations, inactivity) = reads(10 * MS);
    assert!((8_800..=9_200).contains(&operations), "{operations}");
    assert!(inactivity.abs_diff(SEC / 2) < SEC / 100, "{inactivity}");
}

#[test]
fn interrupts_go_to_the_issuer_or_to_vcpu_0() {
    // The reader stays on vCPU 1, which has a pCPU of its own; vCPU 0 shares one with a hog.
    let reads = |block_irq| {
        let params = GuestParams {
            block_irq,
            ..free_block()
        };
        let mut reader = stored(vm(
            "a",
            params,
            &["loop { compute 100ms }", "loop { read 4KB random; count }"],
        ));
        reader.allowed = PcpuSet::first(2);
        let hog = on(0, vm("b", free(), &["loop { compute 100ms }"]));
        let outcome = run_on(2, 10 * MS, ssd(), vec![reader, hog]);
        io(&outcome, 0).operations
    };
    let (issuer, vcpu0) = (reads(BlockIrq::Issuer), reads(BlockIrq::Vcpu0));
    assert!(issuer > 17_000, "{issuer}");
    assert!(vcpu0 * 10 < issuer * 7, "{vcpu0} of {issuer}");
}

#[test]
fn a_vcpu_reserved_for_interrupts_has_nothing_else_to_do() {
    let run = |block_irq| {
        let params = GuestParams {
            block_irq,
            ..free_block()
        };
        let hog = "loop { compute 100ms }";
        let reader = "loop { read 4KB random; count }";
        let mut spec = stored(vm("a", params, &[hog, hog, reader]));
        let threads = spec.threads.iter_mut().take(2);
        threads.for_each(|thread| thread.vcpu = None);
        spec.vcpus = 2;
        spec.threads[2].vcpu = Some(1);
        let outcome = run_on(2, 10 * MS, ssd(), vec![spec]);
        let work = outcome.vms[0].achieved.work;
        (work * 100 / outcome.measured, io(&outcome, 0).operations)
    };
    let ((taken, _), (reserved, reads)) = (run(BlockIrq::Vcpu0), run(BlockIrq::Reserved));
    // Two vCPUs compute, or one.
    assert!(taken > 195, "{taken} %");
    assert!((95..=100).contains(&reserved), "{reserved} %");
    assert!(reads > 10_000, "{reads} reads");
}

#[test]
fn vms_without_room_on_a_disk() {
    let refused = |vm: VmSpec| {
        let error = Guests::with_disks(vec![vm], Vec::new(), &[ssd()], 1);
        error.unwrap_err().to_string()
    };
    let reader = || vm("a", free(), &["loop { read 4KB }"]);
    let message = refused(reader());
    assert_eq!(
        message,
        "VM a: its threads read or write, but it has no disk"
    );
    let sized = |program, size| {
        let mut spec = stored(vm("a", free(), &[program]));
        spec.disk.as_mut().unwrap().size = size;
        refused(spec)
    };
    let message = sized("loop { read 2MB }", 1 << 20);
    assert!(
        message.starts_with("VM a: a thread accesses 2097152 bytes at once"),
        "{message}"
    );
    let message = sized("loop { append wal 1MB }", 1 << 20);
    assert!(
        message.contains("524288 bytes for each of 1 threads and each log"),
        "{message}"
    );
    let message = sized("loop { read 4KB }", 2_000_000_000_000);
    assert!(
        message.contains("does not fit on disk disk of 1000000000000 bytes"),
        "{message}"
    );
    let message = sized("loop { read 4KB }", 4096);
    assert!(message.contains("accepted: at least 1 MiB"), "{message}");
    let mut elsewhere = stored(reader());
    elsewhere.disk.as_mut().unwrap().disk = 3;
    assert!(refused(elsewhere).contains("its disk is none of the host's 1"));
}

/// A VM that reads at random, with an emulator, and hogs on its pCPU.
fn emulated_reader(params: EmulatorParams, pcpus: u32, hogs: usize) -> Outcome {
    let mut disk = ssd();
    (disk.params.submit, disk.params.complete) = (10 * US, 5 * US);
    let mut reader = stored(on(0, vm("a", free_block(), &["loop { read 4KB random }"])));
    reader.emulator = Some(params);
    let hog = |n| on(1, vm(&format!("hog{n}"), free(), &["loop { compute 1s }"]));
    let vms = std::iter::once(reader).chain((0..hogs).map(hog));
    run_on(pcpus, MS, disk, vms.collect())
}

/// A thread of the host takes requests to the disk and completions back: on a pCPU of its own it
/// costs what fixed times would, next to a hog it waits for its turn twice per read.
#[test]
fn an_emulator_needs_a_pcpu() {
    let read = |pcpus: u32, hogs: usize| {
        let outcome = emulated_reader(EmulatorParams::default(), pcpus, hogs);
        io(&outcome, 0).operations
    };
    let passing = SEC / (10 * US + 55_448 + 5 * US);
    let alone = read(2, 0);
    assert!(alone.abs_diff(passing) <= passing / 100, "{alone}");
    let shared = read(1, 1);
    assert!(shared < alone / 4, "{shared} of {alone}");
}

/// Without ioeventfd the vCPU submits: a read takes as long, and the vCPU computes meanwhile; next to a hog there is
/// one turn less to wait for.
#[test]
fn without_ioeventfd_the_vcpu_submits() {
    let read = |ioeventfd, pcpus, hogs| {
        let params = EmulatorParams {
            ioeventfd,
            ..EmulatorParams::default()
        };
        let outcome = emulated_reader(params, pcpus, hogs);
        let reads = io(&outcome, 0).operations;
        let vcpu = &outcome.vms[0].vcpus[0];
        (reads, (vcpu.run - vcpu.polled) / reads)
    };
    let ((handed, thread), (own, vcpu)) = (read(true, 2, 0), read(false, 2, 0));
    assert!(own.abs_diff(handed) <= handed / 100, "{own}, {handed}");
    assert!(vcpu.abs_diff(thread + 10 * US) <= 100, "{vcpu}, {thread}");
    let (handed, own) = (read(true, 1, 1).0, read(false, 1, 1).0);
    assert!(own > handed + handed / 4, "{own}, {handed}");
}
