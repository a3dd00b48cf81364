// SPDX-License-Identifier: GPL-2.0-only
//! The replay as a load: tasks step from point to point through their recorded bursts.
//!
//! A running task is stopped at the next thing that happens in its work: a wake-up it gives, or the
//! end of its burst. Each burst counts the turns for which its wake-up has come; a task that ends a
//! burst goes on if the next burst's wake-up is there already, else it blocks and waits for it. A
//! turn is one pass through the recorded demand; wake-ups connect bursts of the same turn.

use super::demand::{Cause, Demand, End, Point};
use super::ledger::{ReplayReport, VmReplay};
use super::{Beyond, Options};
use crate::host::{Host, TaskSpec};
use crate::load::{Achieved, Load, VmInfo};
use corun_model::time::SEC;
use corun_model::{Nanos, TaskId, VmId};
use corun_recording::Recording;
use std::cell::RefCell;
use std::rc::Rc;

/// How many times faster than recorded a task may repeat its demand before it is stopped: prevents
/// a task that does nearly nothing in its turn from keeping the simulation busy for ever.
const MAX_SPEEDUP: u64 = 64;

/// A recorded host's demand as a [`Load`]. Clones share one state, so that the report can be had
/// after the simulation has consumed the load.
#[derive(Clone, Debug)]
pub struct Replay(Rc<RefCell<State>>);

impl Replay {
    /// The demand of `recording`, from its beginning, on a host with `pcpus` pCPUs: those recorded,
    /// or as many as the host in question has.
    pub fn new(recording: &Recording, pcpus: u32, options: Options) -> Self {
        let demand = Demand::of(recording, pcpus, options.spinning);
        let runs = demand.tasks.iter().map(|task| Run {
            state: Doing::Asleep,
            turn: 0,
            piece: 0,
            done: 0,
            point: 0,
            since: None,
            woken: vec![0; task.pieces.len()],
            out_at: None,
        });
        let report = ReplayReport {
            vms: vec![VmReplay::default(); demand.vms.len()],
            unknown_wakers: demand.unknown_wakers,
            ..ReplayReport::default()
        };
        Self(Rc::new(RefCell::new(State {
            runs: runs.collect(),
            demand,
            options,
            report,
            reset_at: 0,
            now: 0,
        })))
    }

    /// What was achieved, when the run is over.
    pub fn report(&self) -> ReplayReport {
        let state = self.0.borrow();
        let mut report = state.report.clone();
        for vm in 0..report.vms.len() {
            report.vms[vm] = state.vm(vm, state.now);
        }
        report
    }
}

/// Whether a task wants a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Waits for the wake-up of its piece.
    Asleep,
    /// Waits within its piece for the sibling that it is to wake next, which has not come there yet.
    Meeting,
    /// Wants or has a pCPU for its piece.
    Awake,
    /// As awake, without an end: its demand goes beyond the recording.
    Endless,
    /// Never wants a pCPU again.
    Over,
}

#[derive(Debug)]
struct Run {
    state: Doing,
    /// Passes through the demand completed.
    turn: u64,
    /// The piece it works at, or waits for.
    piece: usize,
    /// Work of that piece done, ns.
    done: Nanos,
    /// The next of its points.
    point: usize,
    /// While running: from when on it makes progress that is not in `done` yet.
    since: Option<Nanos>,
    /// Per piece: turns for which its wake-up has come.
    woken: Vec<u64>,
    /// When it ran out of recorded demand. A hog never does: it always wanted more.
    out_at: Option<Nanos>,
}

impl Run {
    /// Work done since it began to run and not booked yet.
    fn unbooked(&self, now: Nanos) -> Nanos {
        self.since.map_or(0, |since| now.saturating_sub(since))
    }
}

#[derive(Debug)]
struct State {
    demand: Demand,
    runs: Vec<Run>,
    options: Options,
    report: ReplayReport,
    reset_at: Nanos,
    now: Nanos,
}

