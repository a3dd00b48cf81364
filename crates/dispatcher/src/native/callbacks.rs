// SPDX-License-Identifier: GPL-2.0-only
//! The callbacks, as a host makes them: what happens to a task, and which pCPU needs one.

use super::builds::{Callbacks, PLAIN, TAPPED, UNTAPPED};
use super::context::Inner;
use super::{Build, Callback, Native, Services};
use crate::layout::TaskStruct;
use corun_model::Nanos;
use std::ptr;

impl<S: Services> Native<S> {
    /// The C functions of the build that this host works with.
    const CALLBACKS: Callbacks = match S::BUILD {
        Build::Indexed => UNTAPPED,
        Build::Tapped => TAPPED,
        Build::Plain => PLAIN,
    };

    /// A task exists from now on. Returns its index.
    pub fn add_task(&mut self, task: TaskStruct, now: Nanos) -> usize {
        self.inner.tasks.push(task);
        let index = self.inner.tasks.len() - 1;
        self.call(Callback::InitTask, now, 0, index, |p| {
            // SAFETY: `p` is a live task of this context; the arguments are not looked at.
            let refused = unsafe { (Self::CALLBACKS.init_task)(p, ptr::null_mut()) };
            debug_assert_eq!(refused, 0, "the native build has memory for every task");
        });
        index
    }

    /// A task, which waits, is gone.
    pub fn exit_task(&mut self, task: usize, now: Nanos) {
        // SAFETY: `p` is a live task of this context; the arguments are not looked at.
        self.call(Callback::ExitTask, now, 0, task, |p| unsafe {
            (Self::CALLBACKS.exit_task)(p, ptr::null_mut())
        });
    }

    /// `task` wakes on `cpu`, where `current` runs, having last run on `prev`. Returns where it
    /// should go.
    pub fn select_cpu(
        &mut self,
        now: Nanos,
        cpu: u32,
        task: usize,
        prev: u32,
        current: Option<usize>,
    ) -> u32 {
        self.begin_beside(current);
        // SAFETY: `p` and `current` are live tasks of this context; no task is added meanwhile.
        let chosen = self.call(Callback::SelectCpu, now, cpu, task, |p| unsafe {
            (Self::CALLBACKS.select_cpu)(p, prev as i32, 0)
        });
        self.inner.context.current = ptr::null_mut();
        chosen as u32
    }

    /// The callbacks that follow are for a wake-up by a device's interrupt, or are not.
    pub fn set_interrupt(&mut self, interrupt: bool) {
        self.inner.context.interrupt = interrupt.into();
    }

    /// The callback that follows is a wake-up by `current`.
    fn begin_beside(&mut self, current: Option<usize>) {
        self.inner.context.current = self.inner.pointer_or_null(current);
    }

    /// `task` wakes on `cpu`, where `current` runs; it may run on one pCPU only, so that select_cpu is not called.
    pub fn enqueue_woken(&mut self, now: Nanos, cpu: u32, task: usize, current: Option<usize>) {
        self.begin_beside(current);
        self.enqueue(now, cpu, task);
        self.inner.context.current = ptr::null_mut();
    }

    /// `task` must be queued.
    pub fn enqueue(&mut self, now: Nanos, cpu: u32, task: usize) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::Enqueue, now, cpu, task, |p| unsafe {
            (Self::CALLBACKS.enqueue)(p, 0)
        });
    }

    /// `cpu` needs something to run; `prev` has it and still wants it, if given.
    pub fn dispatch(&mut self, now: Nanos, cpu: u32, prev: Option<usize>) {
        let prev = self.inner.pointer_or_null(prev);
        // SAFETY: `prev` is null or a live task of this context.
        self.enter(Callback::Dispatch, now, cpu, || unsafe {
            (Self::CALLBACKS.dispatch)(cpu as i32, prev)
        });
    }

    /// `task` has `cpu` from now on.
    pub fn running(&mut self, now: Nanos, cpu: u32, task: usize) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::Running, now, cpu, task, |p| unsafe {
            (Self::CALLBACKS.running)(p)
        });
    }

    /// `task` loses `cpu`; does it want to run on, or go to wait?
    pub fn stopping(&mut self, now: Nanos, cpu: u32, task: usize, runnable: bool) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::Stopping, now, cpu, task, |p| unsafe {
            (Self::CALLBACKS.stopping)(p, runnable)
        });
    }

    /// `task`, running on `cpu`, lets others go first: `to`, which waits, or any task. False: it goes on.
    pub fn yields(&mut self, now: Nanos, cpu: u32, task: usize, to: Option<usize>) -> bool {
        let to = self.inner.pointer_or_null(to);
        // SAFETY: `p` is a live task of this context, `to` is null or another one.
        self.call(Callback::Yield, now, cpu, task, |p| unsafe {
            (Self::CALLBACKS.yields)(p, to)
        })
    }

    /// The timer of `cpu` fired, on that pCPU.
    pub fn timer(&mut self, now: Nanos, cpu: u32) {
        // SAFETY: no pointers are passed.
        self.enter(Callback::Timer, now, cpu, || unsafe {
            (Self::CALLBACKS.timer)(cpu as i32)
        });
    }

    /// The same on the pCPU `here`, from which the timer was started: simulated timers do not do that.
    #[cfg(test)]
    pub fn timer_elsewhere(&mut self, now: Nanos, here: u32, cpu: u32) {
        // SAFETY: no pointers are passed.
        self.enter(Callback::Timer, now, here, || unsafe {
            (Self::CALLBACKS.timer)(cpu as i32)
        });
    }

    /// The release timer of `cpu` fired, on that pCPU.
    pub fn release(&mut self, now: Nanos, cpu: u32) {
        // SAFETY: no pointers are passed.
        self.enter(Callback::Release, now, cpu, || unsafe {
            (Self::CALLBACKS.release)(cpu as i32)
        });
    }

    /// A sibling waits for the ready `task` to flush its TLB. Kernels have no such callback.
    pub fn flush_ipi(&mut self, now: Nanos, cpu: u32, task: usize) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::FlushIpi, now, cpu, task, |p| unsafe {
            (Self::CALLBACKS.flush_ipi)(p)
        });
    }

    /// The same during a callback on this thread: on another CPU, as it were.
    ///
    /// # Safety
    /// `task` must be a live task of the dispatcher whose callback it is.
    #[cfg(test)]
    pub(crate) unsafe fn flush_ipi_within(task: *mut TaskStruct) {
        // SAFETY: the caller's promise.
        unsafe { (Self::CALLBACKS.flush_ipi)(task) }
    }

    /// Calls C for `task`, with time and place set.
    fn call<R>(
        &mut self,
        name: Callback,
        now: Nanos,
        cpu: u32,
        task: usize,
        callback: impl FnOnce(*mut TaskStruct) -> R,
    ) -> R {
        let p = self.inner.pointer_to(task);
        self.enter(name, now, cpu, || callback(p))
    }

    fn enter<R>(
        &mut self,
        name: Callback,
        now: Nanos,
        cpu: u32,
        callback: impl FnOnce() -> R,
    ) -> R {
        let this: *mut Inner<S> = &mut *self.inner;
        // SAFETY: `this` is our box, borrowed exclusively for this call; C and the table's functions
        // reach it only through this pointer, and only until `callback` returns.
        unsafe {
            (*this).context.this = this.cast();
            (*this).context.now = now;
            (*this).context.cpu = cpu as i32;
            (Self::CALLBACKS.enter)(&raw mut (*this).context);
        }
        let result = callback();
        self.inner.services.returned(name, now);
        result
    }
}
