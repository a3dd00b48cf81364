// SPDX-License-Identifier: GPL-2.0-only
//! Pause-loop exits under schedulers that can be told which vCPU to let go first.

use super::*;
use crate::guest::interrupts::Interrupt;
use crate::sched::HostScheduler;
use crate::sched::cfs::{Cfs, CfsParams};
use crate::sched::dispatcher::Dispatcher;
use crate::sched::eevdf::{Eevdf, EevdfParams};
use crate::sched::forward::forward;
use corun_model::time::US;
use corun_model::{Allotments, Claim, DispatcherParams, Gang, Placement, Plan, TaskId, VmPlan};

const HOG: &str = "loop { compute 100ms }";
const LOCKER: &str = "loop { compute 100us ±50%; lock l { compute 100us }; count }";

fn ticket(ple_window: Option<Nanos>) -> GuestParams {
    GuestParams {
        lock: LockKind::Ticket,
        ple_window,
        ..free()
    }
}

fn under(name: &str, vms: Vec<VmSpec>) -> Outcome {
    let host = machine(2, FREE);
    let sched: Box<dyn HostScheduler> = match name {
        "cfs" => Box::new(Cfs::new(CfsParams::preset("4.x", 2).unwrap(), &host)),
        "dispatcher" => Box::new(Dispatcher::new(DispatcherParams::default(), &host)),
        eevdf => Box::new(Eevdf::new(EevdfParams::preset(eevdf, 2).unwrap(), &host)),
    };
    let guests = Guests::new(vms, Vec::new(), 1).unwrap();
    let warm_up = 100 * MS;
    Simulation::new(host, sched, Box::new(guests), None).run(warm_up, warm_up + 3 * SEC, |_| {})
}

/// A locker on each of two pCPUs, with a hog on the first: the locker there is preempted while it
/// holds the lock.
fn holder_and_hog(ple_window: Option<Nanos>) -> Vec<VmSpec> {
    let mut lockers = vm("a", ticket(ple_window), &[LOCKER; 2]);
    lockers.allowed = PcpuSet::first(2);
    vec![lockers, on(0, vm("hog", free(), &[HOG]))]
}

fn preempted_holder(scheduler: &str, ple_window: Option<Nanos>) -> Outcome {
    under(scheduler, holder_and_hog(ple_window))
}

/// The spinner lets the holder go first, so that waits are shorter than slices; without that, they are as long.
#[test]
fn a_preempted_holder_is_favoured() {
    for scheduler in ["cfs", "7.x", "dispatcher"] {
        let waits = |ple| {
            let outcome = preempted_holder(scheduler, ple);
            outcome.vms[0].achieved.lock_waits.quantile(0.99)
        };
        let (without, with) = (waits(None), waits(Some(2 * US)));
        assert!(without > MS, "{scheduler}: {without}");
        assert!(with * 3 < without * 2, "{scheduler}: {with} of {without}");
    }
}

/// The dispatcher with a gang for each VM.
struct Ganged(Dispatcher, Vec<Gang>);

impl HostScheduler for Ganged {
    forward! { 0: know_vms know_cgroups wake block pick tick timer directs_yields yield_pcpu flush_ipi co_stopped throttled turns }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        self.0.add(host, task);
        let vm = |(index, gang): (usize, &Gang)| VmPlan {
            gang: *gang,
            ..VmPlan::placed(VmId::from(index), Placement::Balance)
        };
        let plan = Plan {
            vms: self.1.iter().enumerate().map(vm).collect(),
            ..Plan::default()
        };
        self.0.apply(host, &plan);
    }
}

/// Where siblings are called to run together, yields must not disturb that. A VM without a gang, or with one that
/// leaves fair order as it is, yields whatever gangs other VMs have, but not on a pCPU of a VM with a gang that calls
/// siblings.
#[test]
fn gangs_are_asked_which_vcpu_may_be_favoured() {
    let improves = |gangs: [Gang; 2]| {
        let waits = |ple| {
            let host = machine(2, FREE);
            let sched = Dispatcher::new(DispatcherParams::default(), &host);
            let guests = Guests::new(holder_and_hog(ple), Vec::new(), 1).unwrap();
            let sched = Box::new(Ganged(sched, Vec::from(gangs)));
            let (warm_up, end) = (100 * MS, 3100 * MS);
            let run =
                Simulation::new(host, sched, Box::new(guests), None).run(warm_up, end, |_| {});
            run.vms[0].achieved.lock_waits.quantile(0.99)
        };
        let (without, with) = (waits(None), waits(Some(2 * US)));
        with * 3 < without * 2
    };
    let asymmetric = Gang::Asymmetric(Allotments {
        period: 100 * MS,
        neutral: 4 * MS,
        has: Claim::NEUTRAL,
    });
    assert!(improves([asymmetric, asymmetric]));
    assert!(improves([Gang::None, asymmetric]));
    assert!(!improves([Gang::Dynamic, Gang::None]));
    assert!(!improves([Gang::None, Gang::Dynamic]));
}