impl State {
    fn start(&mut self, host: &mut Host) {
        // Tasks that had a pCPU come first, so that they get one again.
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|&task| !self.demand.tasks[task].ran_at_start);
        for &task in &order {
            match self.demand.tasks[task].pieces.first().map(|p| p.cause) {
                None => self.runs[task].state = Doing::Over,
                Some(Cause::Start) => {
                    self.runs[task].state = Doing::Awake;
                    host.wake(TaskId::from(task), None);
                }
                Some(Cause::After(delay)) => {
                    host.load_timer(host.now().saturating_add(delay), task as u64);
                }
                Some(Cause::Task(_)) => {}
            }
        }
        for task in order {
            if self.in_circle(task) {
                self.report.released += 1;
                self.wake(host, task, None);
            }
        }
    }

    /// Makes a sleeping task want a pCPU for the piece it waits for.
    fn wake(&mut self, host: &mut Host, task: usize, waker: Option<TaskId>) {
        let run = &mut self.runs[task];
        if run.state != Doing::Asleep {
            return;
        }
        run.state = Doing::Awake;
        run.woken[run.piece] = run.woken[run.piece].max(run.turn + 1);
        let from = waker.and_then(|waker| host.task(waker).running_on());
        host.wake(TaskId::from(task), from);
    }

    /// Books the work of a running task up to now.
    fn book(&mut self, now: Nanos, task: usize, work: Nanos) {
        let run = &mut self.runs[task];
        run.done += work;
        run.since = run.since.map(|since| since.max(now));
        if let Some((vm, _)) = self.demand.tasks[task].spec.vcpu {
            let vm = &mut self.report.vms[vm.index()];
            vm.work += work;
            vm.beyond += if run.out_at.is_some() { work } else { 0 };
        }
    }

    /// Orders a running task's work up to the next thing that happens in it.
    fn order(&self, host: &mut Host, task: usize) {
        let run = &self.runs[task];
        if run.state == Doing::Endless {
            return host.no_step(TaskId::from(task));
        }
        let until = match self.next_point(task) {
            Some(point) => point.offset,
            None => self.demand.tasks[task].pieces[run.piece].work,
        };
        host.step_after(TaskId::from(task), until.saturating_sub(run.done));
    }

    /// The next point of a task within the piece it works at.
    fn next_point(&self, task: usize) -> Option<Point> {
        let run = &self.runs[task];
        let point = self.demand.tasks[task].points.get(run.point)?;
        (point.piece == run.piece).then_some(*point)
    }

    /// Work was done as ordered: gives the wake-ups due, and ends the piece if it is done.
    fn step(&mut self, host: &mut Host, task: usize) {
        let now = host.now();
        let work = self.runs[task].unbooked(now);
        self.book(now, task, work);
        while let Some(point) = self.next_point(task) {
            if !self.is_due(task, point) {
                return self.order(host, task);
            }
            if self.is_to_come(task, point) {
                self.runs[task].state = Doing::Meeting;
                if !self.in_circle(task) {
                    return self.block(host, task);
                }
                self.report.released += 1;
                self.runs[task].state = Doing::Awake;
            }
            self.runs[task].point += 1;
            self.deliver(host, task, point);
        }
        if self.runs[task].done < self.demand.tasks[task].pieces[self.runs[task].piece].work {
            return self.order(host, task);
        }
        self.end_piece(host, task);
    }

    /// Is the sibling that `task` is to wake at this point still on its way to where it waits for that?
    fn is_to_come(&self, task: usize, point: Point) -> bool {
        let vm = |task: usize| self.demand.tasks[task].spec.vcpu.map(|(vm, _)| vm);
        let meet = vm(task).is_some_and(|vm| self.options.meeting.contains(&vm));
        let sibling = &self.runs[point.wakee];
        let goes_on = matches!(sibling.state, Doing::Asleep | Doing::Meeting | Doing::Awake);
        let on_its_way = (sibling.turn, sibling.piece) < (self.runs[task].turn, point.wakee_piece);
        meet && vm(task) == vm(point.wakee) && goes_on && on_its_way
    }

    /// `task` has come to where it waits next, or is to wait no more: siblings that waited for it to come there go on.
    fn meet(&mut self, host: &mut Host, task: usize) {
        if self.options.meeting.is_empty() {
            return;
        }
        for waiting in 0..self.runs.len() {
            if self.runs[waiting].state != Doing::Meeting {
                continue;
            }
            // The task that comes last does not wait.
            while let Some(point) = self.meets(waiting) {
                self.runs[waiting].point += 1;
                self.deliver(host, waiting, point);
            }
            if !self
                .next_point(waiting)
                .is_some_and(|point| self.is_due(waiting, point))
            {
                self.runs[waiting].state = Doing::Awake;
                let from = host.task(TaskId::from(task)).running_on();
                host.wake(TaskId::from(waiting), from);
            }
        }
    }

    /// The next wake-up that a task is to give where it is now, if the task to be woken is there.
    fn meets(&self, task: usize) -> Option<Point> {
        let point = self.next_point(task)?;
        (self.is_due(task, point) && !self.is_to_come(task, point)).then_some(point)
    }

    fn is_due(&self, task: usize, point: Point) -> bool {
        point.offset <= self.runs[task].done
    }

    /// `waker` has come to the point where it wakes another task.
    fn deliver(&mut self, host: &mut Host, waker: usize, point: Point) {
        let turn = self.runs[waker].turn;
        let run = &mut self.runs[point.wakee];
        let woken = &mut run.woken[point.wakee_piece];
        *woken = (*woken).max(turn + 1);
        let awaited = run.piece == point.wakee_piece && *woken > run.turn;
        if awaited && run.state == Doing::Asleep {
            self.wake(host, point.wakee, Some(TaskId::from(waker)));
        }
    }

    /// A piece is done: on to the next, at once or after its wake-up.
    fn end_piece(&mut self, host: &mut Host, task: usize) {
        if let Some((vm, _)) = self.demand.tasks[task].spec.vcpu {
            self.report.vms[vm.index()].bursts += 1;
        }
        let last = self.runs[task].piece + 1 == self.demand.tasks[task].pieces.len();
        let next = match last {
            true => self.end_turn(host.now(), task),
            false => Next::ByCause,
        };
        let seam = match next {
            Next::ByCause => None,
            Next::Now => Some(0),
            Next::After(delay) => Some(delay),
            Next::Never => return self.retire(host, task),
            Next::Endless => {
                self.runs[task].state = Doing::Endless;
                self.meet(host, task);
                return self.order(host, task);
            }
        };
        let run = &mut self.runs[task];
        run.piece = if last { 0 } else { run.piece + 1 };
        run.done = 0;
        self.proceed(host, task, seam);
    }

    /// The piece is set: begins it, or blocks until its wake-up. `seam` is the wait if it is not
    /// the piece's own: at the seam of two turns.
    fn proceed(&mut self, host: &mut Host, task: usize, seam: Option<Nanos>) {
        self.meet(host, task);
        let (piece, turn) = (self.runs[task].piece, self.runs[task].turn);
        let delay = match (seam, self.demand.tasks[task].pieces[piece].cause) {
            (Some(0), _) => return self.order(host, task),
            (Some(delay), _) | (None, Cause::After(delay)) => Some(delay),
            (None, Cause::Start) => Some(0),
            (None, Cause::Task(_)) => None,
        };
        if delay.is_none() && self.runs[task].woken[piece] > turn {
            self.report.early += 1;
            return self.order(host, task);
        }
        self.runs[task].state = Doing::Asleep;
        if let Some(delay) = delay {
            host.load_timer(host.now().saturating_add(delay), task as u64);
        } else if self.in_circle(task) {
            self.report.released += 1;
            self.runs[task].woken[piece] = turn + 1;
            self.runs[task].state = Doing::Awake;
            return self.order(host, task);
        }
        self.block(host, task);
    }

    fn block(&mut self, host: &mut Host, task: usize) {
        self.runs[task].since = None;
        host.block(TaskId::from(task));
    }

    fn retire(&mut self, host: &mut Host, task: usize) {
        self.runs[task].state = Doing::Over;
        self.meet(host, task);
        self.block(host, task);
    }

    /// A task has used up its recorded demand: what follows?
    fn end_turn(&mut self, now: Nanos, task: usize) -> Next {
        let demand = &self.demand.tasks[task];
        let run = &mut self.runs[task];
        if !demand.hog {
            run.out_at.get_or_insert(now);
        }
        let limit = (1 + now / self.demand.duration).saturating_mul(MAX_SPEEDUP);
        let repeat = self.options.beyond == Beyond::Repeat && run.turn < limit;
        match (repeat, demand.hog) {
            (false, true) => return Next::Endless,
            (false, false) => return Next::Never,
            (true, _) => {}
        }
        (run.turn, run.point) = (run.turn + 1, 0);
        match (demand.pieces.first().map(|piece| piece.cause), demand.end) {
            (Some(Cause::Task(_)), _) => Next::ByCause,
            (Some(Cause::Start), End::Cut) => Next::Now,
            _ => Next::After(demand.seam.max(1)),
        }
    }

    /// Does `task` wait for a task that waits for … `task`?
    fn in_circle(&self, task: usize) -> bool {
        let mut at = task;
        for _ in 0..self.runs.len() {
            match self.awaits(at) {
                Some(next) if next == task => return true,
                Some(next) => at = next,
                None => return false,
            }
        }
        false
    }

    /// The task whose work a sleeping task waits for.
    fn awaits(&self, task: usize) -> Option<usize> {
        let run = &self.runs[task];
        if run.state == Doing::Meeting {
            return self.next_point(task).map(|point| point.wakee);
        }
        let piece = self.demand.tasks[task].pieces.get(run.piece)?;
        match piece.cause {
            Cause::Task(waker) if run.state == Doing::Asleep => Some(waker),
            _ => None,
        }
    }

    /// A VM's accounts up to `now`.
    fn vm(&self, vm: usize, now: Nanos) -> VmReplay {
        let mut account = self.report.vms[vm];
        for (run, task) in self.runs.iter().zip(&self.demand.tasks) {
            if task.spec.vcpu.is_none_or(|(of, _)| of.index() != vm) {
                continue;
            }
            let work = run.unbooked(now);
            account.work += work;
            if let Some(out_at) = run.out_at {
                account.beyond += work;
                account.exhausted += now.saturating_sub(out_at.saturating_add(task.tail));
            }
        }
        account
    }
}

