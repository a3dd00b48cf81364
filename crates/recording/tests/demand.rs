// SPDX-License-Identifier: GPL-2.0-only
//! Small made-up hosts: what each sequence of events must be rebuilt to.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests state what they expect by panicking.

use corun_recording::{
    AtEnd, AtStart, Burst, BurstEnd, Import, Note, Recording, Task, WakeCause, read_bytes,
};

/// Builds ftrace text. Times are in µs; the recording starts with a vCPU running on pCPU 0.
#[derive(Default)]
struct Trace(String);

impl Trace {
    fn new() -> Self {
        Self::default().line(0, 0, 10, ".", "kvm_entry: vcpu 0")
    }

    fn line(mut self, at: u64, cpu: u32, tid: u32, context: &str, event: &str) -> Self {
        let stamp = format!("{}.{:06}", 100 + at / 1_000_000, at % 1_000_000);
        let name = name(tid);
        self.0 += &format!("  {name}-{tid} [{cpu:03}] d.{context}2. {stamp}: {event}\n");
        self
    }

    fn switch(self, at: u64, cpu: u32, prev: u32, state: &str, next: u32) -> Self {
        let (p, n) = (name(prev), name(next));
        let event = format!(
            "sched_switch: prev_comm={p} prev_pid={prev} prev_prio=120 prev_state={state} ==> \
             next_comm={n} next_pid={next} next_prio=120"
        );
        self.line(at, cpu, prev, ".", &event)
    }

    fn wake(self, event: &str, at: u64, cpu: u32, by: (u32, &str), task: u32, to: u32) -> Self {
        let comm = name(task);
        let event = format!("{event}: comm={comm} pid={task} prio=120 target_cpu={to:03}");
        self.line(at, cpu, by.0, by.1, &event)
    }

    /// Both events, the second one 1 µs later.
    fn woken(self, at: u64, cpu: u32, by: (u32, &str), task: u32, to: u32) -> Self {
        let waking = self.wake("sched_waking", at, cpu, by, task, to);
        waking.wake("sched_wakeup", at + 1, cpu, by, task, to)
    }

    fn raw(mut self, line: &str) -> Self {
        self.0 += line;
        self.0 += "\n";
        self
    }

    fn read(&self) -> Import {
        read_bytes("test", self.0.as_bytes()).unwrap()
    }
}

/// Threads 10 and 11 are vCPUs; 0 is the idle task.
fn name(tid: u32) -> String {
    match tid {
        0 => "<idle>".to_string(),
        10 | 11 => format!("CPU {}/KVM", tid - 10),
        _ => format!("task{tid}"),
    }
}

fn task(recording: &Recording, tid: u32) -> &Task {
    recording.tasks.iter().rfind(|t| t.tid == tid).unwrap()
}

fn times(task: &Task) -> (u64, u64, u64) {
    (
        task.observed.run / 1000,
        task.observed.ready / 1000,
        task.observed.wait / 1000,
    )
}

fn works(task: &Task) -> Vec<u64> {
    task.bursts.iter().map(|b| b.work / 1000).collect()
}

#[test]
fn preemption_keeps_a_burst_whole() {
    let trace = Trace::new()
        .switch(100, 0, 10, "R+", 20)
        .switch(150, 0, 20, "R", 10)
        .switch(200, 0, 10, "S", 20)
        .switch(300, 0, 20, "R+", 20);
    let Import { recording, .. } = trace.read();
    let vcpu = task(&recording, 10);
    assert_eq!(vcpu.bursts.len(), 1);
    let Burst {
        wake, work, end, ..
    } = vcpu.bursts[0];
    assert_eq!(
        (wake, work, end),
        (WakeCause::AtStart, 150_000, BurstEnd::Blocked('S'))
    );
    assert_eq!(times(vcpu), (150, 50, 100));
    assert_eq!(vcpu.at_end, AtEnd::Waiting);
}

#[test]
fn a_waker_is_remembered_with_its_work() {
    let trace = Trace::new()
        .woken(40, 0, (10, "."), 11, 1)
        .switch(60, 1, 0, "R", 11)
        .switch(90, 1, 11, "S", 0)
        .woken(120, 0, (10, "h"), 11, 1)
        .switch(130, 1, 0, "R", 11)
        .switch(150, 0, 10, "S", 0);
    let recording = trace.read().recording;
    let sibling = task(&recording, 11);
    assert_eq!(sibling.at_start, AtStart::Waiting);
    let waker = recording.vms[0].vcpus[0];
    let causes: Vec<_> = sibling.bursts.iter().map(|b| b.wake).collect();
    let by_task = WakeCause::Task {
        waker,
        waker_work: 40_000,
    };
    assert_eq!(causes, [by_task, WakeCause::External { delay: 30_000 }]);
    assert_eq!(sibling.observed.wake_to_run, [20_000, 10_000]);
    assert_eq!(times(sibling), (50, 30, 70));
}

#[test]
fn waking_an_awake_task_makes_no_burst() {
    let trace = Trace::new()
        .switch(10, 0, 10, "R+", 20)
        .woken(20, 0, (20, "."), 10, 0)
        .switch(30, 0, 20, "R", 10)
        .woken(40, 0, (10, "h"), 10, 0)
        .switch(50, 0, 10, "D", 20)
        .switch(60, 0, 20, "S", 0);
    let recording = trace.read().recording;
    let vcpu = task(&recording, 10);
    assert_eq!(works(vcpu), [30]);
    assert_eq!(vcpu.bursts[0].end, BurstEnd::Blocked('D'));
    assert_eq!(vcpu.observed.wakeups, 0);
    assert_eq!(vcpu.at_end, AtEnd::Waiting);
}

