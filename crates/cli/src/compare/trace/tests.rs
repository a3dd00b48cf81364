// SPDX-License-Identifier: GPL-2.0-only
//! Timelines of runs, read back and compared with what the runs themselves report.

use super::*;
use crate::compare::setup;
use corun_model::PcpuId;
use corun_model::time::{MS, US};
use corun_report::timeline::{self, Slice, Timelines};
use corun_sim::Outcome;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A file in memory that the test keeps a hand on.
#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn watcher(pcpus: u32, window: Window) -> (Sink, Watcher<Scene<Sink>>) {
    let sink = Sink::default();
    let scene = Scene::new(sink.clone(), pcpus, window);
    (sink, Watcher::new(scene))
}

/// Everything that modelled guests do today, on two pCPUs with too many vCPUs; switches are free,
/// so that times in a guest and times on its vCPUs are the same.
const BUSY: &str = r#"
[host]
pcpus = 2
costs.switch = "0us"

[run]
duration = "400ms"
warm_up = "0s"

[vm.db]
vcpus = 3
guest.ple_window = "20us"
[[vm.db.thread]]
count = 4
program = """
loop {
    compute 200us ±50%;
    lock inode { compute 60us };
    mutex cache { compute 100us; lock journal { compute 20us } };
    sleep 300us exp
}
"""
[[vm.db.thread]]
count = 2
program = "loop { compute 1ms ±30%; barrier step; compute 100us ±50%; spin-barrier fine }"
[[vm.db.thread]]
program = "queue jobs 2; loop { compute 50us; send jobs }"
[[vm.db.thread]]
program = "loop { recv jobs; compute 120us ±50% }"

[vm.batch]
vcpus = 2
workload = "cpu"

[task.daemon]
program = "loop { sleep 3ms; compute 200us }"
"#;

const END: Nanos = 400 * MS;

fn run(text: &str, policy: &str, window: Window) -> (Outcome, Timelines, usize) {
    let scenario = corun_scenario::read("test.toml", text, &[]).unwrap();
    let (case, (sink, watcher)) = (&scenario.cases[0], watcher(2, window));
    let simulation = setup::simulation(case, policy, 7, Some(Box::new(watcher))).unwrap();
    let end = case.run.warm_up + case.run.duration;
    let outcome = simulation.run(case.run.warm_up, end, |_| {});
    let bytes = sink.0.take();
    (outcome, timeline::read(&bytes).unwrap(), bytes.len())
}

fn slices<'a>(got: &'a Timelines, track: &str) -> &'a [Slice] {
    let found = got.tracks.get(track);
    &found.unwrap_or_else(|| panic!("no {track}")).slices
}

/// All slices of tracks below `group`, by name: lengths.
fn lengths(got: &Timelines, group: &str) -> BTreeMap<String, Vec<Nanos>> {
    let mut all: BTreeMap<String, Vec<Nanos>> = BTreeMap::new();
    let within = got
        .tracks
        .iter()
        .filter(|(path, _)| path.starts_with(group));
    for slice in within.flat_map(|(_, track)| &track.slices) {
        let length = slice.end - slice.begin;
        all.entry(slice.name.clone()).or_default().push(length);
    }
    all
}

fn sum(lengths: &BTreeMap<String, Vec<Nanos>>, name: &str) -> Nanos {
    lengths.get(name).map_or(0, |all| all.iter().sum())
}

/// Outer slices, one after another from 0 to the end.
fn assert_gapless(slices: &[Slice], end: Nanos, what: &str) {
    let mut at = 0;
    for slice in slices.iter().filter(|slice| slice.depth == 0) {
        assert_eq!(slice.begin, at, "{what}");
        at = slice.end;
    }
    assert_eq!(at, end, "{what}");
}

#[test]
fn pcpus_and_tasks_tell_the_same() {
    let (outcome, got, _) = run(BUSY, "cfs", Window::WHOLE);
    let mut on_pcpus: BTreeMap<&str, Nanos> = BTreeMap::new();
    for cpu in ["pCPUs > pCPU 0", "pCPUs > pCPU 1"] {
        let slices = slices(&got, cpu);
        assert_gapless(slices, END, cpu);
        for slice in slices {
            assert_eq!(slice.depth, 0, "{cpu} has two at a time: {slice:?}");
            *on_pcpus.entry(&slice.name).or_default() += slice.end - slice.begin;
        }
    }
    for (name, is_vcpu, totals) in &outcome.tasks {
        let path = match name.rsplit_once('/') {
            Some((vm, _)) if *is_vcpu => format!("VM {vm} > {name}"),
            _ => format!("host tasks > {name}"),
        };
        assert_gapless(slices(&got, &path), END, &path);
        let here = lengths(&got, &path);
        let running = sum(&here, "running on pCPU 0") + sum(&here, "running on pCPU 1");
        assert_eq!(running, totals.run, "{path}");
        assert_eq!(running, on_pcpus[name.as_str()], "{path}");
        assert_eq!(sum(&here, "ready"), totals.ready, "{path}");
        assert_eq!(sum(&here, "waiting"), totals.wait, "{path}");
        let moved = &got.tracks[&path].instants;
        let moved = moved.iter().filter(|(_, name)| name.starts_with("mig"));
        assert_eq!(moved.count() as u64, totals.migrations, "{path}");
    }
}