/// What follows a piece.
enum Next {
    /// The next piece, when its wake-up comes.
    ByCause,
    /// The first piece, without a break.
    Now,
    /// The first piece after so many ns.
    After(Nanos),
    /// Wanting a pCPU for ever.
    Endless,
    /// Nothing.
    Never,
}

impl Load for Replay {
    fn vms(&self) -> Vec<VmInfo> {
        self.0.borrow().demand.vms.clone()
    }

    fn tasks(&self) -> Vec<TaskSpec> {
        let state = self.0.borrow();
        state.demand.tasks.iter().map(|t| t.spec.clone()).collect()
    }

    fn start(&mut self, host: &mut Host) {
        self.0.borrow_mut().start(host);
    }

    fn run(&mut self, host: &mut Host, task: TaskId) {
        let mut state = self.0.borrow_mut();
        state.runs[task.index()].since = Some(host.progress_begins(task));
        state.order(host, task.index());
    }

    fn stop(&mut self, host: &mut Host, task: TaskId, _done: Nanos) {
        let mut state = self.0.borrow_mut();
        let now = host.now();
        // `_done` counts since the task began to run; part of it may be booked already.
        let work = state.runs[task.index()].unbooked(now);
        state.book(now, task.index(), work);
        state.runs[task.index()].since = None;
    }

    fn step(&mut self, host: &mut Host, task: TaskId) {
        self.0.borrow_mut().step(host, task.index());
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        let mut state = self.0.borrow_mut();
        let task = token as usize;
        if task < state.runs.len() {
            state.wake(host, task, None);
        }
    }

    fn reset(&mut self, now: Nanos) {
        let mut state = self.0.borrow_mut();
        for task in 0..state.runs.len() {
            let work = state.runs[task].unbooked(now);
            state.book(now, task, work);
        }
        state.reset_at = now;
        state.report.vms.fill(VmReplay::default());
    }

    fn achieved(&self, vm: VmId, now: Nanos) -> Achieved {
        let mut state = self.0.borrow_mut();
        state.now = now;
        let seconds = now.saturating_sub(state.reset_at) as f64 / SEC as f64;
        let work = state.vm(vm.index(), now).work;
        let worked = work as f64 / SEC as f64;
        Achieved {
            throughput: if seconds > 0.0 { worked / seconds } else { 0.0 },
            throughput_unit: "work s/s".to_string(),
            work,
            ..Achieved::default()
        }
    }
}