#[test]
fn a_wakeup_may_overtake_the_blocking() {
    // The other pCPU decides to wake it just before its switch is recorded.
    let trace = Trace::new()
        .line(0, 1, 20, ".", "x: y")
        .wake("sched_waking", 95, 1, (20, "."), 10, 0)
        .switch(100, 0, 10, "S", 0)
        .wake("sched_wakeup", 105, 0, (0, "h"), 10, 0)
        .switch(110, 0, 0, "R", 10)
        .switch(150, 0, 10, "S", 0);
    let Import { recording, notes } = trace.read();
    let vcpu = task(&recording, 10);
    assert_eq!(works(vcpu), [100, 40]);
    assert!(matches!(
        vcpu.bursts[1].wake,
        WakeCause::Task {
            waker_work: 95_000,
            ..
        }
    ));
    assert_eq!(times(vcpu), (140, 10, 0));
    assert!(
        !notes
            .iter()
            .any(|n| matches!(n, Note::Contradictions { .. })),
        "{notes:?}"
    );
}

#[test]
fn created_and_exited() {
    let trace = Trace::new()
        .line(
            10,
            0,
            10,
            ".",
            "sched_process_fork: comm=a pid=10 child_comm=task30 child_pid=30",
        )
        .wake("sched_wakeup_new", 12, 0, (10, "."), 30, 0)
        .switch(20, 0, 10, "R+", 30)
        .switch(50, 0, 30, "X", 10)
        .line(
            60,
            0,
            10,
            ".",
            "sched_process_fork: comm=a pid=10 child_comm=task30 child_pid=30",
        )
        .switch(70, 0, 10, "S", 30)
        .switch(75, 0, 30, "S", 0);
    let recording = trace.read().recording;
    let lives: Vec<_> = recording.tasks.iter().filter(|t| t.tid == 30).collect();
    assert_eq!(lives.len(), 2, "a thread id may be used again");
    assert_eq!(
        (lives[0].at_start, lives[0].at_end),
        (AtStart::Unborn, AtEnd::Exited)
    );
    assert_eq!(lives[0].bursts[0].end, BurstEnd::Exited);
    assert!(matches!(
        lives[0].bursts[0].wake,
        WakeCause::Task {
            waker_work: 12_000,
            ..
        }
    ));
    assert_eq!(times(lives[0]), (30, 8, 2));
    assert!(matches!(
        lives[1].bursts[0].wake,
        WakeCause::Task {
            waker_work: 30_000,
            ..
        }
    ));
}

#[test]
fn lost_events_are_survived_and_counted() {
    let trace = Trace::new()
        .switch(50, 0, 10, "S", 20)
        .raw("CPU:0 [LOST 7 EVENTS]")
        .switch(200, 0, 10, "R+", 11)
        .switch(300, 0, 11, "S", 20)
        .switch(350, 0, 11, "S", 0);
    let Import { recording, notes } = trace.read();
    assert!(
        notes.contains(&Note::Lost { events: 7, gaps: 1 }),
        "{notes:?}"
    );
    let odd = notes
        .iter()
        .any(|n| matches!(n, Note::Contradictions { no_switch: 1, .. }));
    assert!(odd, "{notes:?}");
    for task in &recording.tasks {
        let seen = &task.observed;
        assert_eq!(
            seen.run + seen.ready + seen.wait,
            recording.duration(),
            "{}",
            task.tid
        );
    }
    assert_eq!(recording.observed.pcpus[0].busy, 200_000);
}

#[test]
fn stacking_follows_wakeups_and_migrations() {
    let migrate = "sched_migrate_task: comm=CPU 1/KVM pid=11 prio=120 orig_cpu=0 dest_cpu=1";
    let trace = Trace::new()
        .woken(99, 0, (10, "h"), 11, 0)
        .line(200, 1, 0, ".", migrate)
        .switch(250, 1, 0, "R", 11)
        .switch(400, 1, 11, "S", 0);
    let recording = trace.read().recording;
    // Both on pCPU 0's runqueue from 100 to 200 of 400 µs on two pCPUs.
    assert_eq!(recording.observed.stacked, 100_000);
    assert_eq!(recording.observed.stacking_probability(), 0.125);
    assert_eq!(task(&recording, 11).observed.migrations, 1);
}

#[test]
fn without_wakeup_events_it_says_so() {
    let trace = Trace::new()
        .switch(10, 0, 10, "S", 0)
        .switch(30, 0, 0, "R", 10)
        .raw(
            "  CPU 0/KVM-10 [000] d..2. 100.000050: sched_switch: prev_comm=CPU 0/KVM prev_pid=10 \
         prev_prio=120 prev_state=S ==> next_comm=x next_pid=0 next_prio=120",
        );
    let Import { recording, notes } = trace.read();
    assert!(notes.contains(&Note::NoWakeups), "{notes:?}");
    let vcpu = task(&recording, 10);
    assert_eq!(vcpu.bursts[1].wake, WakeCause::External { delay: 20_000 });
}