#[test]
fn what_vcpus_do_adds_up_to_what_the_guests_achieved() {
    let (outcome, got, _) = run(BUSY, "cfs", Window::WHOLE);
    for vm in &outcome.vms {
        let mut here = BTreeMap::new();
        let mut exits = 0;
        for vcpu in 0..vm.vcpus.len() {
            let path = format!("VM {} > {}/{vcpu}", vm.name, vm.name);
            for (name, mut more) in lengths(&got, &path) {
                here.entry(name).or_insert_with(Vec::new).append(&mut more);
            }
            let instants = &got.tracks[&path].instants;
            exits += instants
                .iter()
                .filter(|(_, what)| what == "PLE exit")
                .count();
        }
        assert_eq!(sum(&here, "guest"), vm.achieved.work, "{}", vm.name);
        assert_eq!(sum(&here, "spinning"), vm.achieved.spin, "{}", vm.name);
        assert_eq!(
            sum(&here, "guest kernel"),
            vm.achieved.kernel,
            "{}",
            vm.name
        );
        assert_eq!(exits as u64, vm.achieved.pause_loop_exits, "{}", vm.name);
    }
    assert!(outcome.vms[0].achieved.spin > 0 && outcome.vms[0].achieved.pause_loop_exits > 0);
}

#[test]
fn lock_waits_are_the_ones_recorded() {
    let (outcome, got, _) = run(BUSY, "cfs", Window::WHOLE);
    let achieved = &outcome.vms[0].achieved;
    let here = lengths(&got, "VM db > threads");
    let threads = got.tracks.iter();
    let threads = threads.filter(|(path, _)| path.starts_with("VM db > threads"));
    let all = threads.flat_map(|(_, track)| &track.slices);
    // A wait that the end of the run cut off was not complete.
    let waits: Vec<Nanos> = all
        .filter(|slice| slice.name.starts_with("wait: spin lock") && slice.end < END)
        .map(|slice| slice.end - slice.begin)
        .collect();
    assert_eq!(waits.len() as u64, achieved.lock_waits.count());
    let (sum, longest): (Nanos, Option<&Nanos>) = (waits.iter().sum(), waits.iter().max());
    let recorded = achieved.lock_waits.mean() * waits.len() as f64;
    // The distribution keeps three digits.
    assert!(
        (sum as f64 / recorded - 1.0).abs() < 0.002,
        "{sum} {recorded}"
    );
    let longest = *longest.unwrap() as f64 / achieved.lock_waits.max() as f64;
    assert!((longest - 1.0).abs() < 0.002);
    let holds = here["hold: spin lock inode"].len() + here["hold: spin lock journal"].len();
    assert!(
        achieved.lock_acquisitions - holds as u64 <= 4,
        "each hold is shown"
    );
    for name in [
        "hold: mutex cache",
        "wait: mutex cache",
        "wait: barrier step",
        "runnable",
    ] {
        assert!(here.contains_key(name), "{name}");
    }
    for name in [
        "wait: spin barrier fine",
        "wait: item of queue jobs",
        "sleep",
    ] {
        assert!(here.contains_key(name), "{name}");
    }
    let hold = &here["hold: mutex cache"];
    assert!(hold.iter().filter(|hold| **hold < 100 * US).count() <= 1);
}

#[test]
fn only_one_thread_holds_a_lock() {
    let (_, got, _) = run(BUSY, "balance", Window::WHOLE);
    for lock in [
        "hold: spin lock inode",
        "hold: spin lock journal",
        "hold: mutex cache",
    ] {
        let slices = got.tracks.values().flat_map(|track| &track.slices);
        let mut holds: Vec<_> = slices.filter(|slice| slice.name == lock).collect();
        holds.sort_by_key(|slice| (slice.begin, slice.end));
        let overlap = |pair: &&[&Slice]| pair[0].end > pair[1].begin;
        assert_eq!(holds.windows(2).find(overlap), None, "{lock}");
        assert!(holds.len() > 10, "{lock}");
    }
    let policy = &got.tracks["host > policy"].instants;
    assert!(
        policy.iter().any(|(at, _)| *at == 0),
        "it decides at the start"
    );
}