/// However often it is favoured, no vCPU gets further ahead than a slice of those that it goes before.
#[test]
fn a_favoured_vcpu_takes_no_turn_on_top() {
    let hogs_wait = |ple| {
        let outcome = preempted_holder("dispatcher", ple);
        let hog = &outcome.vms[1];
        // Its own half of the pCPU, and what the lockers leave of theirs.
        let run = hog.vcpus[0].run;
        assert!(run * 2 > 3 * SEC, "{run} ns");
        hog.ready_waits.quantile(0.99)
    };
    let (without, favoured) = (hogs_wait(None), hogs_wait(Some(2 * US)));
    let slice = DispatcherParams::default().slice;
    assert!(favoured < without + slice / 10, "{favoured}, {without} ns");
}

/// No thread in user mode holds a kernel's lock: a sibling that computes gains nothing from others' spinning. (Under
/// EEVDF it does, since a vCPU that yields forfeits the rest of its slice.)
#[test]
fn a_vcpu_that_computes_is_not_favoured() {
    for scheduler in ["cfs", "dispatcher"] {
        let computes = |ple| {
            let mut app = vm("a", ticket(ple), &[HOG, LOCKER, LOCKER]);
            app.allowed = PcpuSet::first(2);
            let outcome = under(scheduler, vec![app, vm("hog", free(), &[HOG, HOG])]);
            outcome.vms[0].vcpus[0].run
        };
        let (without, with) = (computes(None), computes(Some(2 * US)));
        // Which vCPU has its turn may change: both get about the same.
        let near = without / 5 * 4..without / 4 * 5;
        assert!(near.contains(&with), "{scheduler}: {with} of {without}");
    }
}

/// The CPU does not look for PAUSE in user mode (Intel's manual, volume 3, on PAUSE-loop exiting).
#[test]
fn spinning_in_user_mode_is_not_noticed() {
    let program = "loop { compute 100us ±50%; spin-barrier b; count }";
    let app = vm("a", ticket(Some(2 * US)), &[program; 2]);
    let outcome = under("cfs", vec![app, on(0, vm("hog", free(), &[HOG]))]);
    assert!(outcome.vms[0].achieved.spin > 0);
    assert_eq!(outcome.vms[0].achieved.pause_loop_exits, 0);
}

/// vCPUs 1 to 3 wait in the kernel; 2 is a spinner itself.
#[test]
fn siblings_are_tried_in_turn_and_spinners_every_other_time() {
    let host_params = machine(1, FREE);
    let mut offered = Vec::new();
    let mut vms = Guests::new(vec![vm("a", free(), &[HOG; 4])], Vec::new(), 1)
        .unwrap()
        .vms;
    let vm = &mut vms[0];
    for vcpu in &mut vm.vcpus {
        vcpu.mode = vcpu::Mode::Ready;
        vcpu.current = None;
    }
    vm.vcpus[2].yielding = crate::guest::spinning::Yielding::PassedOver;
    let mut host = Host::new(host_params, None);
    let mut spin = |vm: &mut vm::Vm, answer| {
        offered.clear();
        vm.on_spin(&mut host, 0, &mut |_, task| {
            offered.push(task.0);
            answer
        });
        offered.clone()
    };
    assert_eq!(spin(vm, Offered::Taken), [1]);
    assert_eq!(spin(vm, Offered::Taken), [3], "2 is passed over");
    assert_eq!(spin(vm, Offered::Taken), [1], "in turn");
    assert_eq!(spin(vm, Offered::Taken), [2], "the second time");
    assert_eq!(
        spin(vm, Offered::Refused),
        [3, 1],
        "all are asked, 2 is passed over"
    );
    vm.vcpus[1].mode = vcpu::Mode::Halted;
    assert_eq!(spin(vm, Offered::Pointless), [3, 2]);
}

/// vCPU 1 was preempted in its kernel, 2 has halted and was woken, 3 was preempted in user mode with an
/// interrupt to take, 4 without.
#[test]
fn which_vcpu_a_spinner_may_wait_for_depends_on_the_kernel() {
    let candidates = |rule| {
        let params = GuestParams {
            ple_favours: rule,
            ..free()
        };
        let mut vms = Guests::new(vec![vm("a", params, &[HOG; 5])], Vec::new(), 1)
            .unwrap()
            .vms;
        let vm = &mut vms[0];
        for (index, vcpu) in vm.vcpus.iter_mut().enumerate() {
            vcpu.mode = vcpu::Mode::Ready;
            (vcpu.overhead, vcpu.current) = (0, Some(index as u32));
            vcpu.woken = index == 2;
        }
        vm.vcpus[1].overhead = 1;
        vm.vcpus[3].pending.push(Interrupt::Kick);
        let mut offered = Vec::new();
        let mut host = Host::new(machine(1, FREE), None);
        vm.on_spin(&mut host, 0, &mut |_, task| {
            offered.push(task.0);
            Offered::Refused
        });
        offered
    };
    assert_eq!(candidates(PleFavours::Preempted), [1]);
    assert_eq!(candidates(PleFavours::Woken), [1, 2]);
    assert_eq!(candidates(PleFavours::Interrupted), [1, 2, 3]);
}

