// SPDX-License-Identifier: GPL-2.0-only
//! A vCPU as its guest's kernel knows it.

use super::balancing::Rounds;
use super::balloon::Balloon;
use super::idle::{IdleState, Idling};
use super::interrupts::Interrupt;
use super::net::Receive;
use super::runqueue::Runqueue;
use super::spinning::Yielding;
use corun_model::{Nanos, TaskId};

/// Where a vCPU is between host and guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It executed HLT: idle, or waiting for a paravirtual lock.
    Halted,
    /// It wants a pCPU.
    Ready,
    /// It has one.
    Running,
}

/// A vCPU in the run.
#[derive(Debug)]
pub(super) struct Vcpu {
    pub task: TaskId,
    pub mode: Mode,
    /// Has it made progress since it got its pCPU? Before, nothing happens in the guest.
    pub started: bool,
    /// How much of the progress since then is booked.
    pub booked: Nanos,
    /// Kernel work (interrupts, switches) to be done before the thread goes on.
    pub overhead: Nanos,
    /// How much of that, at its beginning, belongs to a switch between vCPUs: waking a halted one,
    /// or taking the interrupt that woke it. Only used where SMT siblings notice.
    pub rescheduling: Nanos,
    /// It was halted and has not taken an interrupt since.
    pub woken: bool,
    pub current: Option<u32>,
    /// Has it run a thread since it last let page tables go, so that its TLB may hold entries that others change?
    pub tlb_loaded: bool,
    pub queue: Runqueue,
    /// A thread that should run first is queued.
    pub need_resched: bool,
    /// Delivered when it runs.
    pub pending: Vec<Interrupt>,
    /// Packets for it.
    pub receive: Receive,
    /// The next tick is under way.
    pub tick_armed: bool,
    /// When it balances, if it has a thread then.
    pub rounds: Rounds,
    /// How it idles.
    pub idle_state: IdleState,
    /// xBalloon's state.
    pub balloon: Balloon,
    /// Since when its kernel has had no thread for it, as far as that is not booked.
    pub idle_since: Option<Nanos>,
    /// Since the run began: interrupts of devices for it and requests and packets from it.
    pub io_events: u64,
    /// Pause-loop exits since the run began.
    pub pause_exits: u64,
    /// How often KVM has widened its window since it was given its pCPU.
    pub widened: u32,
    /// Did it spin when it gave its pCPU up?
    pub yielding: Yielding,
    /// Retentions that ended with what was waited for, since the run began.
    pub kept: u64,
}

impl Vcpu {
    /// vCPU number `vcpu` of its VM.
    pub fn new(task: TaskId, vcpu: u32) -> Self {
        Self {
            task,
            mode: Mode::Halted,
            started: false,
            booked: 0,
            overhead: 0,
            rescheduling: 0,
            woken: false,
            current: None,
            tlb_loaded: false,
            queue: Runqueue::default(),
            need_resched: false,
            pending: Vec::new(),
            receive: Receive::default(),
            tick_armed: false,
            rounds: Rounds::of(vcpu),
            idle_state: IdleState::default(),
            balloon: Balloon::default(),
            idle_since: Some(0),
            io_events: 0,
            pause_exits: 0,
            widened: 0,
            yielding: Yielding::No,
            kept: 0,
        }
    }

    /// Does it have nothing to run, as its kernel sees it, or nothing that may run?
    pub fn idle(&self) -> bool {
        self.current.is_none() && (self.queue.is_empty() || self.balloon.asleep())
    }

    /// Has it executed HLT, so that its kernel needs an interrupt to go on?
    pub fn halted(&self) -> bool {
        self.mode == Mode::Halted || self.polled_for()
    }

    /// Is it halted with KVM polling for it?
    pub fn polled_for(&self) -> bool {
        matches!(self.idle_state.idling, Some(Idling::HaltPolling { .. }))
    }

    /// Threads that run or wait for it.
    pub fn runnable(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }
}