/// A counter's value at a time.
fn value_at(values: &[(Nanos, i64)], at: Nanos) -> i64 {
    let set = values.iter().rfind(|(since, _)| *since <= at);
    set.map_or(0, |(_, value)| *value)
}

#[test]
fn counters_agree_with_states() {
    let (_, got, _) = run(BUSY, "cfs", Window::WHOLE);
    let vcpus = [
        "db > db/0",
        "db > db/1",
        "db > db/2",
        "batch > batch/0",
        "batch > batch/1",
    ];
    let states = vcpus.map(|path| slices(&got, &format!("VM {path}")));
    let states = |vm: usize| states[vm..].iter().flat_map(|slices| slices.iter());
    let runs = |slice: &&Slice| slice.name.starts_with("running");
    let shares = &got.tracks["VM batch > run share (10 ms)"].values;
    for end in (10 * MS..=END).step_by(10_000_000) {
        let from = end - 10 * MS;
        let within = |slice: &Slice| slice.end.min(end).saturating_sub(slice.begin.max(from));
        let run: Nanos = states(3).filter(runs).map(within).sum();
        assert_eq!(
            value_at(shares, end),
            (run * 100 / (10 * MS)) as i64,
            "until {end}"
        );
    }
    let runnable = &got.tracks["host > runnable vCPUs"].values;
    for at in (0..END).step_by(777_777) {
        let here = |slice: &&Slice| slice.depth == 0 && slice.begin <= at && at < slice.end;
        let wants = |slice: &&Slice| slice.name != "waiting";
        let count = states(0).filter(here).filter(wants).count();
        assert_eq!(value_at(runnable, at), count as i64, "at {at}");
    }
    let stacked = &got.tracks["host > runqueues with siblings"].values;
    assert!(stacked.iter().any(|(_, count)| *count > 0));
    assert!(stacked.iter().all(|(_, count)| (0..=2).contains(count)));
}

#[test]
fn how_long_guests_may_retain_contexts_is_told() {
    let text = BUSY.replace("pcpus = 2", "topology = \"1n1l1c2t\"");
    let text = format!("{text}[policy.vsmtio]\nguests = true\n");
    let retained = |got: &Timelines| {
        let track = got.tracks.get("host > pCPU 1: retention limit");
        track.map(|track| track.values.clone())
    };
    let (_, got, _) = run(&text, "vsmtio", Window::WHOLE);
    let limits = retained(&got).unwrap();
    assert!(limits.iter().any(|(_, limit)| *limit > 0), "{limits:?}");
    assert_eq!(retained(&run(&text, "cfs", Window::WHOLE).1), None);
}

#[test]
fn a_window_is_a_small_part_of_the_whole() {
    let (whole, _, size) = run(BUSY, "cfs", Window::WHOLE);
    let window = Window {
        from: 100 * MS,
        until: 110 * MS,
    };
    let (part, got, small) = run(BUSY, "cfs", window);
    assert_eq!(whole.events, part.events, "observers only listen");
    assert!(small * 20 < size, "{small} of {size} bytes");
    let slices = got.tracks.values().flat_map(|track| &track.slices);
    let outside = |slice: &Slice| slice.begin < window.from || slice.end > window.until;
    assert!(!slices.clone().any(outside));
    let cpu = slices_sum(&got, "pCPUs > pCPU 0");
    assert_eq!(cpu, 10 * MS, "what is open when it begins is shown");
}

fn slices_sum(got: &Timelines, track: &str) -> Nanos {
    let slices = slices(got, track).iter();
    slices.map(|slice| slice.end - slice.begin).sum()
}

/// One VM of one vCPU on one pCPU, with events given by hand.
fn by_hand(tell: impl FnOnce(&mut Watcher<Scene<Sink>>)) -> Timelines {
    let (sink, mut watcher) = watcher(1, Window::WHOLE);
    let spec = TaskSpec {
        name: "web/0".to_string(),
        vcpu: Some((VmId(0), 0)),
        helper_of: None,
        weight: 100,
        allowed: corun_model::PcpuSet::first(1),
        last_on: None,
        slice: None,
    };
    watcher.task(TaskId(0), &spec);
    tell(&mut watcher);
    watcher.finish(1000);
    assert!(watcher.failed().is_none());
    timeline::read(&sink.0.take()).unwrap()
}