/// Two lockers with a pCPU each and a lock held for 10 ms: a waiter with a window of 2 us leaves its guest
/// 5000 times in that time. One whose window doubles each time, until it has been 2 s long, does so 20
/// times in all, as it never loses its pCPU.
#[test]
fn windows_widen_until_the_vcpu_is_scheduled_anew() {
    let exits = |ple_grow, hogs: &[&str]| {
        let params = GuestParams {
            ple_grow,
            ..ticket(Some(2 * US))
        };
        let app = vm("a", params, &["loop { lock l { compute 10ms }; count }"; 2]);
        let outcome = under("cfs", vec![app, vm("hog", free(), hogs)]);
        outcome.vms[0].achieved.pause_loop_exits
    };
    let (fixed, widened) = (exits(1, &[]), exits(2, &[]));
    assert!(fixed > 1_000_000, "{fixed}");
    assert!(widened <= 40, "{widened}");
    // A vCPU that is put back on its pCPU begins with the first window again.
    let shared = exits(2, &[HOG, HOG]);
    assert!(shared > 10 * widened.max(1), "{shared}");
}

/// VMs under `balance` for 400 ms, on a host where switches have their default costs.
fn balanced(pcpus: u32, vms: Vec<VmSpec>) -> Outcome {
    let host = machine(pcpus, Costs::default());
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let sched = Box::new(Ganged(sched, vec![Gang::None; vms.len()]));
    let guests = Guests::new(vms, Vec::new(), 1).unwrap();
    let (warm_up, end) = (100 * MS, 500 * MS);
    Simulation::new(host, sched, Box::new(guests), None).run(warm_up, end, |_| {})
}

/// Pause-loop exits as on hosts whose CPUs do not deliver interrupts to guests themselves.
fn noticed() -> GuestParams {
    GuestParams {
        ple_window: Some(1700),
        ple_grow: 2,
        ple_favours: PleFavours::Woken,
        ..GuestParams::default()
    }
}

/// Four VMs that flush often share a host, on which they begin one after the other: in step, the vCPUs of a VM would
/// have their turns together, and none would wait. KVM does not see which vCPU has an interrupt to take, and spinners
/// can only yield to each other: they let others run, among which are those that they wait for.
#[test]
fn spinners_that_only_know_of_each_other_let_others_run() {
    let program = "sleep 5ms exp; loop { compute 36us ±30%; shootdown; count }";
    let params = GuestParams {
        tlb_flush: TlbFlush::Ipi,
        ..noticed()
    };
    let done = |vms: u32| {
        let vm = |index| vm(&format!("vm{index}"), params, &[program; 8]);
        let outcome = balanced(8, (0..vms).map(vm).collect());
        outcome
            .vms
            .iter()
            .map(|vm| vm.achieved.throughput)
            .sum::<f64>()
    };
    let (alone, together) = (done(1), done(4));
    assert!(together > 0.6 * alone, "{together} of {alone}");
}

/// A VM one of whose vCPUs holds a lock while the others spin for it has its share of the host, among VMs that compute
/// and begin at other times: no more by yielding, and no less by giving up turns.
#[test]
fn spinners_have_their_share_and_no_more() {
    let locker = "sleep 5ms exp; loop { lock l { compute 2ms }; count }";
    let params = GuestParams {
        lock: LockKind::Ticket,
        ..noticed()
    };
    let hogs = |index| {
        vm(
            &format!("hogs{index}"),
            free(),
            &["sleep 5ms exp; loop { compute 10ms }"; 4],
        )
    };
    let mut vms = vec![vm("lockers", params, &[locker; 4])];
    vms.extend((0..3).map(hogs));
    let outcome = balanced(4, vms);
    for vm in &outcome.vms {
        let run: Nanos = vm.vcpus.iter().map(|vcpu| vcpu.run).sum();
        assert!(
            (380 * MS..=420 * MS).contains(&run),
            "{}: {run} ns",
            vm.name
        );
    }
    // In its quarter of the host it could do 500 rounds a second if none spun in vain. If they kept their turns, 128.
    let done = outcome.vms[0].achieved.throughput;
    assert!(done > 300.0, "{done} of 500");
}

/// A spinner that let a sibling in and kept its pCPU has left kvm_vcpu_on_spin(): if it is preempted later, it does not
/// count as one that gave its pCPU up.
#[test]
fn a_spinner_that_keeps_its_pcpu_is_not_passed_over() {
    let mut vms = Guests::new(vec![vm("a", free(), &[HOG; 2])], Vec::new(), 1)
        .unwrap()
        .vms;
    let vm = &mut vms[0];
    let passed_over = |vm: &mut vm::Vm, done| {
        vm.vcpus[0].mode = vcpu::Mode::Running;
        vm.vcpus[0].booked = 0;
        vm.vcpus[0].yielding = crate::guest::spinning::Yielding::PassedOver;
        vm.stop(0, done);
        vm.vcpus[0].yielding == crate::guest::spinning::Yielding::PassedOver
    };
    assert!(passed_over(vm, 0));
    assert!(!passed_over(vm, 1));
}
