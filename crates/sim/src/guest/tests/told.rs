// SPDX-License-Identifier: GPL-2.0-only
//! What guests tell observers about their disks and ports.

use super::*;
use crate::device::disk::{DiskParams, MediumParams, SchedulerParams, SsdParams};
use crate::device::net::{ClientKind, ClientSpec, Pace, Requests};
use crate::host::{Counter, Instant, Lane, Observer, Span, Task, TaskState, VcpuActivity};
use corun_model::time::US;
use corun_model::{Presence, TaskId};
use std::cell::RefCell;
use std::rc::Rc;

/// Lines about spans, counters and interrupts, in the order in which they were told.
#[derive(Default)]
struct Heard(Rc<RefCell<Vec<String>>>);

impl Heard {
    fn span(&self, now: Nanos, lane: Lane, kind: Span, name: &str, does: &str) {
        let about = match lane {
            Lane::Thread { thread, .. } if kind == Span::IoWait => format!("thread {thread}"),
            Lane::Request {
                device, request, ..
            } => format!("{device}/{request}"),
            _ => return,
        };
        let line = format!("{} {about} {does} {kind:?} {name}", now / US);
        self.0.borrow_mut().push(line.trim_end().into());
    }
}

impl Observer for Heard {
    fn state(&mut self, _now: Nanos, _id: TaskId, _task: &Task, _old: TaskState) {}

    fn device_name(&mut self, vm: VmId, device: u32, name: &str) {
        let line = format!("{vm} has {device}: {name}");
        self.0.borrow_mut().push(line);
    }

    fn span_begin(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.span(now, lane, kind, name, "begins");
    }

    fn span_end(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.span(now, lane, kind, name, "ends");
    }

    fn instant(&mut self, now: Nanos, lane: Lane, kind: Instant) {
        if let (Lane::Task(vcpu), Instant::DeviceInterrupt) = (lane, kind) {
            let line = format!("{} interrupt to {vcpu}", now / US);
            self.0.borrow_mut().push(line);
        }
    }

    fn vcpu_activity(&mut self, now: Nanos, vcpu: TaskId, activity: VcpuActivity) {
        if activity == VcpuActivity::Retention {
            self.0
                .borrow_mut()
                .push(format!("{} {vcpu} retains", now / MS));
        }
    }

    fn counter(&mut self, now: Nanos, counter: Counter, value: u64) {
        if let Counter::RequestsInFlight { .. } = counter {
            let line = format!("{} {value} under way", now / US);
            self.0.borrow_mut().push(line);
        }
    }

    fn finish(&mut self, _now: Nanos) {}
}

/// What is told in 10 ms on a pCPU for each vCPU.
fn told(guests: Guests, pcpus: u32) -> Vec<String> {
    let heard = Heard::default();
    let lines = heard.0.clone();
    let sched = Box::new(RoundRobin::new(MS));
    let observer: Option<Box<dyn Observer>> = Some(Box::new(heard));
    let host = machine(pcpus, FREE);
    Simulation::new(host, sched, Box::new(guests), observer).run(0, 10 * MS, |_| {});
    lines.take()
}

/// An SSD with a latency of 48 us, 10 us there and 5 us back, and one access at a time.
fn ssd() -> DiskSpec {
    DiskSpec {
        name: "disk".into(),
        params: DiskParams {
            scheduler: SchedulerParams::None,
            submit: 10 * US,
            complete: 5 * US,
            ..DiskParams::new(MediumParams::Ssd(SsdParams {
                read_bandwidth: 1 << 50,
                write_bandwidth: 1 << 50,
                queue_depth: 1,
                ..SsdParams::default()
            }))
        },
    }
}

#[test]
fn requests_from_their_issue_to_their_delivery() {
    let params = GuestParams {
        block_submit: 0,
        ..free()
    };
    let programs = [
        "compute 100us; read 4KB random",
        "compute 110us; write 4KB random",
    ];
    let mut spec = vm("a", params, &programs);
    spec.disk = Some(image());
    let guests = Guests::with_disks(vec![spec], Vec::new(), &[ssd()], 1).unwrap();
    // The write waits for the drive, which is done with the read at 158 us.
    assert_eq!(
        told(guests, 2),
        [
            "vm0 has 0: disk",
            "100 0/0 begins Request read",
            "100 0/0 begins Queued",
            "100 1 under way",
            "100 thread 0 begins IoWait disk",
            "110 0/1 begins Request write",
            "110 0/1 begins Queued",
            "110 2 under way",
            "110 thread 1 begins IoWait disk",
            "110 0/0 ends Queued",
            "110 0/0 begins Device",
            "158 0/0 ends Device",
            "158 0/0 begins Delivery",
            "158 0/1 ends Queued",
            "158 0/1 begins Device",
            "163 interrupt to task0",
            "163 0/0 ends Delivery",
            "163 0/0 ends Request read",
            "163 1 under way",
            "163 thread 0 ends IoWait disk",
            "216 0/1 ends Device",
            "216 0/1 begins Delivery",
            "221 interrupt to task1",
            "221 0/1 ends Delivery",
            "221 0/1 ends Request write",
            "221 0 under way",
            "221 thread 1 ends IoWait disk",
        ]
    );
}

/// With a hog, in turns of 1 ms.
#[test]
fn a_vcpu_that_retains_its_context_does_so_again_after_a_preemption() {
    let params = GuestParams {
        idle: IdleMode::Retention(0),
        ..free()
    };
    let idler = vm("a", params, &["compute 1ms; sleep 10s"]);
    let hog = vm("b", free(), &["loop { compute 1ms }"]);
    let guests = Guests::new(vec![idler, hog], Vec::new(), 1).unwrap();
    let turns = [1, 2, 4, 6, 8, 10].map(|ms| format!("{ms} task0 retains"));
    assert_eq!(told(guests, 1), turns);
}

#[test]
fn waits_for_requests_of_clients() {
    let client = ClientSpec {
        name: "users".into(),
        vm: VmId(0),
        kind: ClientKind::Requests(Requests {
            port: "http".into(),
            connections: 1,
            pace: Pace::Think(None),
            size: 100,
            timeout: None,
            keep_alive: true,
        }),
        presence: Presence::default(),
    };
    let spec = NetworkSpec {
        clients: vec![client],
        ..NetworkSpec::default()
    };
    let server = vm("a", free(), &["loop { request http; reply http 1KB }"]);
    let guests = Guests::with_devices(vec![server], Vec::new(), &[], &spec, 1).unwrap();
    let lines = told(guests, 1);
    assert_eq!(lines[0], "0 thread 0 begins IoWait http");
    let ends = |line: &&String| line.contains("thread 0 ends IoWait http");
    let first = lines.iter().position(|line| ends(&line)).unwrap();
    // The packet's kernel work is between the two.
    assert!(
        lines[first - 1].ends_with("interrupt to task0"),
        "{lines:?}"
    );
    assert!(lines.iter().filter(ends).count() > 10, "{lines:?}");
}
