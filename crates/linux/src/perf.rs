// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel counts of a vCPU thread for whoever asks (`perf_event_open()`): instructions and
//! last-level cache, pause-loop exits, I/O.
//!
//! Nothing is guessed: what this machine or kernel does not count is unknown. A host without a
//! performance monitoring unit (most cloud instances) counts no cache misses; one without KVM's
//! tracepoints, no exits. I/O events are the requests that a guest sends to its devices (port and
//! memory-mapped I/O, which KVM sees); interrupts for it may be posted without KVM's knowledge.

use corun_model::{LlcSeen, Signals};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// `struct perf_event_attr` as of its first version (linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const HARDWARE: u32 = 0;
const TRACEPOINT: u32 = 2;
/// `PERF_COUNT_HW_INSTRUCTIONS`, `_CACHE_REFERENCES`, `_CACHE_MISSES`.
const INSTRUCTIONS: u64 = 1;
const REFERENCES: u64 = 2;
const MISSES: u64 = 3;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const TIMES: u64 = 3;
/// `_IOW('$', 6, char *)`.
const SET_FILTER: libc::c_ulong = 0x4008_2406;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// A counter of a thread.
#[derive(Debug)]
struct Counter(OwnedFd);

impl Counter {
    fn open(kind: u32, config: u64, tid: u32) -> io::Result<Self> {
        let attr = Attr {
            kind,
            size: size_of::<Attr>() as u32,
            config,
            read_format: TIMES,
            ..Attr::default()
        };
        let tid = libc::pid_t::try_from(tid).map_err(io::Error::other)?;
        // SAFETY: `attr` is readable and as long as it says; any pCPU, no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                tid,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Counts only what passes a filter of the tracepoint.
    fn filtered(self, filter: &std::ffi::CStr) -> io::Result<Self> {
        // SAFETY: a descriptor of ours and a text that ends with a zero.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), SET_FILTER, filter.as_ptr()) } {
            0 => Ok(self),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The count; where counters take turns, what it would be had this one counted all the time.
    fn read(&self) -> Option<u64> {
        let mut values = [0u64; 3];
        let size = size_of_val(&values);
        // SAFETY: `values` is writable and as long as said.
        let got = unsafe { libc::read(self.0.as_raw_fd(), values.as_mut_ptr().cast(), size) };
        let [count, enabled, running] = values;
        if usize::try_from(got) != Ok(size) {
            return None;
        }
        let scaled = u128::from(count) * u128::from(enabled) / u128::from(running.max(1));
        Some(if running == 0 {
            0
        } else {
            u64::try_from(scaled).unwrap_or(u64::MAX)
        })
    }
}

/// Where tracefs may be mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The number of one of KVM's tracepoints.
fn tracepoint(name: &str) -> Option<u64> {
    let id = |root: &&str| {
        let file = Path::new(root).join(format!("events/kvm/{name}/id"));
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    TRACEFS.iter().find_map(id)
}

/// What tells a pause-loop exit: `EXIT_REASON_PAUSE_INSTRUCTION` of VMX, `SVM_EXIT_PAUSE` of SVM.
const PAUSE_EXITS: [&std::ffi::CStr; 2] = [
    c"isa == 1 && exit_reason == 40",
    c"isa == 2 && exit_reason == 119",
];
/// A guest's requests to its devices.
const IO: [&str; 3] = ["kvm_fast_mmio", "kvm_mmio", "kvm_pio"];

/// A vCPU's counters, as far as there are any.
#[derive(Debug, Default)]
pub(crate) struct VcpuCounters {
    io: Vec<Counter>,
    pause: Vec<Counter>,
    llc: Option<[Counter; 3]>,
}

impl VcpuCounters {
    /// Begins to count for thread `tid`.
    pub(crate) fn open(tid: u32) -> Self {
        let trace = |name: &str| Counter::open(TRACEPOINT, tracepoint(name)?, tid).ok();
        let hardware = |config| Counter::open(HARDWARE, config, tid).ok();
        let llc = || {
            Some([
                hardware(INSTRUCTIONS)?,
                hardware(REFERENCES)?,
                hardware(MISSES)?,
            ])
        };
        let pause = |filter: &&std::ffi::CStr| trace("kvm_exit")?.filtered(filter).ok();
        Self {
            io: IO.iter().filter_map(|name| trace(name)).collect(),
            pause: PAUSE_EXITS.iter().filter_map(pause).collect(),
            llc: llc(),
        }
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> Signals {
        let sum = |counters: &[Counter]| {
            let counts = counters.iter().map(Counter::read);
            counts.reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
        };
        let llc = |[instructions, references, misses]: &[Counter; 3]| {
            Some(LlcSeen {
                instructions: instructions.read()?,
                references: references.read()?,
                misses: misses.read()?,
            })
        };
        Signals {
            io_events: sum(&self.io),
            pause_exits: sum(&self.pause),
            llc: self.llc.as_ref().and_then(llc),
            ..Signals::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_TASK_CLOCK`: there wherever perf is, whatever the
    /// machine.
    #[test]
    fn a_counter_counts() {
        let me = std::process::id();
        let Ok(counter) = Counter::open(1, 1, me) else {
            return; // not allowed here
        };
        let before = counter.read().unwrap();
        // On another thread's clock nothing is seen of this one: count our own.
        let own = Counter::open(1, 1, 0).unwrap();
        let first = own.read().unwrap();
        let mut sum = 0u64;
        (0..200_000u64).for_each(|n| sum = sum.wrapping_add(std::hint::black_box(n)));
        std::hint::black_box(sum);
        assert!(own.read().unwrap() > first);
        assert!(counter.read().unwrap() >= before);
    }

    #[test]
    fn what_is_not_counted_is_unknown() {
        assert_eq!(VcpuCounters::default().read(), Signals::default());
        // A thread that is not there.
        assert_eq!(VcpuCounters::open(u32::MAX >> 1).read(), Signals::default());
    }
}
