// SPDX-License-Identifier: GPL-2.0-only
//! Watching a run for the report: who had which pCPU, and who wanted one, until a number of spans is reached. What goes
//! on inside guests is left to [`super::trace`].

use corun_model::{Nanos, TaskId};
use corun_report::detail::{Lane, Span, Timeline};
use corun_sim::host::{Observer, Task, TaskSpec, TaskState};
use std::cell::RefCell;
use std::rc::Rc;

/// Which part of a run is watched.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// From this time on.
    pub from: Nanos,
    /// Until this many spans were seen, or the run ends.
    pub most: usize,
}

/// The spans of a run.
pub struct Spans(Rc<RefCell<Watched>>);

#[derive(Default)]
struct Watched {
    timeline: Timeline,
    /// What each task does, and since when.
    now: Vec<(TaskState, Nanos)>,
    left: usize,
}

impl Spans {
    /// Watches this part of a run on a host with `pcpus` pCPUs.
    pub fn new(part: Part, pcpus: u32) -> Self {
        let timeline = Timeline {
            from: part.from,
            until: part.from,
            pcpus,
            lanes: Vec::new(),
        };
        Self(Rc::new(RefCell::new(Watched {
            timeline,
            now: Vec::new(),
            left: part.most,
        })))
    }

    /// The observer for the simulation.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(Watcher(self.0.clone()))
    }

    /// What was seen; the run is over.
    pub fn timeline(self) -> Timeline {
        std::mem::take(&mut self.0.borrow_mut().timeline)
    }
}

impl Watched {
    /// A task does something else from now on.
    fn state(&mut self, now: Nanos, id: TaskId, state: TaskState) {
        if self.left == 0 {
            return;
        }
        let Some(doing) = self.now.get_mut(id.index()) else {
            return;
        };
        let (old, since) = std::mem::replace(doing, (state, now));
        self.ended(now, id, old, since);
        if self.left == 0 {
            self.cut(now);
        }
    }

    fn ended(&mut self, now: Nanos, id: TaskId, old: TaskState, since: Nanos) {
        let from = since.max(self.timeline.from);
        let pcpu = match old {
            TaskState::Waiting => return,
            TaskState::Ready => None,
            TaskState::Running(pcpu) => Some(pcpu.0),
        };
        if now <= from {
            return;
        }
        self.left = self.left.saturating_sub(1);
        self.timeline.lanes[id.index()].spans.push(Span {
            pcpu,
            from,
            length: now - from,
        });
    }

    /// The part is over: what is going on ends with it, however many spans that makes.
    fn cut(&mut self, now: Nanos) {
        for task in 0..self.now.len() {
            let (state, since) = self.now[task];
            self.ended(now, TaskId::from(task), state, since);
        }
        self.timeline.until = now.max(self.timeline.from);
        self.left = 0;
        self.now = Vec::new();
    }
}

struct Watcher(Rc<RefCell<Watched>>);

impl Observer for Watcher {
    fn task(&mut self, _: TaskId, spec: &TaskSpec) {
        let watched = &mut *self.0.borrow_mut();
        watched.now.push((TaskState::Waiting, 0));
        watched.timeline.lanes.push(Lane {
            name: spec.name.clone(),
            vm: spec.vcpu.map(|(vm, _)| vm.index()),
            spans: Vec::new(),
        });
    }

    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, _: TaskState) {
        self.0.borrow_mut().state(now, id, task.state);
    }

    fn finish(&mut self, now: Nanos) {
        let watched = &mut *self.0.borrow_mut();
        if watched.left > 0 {
            watched.cut(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::PcpuId;

    /// Two tasks on one pCPU, watched from 10 on.
    fn watched(most: usize) -> Timeline {
        let part = Part { from: 10, most };
        let spans = Spans::new(part, 1);
        {
            let watched = &mut *spans.0.borrow_mut();
            watched.now = vec![(TaskState::Waiting, 0); 2];
            watched.timeline.lanes = vec![Lane::default(); 2];
            let on = TaskState::Running(PcpuId(0));
            watched.state(2, TaskId(0), on);
            watched.state(4, TaskId(1), TaskState::Ready);
            watched.state(30, TaskId(0), TaskState::Ready);
            watched.state(30, TaskId(1), on);
            watched.state(45, TaskId(1), TaskState::Waiting);
            watched.state(45, TaskId(0), on);
        }
        spans.observer().finish(60);
        spans.timeline()
    }

    fn span(pcpu: Option<u32>, from: Nanos, until: Nanos) -> Span {
        Span {
            pcpu,
            from,
            length: until - from,
        }
    }

    #[test]
    fn spans_begin_with_the_part_and_end_with_the_run() {
        let seen = watched(100);
        assert_eq!((seen.from, seen.until, seen.spans()), (10, 60, 5));
        let first = [
            span(Some(0), 10, 30),
            span(None, 30, 45),
            span(Some(0), 45, 60),
        ];
        assert_eq!(seen.lanes[0].spans, first);
        let second = [span(None, 10, 30), span(Some(0), 30, 45)];
        assert_eq!(seen.lanes[1].spans, second);
    }

    #[test]
    fn memory_is_bounded() {
        let seen = watched(3);
        // Three, and what was going on when the third ended.
        assert_eq!((seen.until, seen.spans()), (45, 4));
        assert!(seen.spans() <= 3 + seen.lanes.len());
    }
}