#[test]
fn requests_take_rows() {
    let got = by_hand(|watcher| {
        let lane = |request| Lane::Request {
            vm: VmId(0),
            device: 0,
            request,
        };
        watcher.device_name(VmId(0), 0, "vda");
        for (at, request) in [(10, 70), (20, 71), (60, 72)] {
            watcher.span_begin(at, lane(request), Span::Request, "read");
            watcher.span_begin(at, lane(request), Span::Queued, "");
            let flight = Counter::RequestsInFlight {
                vm: VmId(0),
                device: 0,
            };
            watcher.counter(at, flight, request - 69);
            watcher.span_end(at + 5, lane(request), Span::Queued, "");
            watcher.span_begin(at + 5, lane(request), Span::Device, "");
            if request == 71 {
                for (at, request) in [(30, 70), (50, 71)] {
                    watcher.span_end(at, lane(request), Span::Device, "");
                    watcher.span_begin(at, lane(request), Span::Delivery, "");
                    watcher.span_end(at + 5, lane(request), Span::Delivery, "");
                    watcher.span_end(at + 5, lane(request), Span::Request, "read");
                }
            }
        }
        // What is not under way cannot end.
        watcher.span_end(90, lane(70), Span::Request, "read");
    });
    let outer = |row: &str| {
        let outer = slices(&got, row).iter().filter(|slice| slice.depth == 0);
        let outer = outer.map(|slice| (slice.begin, slice.end, slice.name.as_str()));
        outer.collect::<Vec<_>>()
    };
    // The third takes the first row, free again.
    let first = [(10, 35, "request read"), (60, 1000, "request read")];
    assert_eq!(outer("VM web > vda"), first);
    assert_eq!(outer("VM web > vda#2"), [(20, 55, "request read")]);
    let inner = slices(&got, "VM web > vda#2").iter();
    let inner: Vec<_> = inner.filter(|slice| slice.depth == 1).collect();
    let names: Vec<&str> = inner.iter().map(|slice| slice.name.as_str()).collect();
    assert_eq!(names, ["queued", "device", "delivery"]);
    assert_eq!(got.tracks["VM web > vda: requests"].values.len(), 3);
}

#[test]
fn activities_are_inside_threads_and_end_with_the_pcpu() {
    let running = TaskState::Running(PcpuId(0));
    let vcpu = TaskId(0);
    let got = by_hand(|watcher| {
        let state = |watcher: &mut Watcher<Scene<Sink>>, now, new, old| {
            watcher.write(|scene| scene.state(now, vcpu, new, old));
        };
        watcher.thread_name(VmId(0), 0, "worker");
        state(watcher, 10, TaskState::Ready, TaskState::Waiting);
        // Not running: nothing is done.
        watcher.vcpu_activity(10, vcpu, VcpuActivity::Kernel);
        state(watcher, 20, running, TaskState::Ready);
        watcher.guest_thread(20, vcpu, Some(0));
        watcher.vcpu_activity(20, vcpu, VcpuActivity::Guest);
        watcher.vcpu_activity(30, vcpu, VcpuActivity::Guest);
        watcher.counter(30, Counter::PollLimit(vcpu), 10_000);
        state(watcher, 40, TaskState::Ready, running);
        state(watcher, 50, running, TaskState::Ready);
        watcher.vcpu_activity(50, vcpu, VcpuActivity::Spinning);
        watcher.guest_thread(60, vcpu, None);
        watcher.vcpu_activity(60, vcpu, VcpuActivity::Polling);
        watcher.vcpu_activity(80, vcpu, VcpuActivity::Retention);
        state(watcher, 90, TaskState::Waiting, running);
    });
    let mut shown: Vec<_> = slices(&got, "VM web > web/0")
        .iter()
        .filter(|slice| slice.depth > 0)
        .map(|slice| (slice.begin, slice.end, slice.depth, slice.name.as_str()))
        .collect();
    shown.sort_unstable();
    let expected = [
        (20, 40, 1, "worker"),
        (20, 40, 2, "guest"),
        (50, 60, 1, "worker"),
        (50, 60, 2, "spinning"),
        (60, 80, 1, "polling"),
        (80, 90, 1, "retention"),
    ];
    assert_eq!(shown, expected);
    let limit = &got.tracks["VM web > web/0: poll limit"].values;
    assert_eq!(limit, &[(30, 10_000)]);
}
