// SPDX-License-Identifier: GPL-2.0-only
//! The heartbeats: for each vCPU a thread that is pinned to it and woken by a timer, and besides these one that makes
//! the moves that may take long.
//!
//! A timer thread can only run while its vCPU does; that is all a guest can know about it (vMigrater, ATC 2018, §3.2).
//! So it must run as soon as its vCPU does, before the guest's own work: SCHED_FIFO with the lowest priority, or else
//! nice -20. What it does is short: a time stamp, and, if the lock is free, a decision under it.
//!
//! A thread on its own vCPU or on a run queue is moved at once. One that was running when its vCPU was descheduled is
//! not moved before that vCPU runs again (`stop_one_cpu()` in kernel/sched/core.c), and the thread that asks for the
//! move waits. That must not be a heartbeat: hence the second thread.

use crate::migrater::{Migrater, Order};
use corun_model::time::MS;
use corun_model::{Nanos, PcpuId};
use corun_policies::vmigrater::Why;
use corun_system::affinity;
use corun_system::clock;
use corun_system::procfs::Proc;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// What lets heartbeats run before the guest's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// SCHED_FIFO, the lowest priority.
    RealTime,
    /// The best priority of ordinary threads.
    Nice,
}

/// Asks for it on behalf of the calling thread.
///
/// # Errors
/// If neither is permitted.
pub(crate) fn raise() -> io::Result<Priority> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // Children of a real-time thread must not be real-time threads by accident.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `lowest` is readable; the calling thread only.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) } == 0 {
        return Ok(Priority::RealTime);
    }
    // SAFETY: three integers; on Linux 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0 {
        // Timers of ordinary threads may otherwise be 50 µs late (man 2 prctl).
        // SAFETY: integers only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        return Ok(Priority::Nice);
    }
    Err(io::Error::last_os_error())
}

/// What would let heartbeats run first: tried on a thread of its own.
///
/// # Errors
/// If none is permitted.
pub(crate) fn try_priority() -> io::Result<Priority> {
    let tried = std::thread::spawn(raise).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("the thread that tried it died")))
}

/// Lets no thread of this process give memory back while it runs.
///
/// Unmapping memory interrupts all vCPUs that ran a thread of the process lately (TLB shootdown) and spins until they
/// answer. A descheduled vCPU answers when it is back: the vCPU that runs would spend the whole absence spinning.
pub(crate) fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: integers only; they concern what the allocator does later.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 25);
    }
}

/// Asks for the best of ordinary priorities, for the calling thread; without the right to that nothing changes.
pub(crate) fn be_prompt() {
    // SAFETY: three integers; on Linux 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// What all threads share.
struct Shared {
    migrater: Arc<Mutex<Migrater>>,
    proc: Proc,
    period: AtomicU64,
    stop: AtomicBool,
}

/// All heartbeats.
pub(crate) struct Heart {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Heart {
    /// Begins to beat on these vCPUs.
    ///
    /// # Errors
    /// If a thread cannot be created, tied to its vCPU or raised.
    pub(crate) fn start(
        migrater: &Arc<Mutex<Migrater>>,
        vcpus: impl Iterator<Item = PcpuId>,
        period: Nanos,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            migrater: Arc::clone(migrater),
            proc: Proc::default(),
            period: AtomicU64::new(period),
            stop: AtomicBool::new(false),
        });
        let mut heart = Self {
            shared,
            threads: Vec::new(),
        };
        for vcpu in vcpus {
            heart.start_on(vcpu)?;
        }
        Ok(heart)
    }

    fn start_on(&mut self, vcpu: PcpuId) -> io::Result<()> {
        let (orders, due) = channel();
        let shared = Arc::clone(&self.shared);
        self.spawn(format!("beat/{}", vcpu.0), vcpu, move || {
            beat(&shared, vcpu.0, &orders)
        })?;
        let shared = Arc::clone(&self.shared);
        self.spawn(format!("move/{}", vcpu.0), vcpu, move || {
            carry_out(&shared, &due)
        })
    }

    /// A thread that is tied to `vcpu` and raised; returns once it is.
    fn spawn(
        &mut self,
        name: String,
        vcpu: PcpuId,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let (said, ready) = channel();
        let begin = move || {
            let prepared = affinity::pin(0, vcpu).and_then(|()| raise());
            let failed = prepared.is_err();
            // The thread that waits for this still exists: it receives before it goes on.
            let _ = said.send(prepared);
            if !failed {
                work();
            }
        };
        self.threads.push(Builder::new().name(name).spawn(begin)?);
        match ready.recv() {
            Ok(prepared) => prepared.map(drop),
            Err(_) => Err(io::Error::other("a heartbeat ended before it began")),
        }
    }

    /// Sets the pace of beats from now on.
    pub(crate) fn set_period(&self, period: Nanos) {
        self.shared.period.store(period, Ordering::Relaxed);
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Beats that are kept while another thread has the migrater: 300 ms of them.
const MOST_MISSED: usize = 1000;

/// Locks the migrater, waiting for it if need be.
pub(crate) fn lock(migrater: &Mutex<Migrater>) -> std::sync::MutexGuard<'_, Migrater> {
    migrater.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The heartbeats of one vCPU.
fn beat(shared: &Shared, vcpu: u32, later: &Sender<Order>) {
    let (mut due, mut missed) = (clock::now(), Vec::with_capacity(MOST_MISSED));
    while !shared.stop.load(Ordering::Relaxed) {
        let period = shared.period.load(Ordering::Relaxed);
        clock::sleep_until(due);
        let now = clock::now();
        due += period;
        if due <= now {
            // What was missed while the vCPU was away is not made up for.
            due = now + period;
        }
        let Ok(mut migrater) = shared.migrater.try_lock() else {
            // The lock's holder may be on a vCPU that is descheduled for long: enough is enough.
            if missed.len() < MOST_MISSED {
                missed.push(now);
            }
            continue;
        };
        migrater.catch_up(vcpu, &missed);
        missed.clear();
        let orders = migrater.beat(vcpu, now);
        due += migrater.rest(vcpu, now);
        drop(migrater);
        for order in orders {
            // The thread's vCPU is this one, where this heartbeat runs and hence the thread does not.
            match order.what.why == Why::Push && order.what.from == vcpu {
                true => make(&shared.migrater, &shared.proc, &order),
                // The receiver outlives this thread.
                false => drop(later.send(order)),
            }
        }
    }
}

/// Makes moves that may take long.
fn carry_out(shared: &Shared, due: &Receiver<Order>) {
    while let Ok(order) = due.recv() {
        make(&shared.migrater, &shared.proc, &order);
    }
}

pub(crate) fn make(migrater: &Mutex<Migrater>, proc: &Proc, order: &Order) {
    let began = clock::now();
    let outcome = order.carry_out(proc);
    let now = clock::now();
    let stands = lock(migrater).done(order, &outcome, now - began, now);
    if !stands {
        order.undo(proc);
    }
}

/// The most that a heartbeat may be slowed down to.
pub(crate) const SLOWEST: Nanos = 20 * MS;
