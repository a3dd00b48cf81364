// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel counts for a vCPU thread on request (`perf_event_open()`): instructions and last-level cache,
//! pause-loop exits, I/O.
//!
//! Nothing is guessed: what this machine or kernel does not count is unknown. A host without a
//! performance monitoring unit (most cloud instances) counts no cache misses; one without KVM's
//! tracepoints, no exits. I/O events are the requests that a guest sends to its devices (port and
//! memory-mapped I/O, which KVM sees); interrupts for it may be posted without KVM's knowledge.
//!
//! What "cache references" and "cache misses" are is the kernel's choice: those of the last-level cache
//! on Intel, of the L2 on AMD's Zen (arch/x86/events/{intel,amd}/core.c), where the last-level cache counts
//! for all its cores together. So limits between types hold for the machine that they were found on.
//!
//! A guest that halts without an exit (MWAIT or HLT passed through) shows by the cycles in which its pCPU was not
//! halted, compared with the time stamp counter, which never stops; both count while the guest runs, too. The kernel's
//! `msr` PMU has both on Intel and AMD (`mperf`, `tsc`); otherwise unhalted cycles are the hardware's reference cycles.
//! A host that is a virtual machine itself mostly counts neither.

use crate::descriptors;
use corun_model::{LlcSeen, PcpuId, Signals, UnhaltedSeen};
use corun_policies::pmu::{Event, HARDWARE};
use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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

const TRACEPOINT: u32 = 2;
/// `PERF_COUNT_HW_INSTRUCTIONS`, `_CACHE_REFERENCES`, `_CACHE_MISSES`.
const INSTRUCTIONS: u64 = 1;
const REFERENCES: u64 = 2;
const MISSES: u64 = 3;
/// `PERF_COUNT_HW_REF_CPU_CYCLES`: unhalted, at the rate of the time stamp counter.
const REFERENCE_CYCLES: u64 = 9;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const TIMES: u64 = 3;
/// `_IOW('$', 6, char *)`.
const SET_FILTER: libc::c_ulong = 0x4008_2406;
/// Any thread, any pCPU, no group.
const ANY: libc::c_int = -1;
/// The first flag of `perf_event_attr`, `disabled`.
const DISABLED: u64 = 1;
/// `PERF_EVENT_IOC_ENABLE`: `_IO('$', 0)`.
const ENABLE: libc::c_ulong = 0x2400;
/// `PERF_IOC_FLAG_GROUP`.
const WHOLE_GROUP: libc::c_ulong = 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Why counters may be refused to a process that has kept CAP_PERFMON alone, and what helps.
pub(crate) const RESTRICTED: &str = "where kernel.perf_event_paranoid is above 2, some kernels (Debian's, Ubuntu's) ask for \
                                     CAP_SYS_ADMIN, which the daemon has given up: `sysctl kernel.perf_event_paranoid=2`";

/// A counter of a thread, or of a pCPU.
#[derive(Debug)]
pub(crate) struct Counter(OwnedFd);

impl Counter {
    /// Of thread `tid`, wherever it runs.
    fn open(kind: u32, config: u64, tid: u32) -> io::Result<Self> {
        let tid = libc::pid_t::try_from(tid).map_err(io::Error::other)?;
        Self::open_for(kind, config, (tid, ANY), None)
    }

    /// Of a pCPU, whatever task runs there, guests included: all of them have a counter at the same
    /// time, or none has.
    ///
    /// # Errors
    /// The place of the event that cannot be counted, and why.
    pub(crate) fn group(events: &[Event], cpu: PcpuId) -> Result<Vec<Self>, (usize, io::Error)> {
        let mut all: Vec<Self> = Vec::new();
        for (at, event) in events.iter().enumerate() {
            let on = libc::c_int::try_from(cpu.0).map_err(|why| (at, io::Error::other(why)))?;
            let counter = Self::open_for(event.kind, event.config, (ANY, on), Some(all.first()));
            all.push(counter.map_err(|why| (at, why))?);
        }
        // Events that join while the first one counts may not get a counter (seen of software events).
        if let Some(leader) = all.first() {
            leader.begin_group().map_err(|why| (0, why))?;
        }
        Ok(all)
    }

    fn begin_group(&self) -> io::Result<()> {
        // SAFETY: an open descriptor that this owns; the argument is a flag.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), ENABLE, WHOLE_GROUP) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// `group`: `None`: a counter of its own, which counts at once; `Some(None)`: the first one of
    /// a group, which waits until the group is complete; else the first one of its group.
    fn open_for(
        kind: u32,
        config: u64,
        (thread, cpu): (libc::pid_t, libc::c_int),
        group: Option<Option<&Self>>,
    ) -> io::Result<Self> {
        let attr = Attr {
            kind,
            size: size_of::<Attr>() as u32,
            config,
            read_format: TIMES,
            flags: if matches!(group, Some(None)) {
                DISABLED
            } else {
                0
            },
            ..Attr::default()
        };
        let leader = group.flatten();
        // SAFETY: `attr` is readable and as long as it says; the leader's descriptor is open, or -1 for none.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                thread,
                cpu,
                leader.map_or(ANY, |leader| leader.0.as_raw_fd()),
                CLOSE_ON_EXEC,
            )
        };
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(descriptors::to_keep(fd)?))
    }

    /// Counts only what passes a filter of the tracepoint.
    fn filtered(self, filter: &std::ffi::CStr) -> io::Result<Self> {
        // SAFETY: an open descriptor that this owns and a text that ends with a zero.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), SET_FILTER, filter.as_ptr()) } {
            0 => Ok(self),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsRawFd for Counter {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Something that counts.
pub(crate) trait Count {
    /// Its value now. `None`: it cannot be read.
    fn read(&self) -> Option<Said>;
}

impl Count for Counter {
    fn read(&self) -> Option<Said> {
        let mut values = [0u64; 3];
        let size = size_of_val(&values);
        // SAFETY: `values` is writable and as long as said.
        let got = unsafe { libc::read(self.0.as_raw_fd(), values.as_mut_ptr().cast(), size) };
        let [count, enabled, running] = values;
        let said = Said {
            count,
            enabled,
            running,
        };
        (usize::try_from(got) == Ok(size)).then_some(said)
    }
}

/// A counter's value since it was opened. If there are more events than counters, they take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    count: u64,
    /// How long its thread, or pCPU, ran, ns.
    enabled: u64,
    /// For how long of that it counted.
    running: u64,
}

impl Said {
    /// What would have been counted since `before`, had it counted all the time. This scales the difference, not
    /// totals: after one turn in which more happens than before, scaled totals could go back. `None`: it had no turn in
    /// that time.
    pub(crate) fn since(self, before: Self) -> Option<u64> {
        // A counter that was opened anew has counted from its beginning.
        let anew = self.enabled < before.enabled;
        let before = if anew { Self::default() } else { before };
        let count = self.count.saturating_sub(before.count);
        let enabled = self.enabled - before.enabled;
        match self.running.saturating_sub(before.running) {
            0 => (enabled == 0).then_some(0),
            running => {
                let scaled = u128::from(count) * u128::from(enabled) / u128::from(running);
                Some(u64::try_from(scaled).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Where tracefs may be mounted.
pub(crate) const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The number of one of KVM's tracepoints.
fn tracepoint(name: &str) -> Option<u64> {
    let id = |root: &&str| {
        let file = Path::new(root).join(format!("events/kvm/{name}/id"));
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    TRACEFS.iter().find_map(id)
}

/// An event that the kernel describes in `events/NAME` of a PMU's directory: the PMU's number, and the event's,
/// if a counter is just that (`event=0x02`).
fn described(pmu: &Path, name: &str) -> Option<(u32, u64)> {
    let kind = fs::read_to_string(pmu.join("type")).ok()?;
    let event = fs::read_to_string(pmu.join("events").join(name)).ok()?;
    let number = event.trim().strip_prefix("event=0x")?;
    Some((
        kind.trim().parse().ok()?,
        u64::from_str_radix(number, 16).ok()?,
    ))
}

/// The PMU of counters that the kernel reads as model-specific registers.
const MSR: &str = "/sys/bus/event_source/devices/msr";

/// The exit reasons of pause-loop exits: `EXIT_REASON_PAUSE_INSTRUCTION` of VMX, `SVM_EXIT_PAUSE` of SVM.
const PAUSE_EXITS: [&std::ffi::CStr; 2] = [
    c"isa == 1 && exit_reason == 40",
    c"isa == 2 && exit_reason == 119",
];
/// A guest's requests to its devices.
const IO: [&str; 3] = ["kvm_fast_mmio", "kvm_mmio", "kvm_pio"];

/// What can be counted of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Instructions,
    References,
    Misses,
    /// Cycles in which the pCPU was not halted.
    Unhalted,
    /// The time stamp counter: what [`What::Unhalted`] would have counted had the pCPU never halted.
    Clock,
    /// Requests of this sort ([`IO`]).
    Io(&'static str),
    /// Pause-loop exits, selected by this filter ([`PAUSE_EXITS`]).
    Pause(&'static std::ffi::CStr),
}

/// A counter of thread `tid`.
///
/// # Errors
/// The machine or kernel has none, or it is refused.
fn counter(what: What, tid: u32) -> io::Result<Counter> {
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let trace = |name| Counter::open(TRACEPOINT, tracepoint(name).ok_or_else(none)?, tid);
    let hardware = |config| Counter::open(HARDWARE, config, tid);
    let msr = |name| {
        let (kind, event) = described(Path::new(MSR), name).ok_or_else(none)?;
        Counter::open(kind, event, tid)
    };
    match what {
        What::Unhalted => msr("mperf").or_else(|_| hardware(REFERENCE_CYCLES)),
        What::Clock => msr("tsc"),
        What::Instructions => hardware(INSTRUCTIONS),
        What::References => hardware(REFERENCES),
        What::Misses => hardware(MISSES),
        What::Io(name) => trace(name),
        What::Pause(filter) => trace("kvm_exit")?.filtered(filter),
    }
}

/// A vCPU's counters, as far as there are any.
#[derive(Debug)]
pub(crate) struct VcpuCounters {
    counters: Counters<Counter>,
    refused: bool,
    crowded: bool,
}

impl VcpuCounters {
    /// Begins to count for thread `tid`.
    pub(crate) fn open(tid: u32) -> Self {
        Self::of(|what| counter(what, tid))
    }

    fn of(open: impl Fn(What) -> io::Result<Counter>) -> Self {
        let (refused, crowded) = (Cell::new(false), Cell::new(false));
        let counters = Counters::open(|what| {
            let opened = open(what);
            let denied = |why: &io::Error| why.kind() == io::ErrorKind::PermissionDenied;
            refused.set(refused.get() || opened.as_ref().is_err_and(denied));
            crowded.set(crowded.get() || opened.as_ref().is_err_and(descriptors::are_all_taken));
            opened.ok()
        });
        Self {
            counters,
            refused: refused.get(),
            crowded: crowded.get(),
        }
    }

    /// Is there a counter for which no descriptor was left?
    pub(crate) fn crowded(&self) -> bool {
        self.crowded
    }

    /// Is there a counter that the daemon has no right to?
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> Tally {
        self.counters.read()
    }
}

/// What a vCPU's counters say at a time, as far as there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    io: Option<[Said; IO.len()]>,
    pause: Option<[Said; PAUSE_EXITS.len()]>,
    instructions: Option<Said>,
    /// References and misses.
    llc: Option<[Said; 2]>,
    /// Unhalted cycles, and the clock.
    unhalted: Option<[Said; 2]>,
}

impl Tally {
    /// What happened since `before`, as far as it was counted.
    pub(crate) fn since(&self, before: &Self) -> Signals {
        let instructions = self.instructions.and_then(|now| {
            let then = before.instructions.unwrap_or_default();
            now.since(then)
        });
        let llc = |[references, misses]: [u64; 2]| {
            Some(LlcSeen {
                instructions: instructions?,
                references,
                misses,
            })
        };
        let unhalted = |[unhalted, reference]: [u64; 2]| UnhaltedSeen {
            unhalted,
            reference,
        };
        let sum = |counts: &[u64]| counts.iter().copied().fold(0, u64::saturating_add);
        Signals {
            io_events: each(self.io, before.io).map(|it| sum(&it)),
            pause_exits: each(self.pause, before.pause).map(|it| sum(&it)),
            instructions,
            llc: each(self.llc, before.llc).and_then(llc),
            unhalted: each(self.unhalted, before.unhalted).map(unhalted),
            ..Signals::default()
        }
    }
}

/// What each of several counters has counted since then; `None`: one of them had no turn.
fn each<const N: usize>(now: Option<[Said; N]>, before: Option<[Said; N]>) -> Option<[u64; N]> {
    let (now, before) = (now?, before.unwrap_or([Said::default(); N]));
    let mut all = [0; N];
    for (at, count) in all.iter_mut().enumerate() {
        *count = now[at].since(before[at])?;
    }
    Some(all)
}

impl Default for VcpuCounters {
    /// Counts nothing.
    fn default() -> Self {
        Self::of(|_| Err(io::ErrorKind::NotFound.into()))
    }
}

/// The same, of whatever counts.
#[derive(Debug)]
struct Counters<C> {
    io: Vec<C>,
    pause: Vec<C>,
    instructions: Option<C>,
    /// References and misses, which say nothing alone.
    llc: Option<[C; 2]>,
    /// Unhalted cycles, and the clock.
    unhalted: Option<[C; 2]>,
}

impl<C: Count> Counters<C> {
    /// With what `of` has.
    fn open(of: impl Fn(What) -> Option<C>) -> Self {
        let llc = || Some([of(What::References)?, of(What::Misses)?]);
        Self {
            io: IO.iter().filter_map(|name| of(What::Io(name))).collect(),
            pause: PAUSE_EXITS
                .iter()
                .filter_map(|filter| of(What::Pause(filter)))
                .collect(),
            instructions: of(What::Instructions),
            llc: llc(),
            unhalted: of(What::Unhalted).zip(of(What::Clock)).map(Into::into),
        }
    }

    fn read(&self) -> Tally {
        Tally {
            io: read_all(&self.io),
            pause: read_all(&self.pause),
            instructions: self.instructions.as_ref().and_then(Count::read),
            llc: self.llc.as_ref().and_then(|it| read_all(it)),
            unhalted: self.unhalted.as_ref().and_then(|it| read_all(it)),
        }
    }
}

/// What these counters show, with nothing in the places of missing ones; `None`: there are none, or one cannot be read.
fn read_all<const N: usize>(counters: &[impl Count]) -> Option<[Said; N]> {
    let mut all = [Said::default(); N];
    for (said, counter) in all.iter_mut().zip(counters) {
        *said = counter.read()?;
    }
    (!counters.is_empty()).then_some(all)
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
        assert!(own.read().unwrap().since(first) > Some(0));
        assert!(counter.read().unwrap().since(before).is_some());
    }

    /// As on Debian, whose kernel asks for more than CAP_PERFMON: that is different from a machine that does
    /// not count.
    #[test]
    fn what_is_refused_is_told_from_what_there_is_not() {
        let refusing = |denied: &'static str| {
            VcpuCounters::of(move |what| {
                let denied = matches!(what, What::Io(name) if name == denied);
                Err(io::Error::from_raw_os_error(if denied {
                    libc::EACCES
                } else {
                    libc::ENOENT
                }))
            })
        };
        assert!(refusing(IO[0]).refused());
        assert!(!refusing("nothing").refused());
        assert!(!VcpuCounters::default().refused());
        assert_eq!(refusing(IO[0]).read(), Tally::default());
        let crowded = VcpuCounters::of(|_| Err(io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(crowded.crowded() && !crowded.refused());
        assert!(!refusing(IO[0]).crowded());
    }

    #[test]
    fn what_is_not_counted_is_unknown() {
        assert_eq!(VcpuCounters::default().read(), Tally::default());
        // A thread that is not there.
        assert_eq!(VcpuCounters::open(u32::MAX >> 1).read(), Tally::default());
        let nothing = Tally::default().since(&Tally::default());
        assert_eq!(nothing, Signals::default());
    }

    /// A counter that shows what it is given.
    impl Count for Option<u64> {
        fn read(&self) -> Option<Said> {
            self.map(|count| said([count, 1, 1]))
        }
    }

    fn said([count, enabled, running]: [u64; 3]) -> Said {
        Said {
            count,
            enabled,
            running,
        }
    }

    /// What is seen if counters show what `of` returns; the outer `None`: there is no such counter.
    fn seen(of: impl Fn(What) -> Option<Option<u64>>) -> Signals {
        Counters::open(of).read().since(&Tally::default())
    }

    #[test]
    fn a_machine_with_everything() {
        let all = seen(|what| {
            Some(Some(match what {
                What::Instructions => 1_000_000,
                What::References => 20_000,
                What::Misses => 300,
                What::Unhalted => 70,
                What::Clock => 1_000,
                What::Io(name) => name.len() as u64,
                What::Pause(filter) => 10 + u64::from(filter == PAUSE_EXITS[0]),
            }))
        });
        let llc = LlcSeen {
            instructions: 1_000_000,
            references: 20_000,
            misses: 300,
        };
        let io = IO.iter().map(|name| name.len() as u64).sum();
        let expected = Signals {
            io_events: Some(io),
            pause_exits: Some(21),
            instructions: Some(1_000_000),
            llc: Some(llc),
            unhalted: Some(UnhaltedSeen {
                unhalted: 70,
                reference: 1_000,
            }),
            ..Signals::default()
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn a_machine_without_a_pmu_tells_of_exits_all_the_same() {
        let no_pmu = |what| matches!(what, What::Io(_) | What::Pause(_)).then_some(Some(4));
        let told = seen(no_pmu);
        assert_eq!(
            (told.io_events, told.pause_exits, told.llc),
            (Some(12), Some(8), None)
        );
        assert_eq!(told.instructions, None);
    }

    #[test]
    fn instructions_are_told_where_the_caches_events_are_not() {
        // One event that the PMU does not have, and the ratios are not known.
        for lacks in [What::References, What::Misses] {
            let half = seen(|what| (what != lacks).then_some(Some(4)));
            assert_eq!((half.llc, half.instructions), (None, Some(4)));
        }
        // A counter that cannot be read is no zero.
        let gone = seen(|what| Some((what != What::References).then_some(4)));
        assert_eq!(
            (gone.llc, gone.instructions, gone.io_events),
            (None, Some(4), Some(12))
        );
        let blind = seen(|what| (what != What::Instructions).then_some(Some(4)));
        assert_eq!((blind.llc, blind.instructions), (None, None));
    }

    #[test]
    fn unhalted_cycles_are_worth_nothing_without_a_clock() {
        for missing in [What::Unhalted, What::Clock] {
            let half = seen(|what| (what != missing).then_some(Some(4)));
            assert_eq!((half.unhalted, half.llc.is_some()), (None, true));
        }
    }

    #[test]
    fn events_are_found_where_the_kernel_describes_them() {
        let root = std::env::temp_dir().join(format!("corun-perf-{}", std::process::id()));
        fs::create_dir_all(root.join("events")).unwrap();
        fs::write(root.join("type"), "9\n").unwrap();
        fs::write(root.join("events/mperf"), "event=0x02\n").unwrap();
        fs::write(root.join("events/other"), "event=0x02,umask=0x1\n").unwrap();
        let found = ["mperf", "tsc", "other"].map(|name| described(&root, name));
        fs::remove_dir_all(&root).unwrap();
        // One is not there, and one takes more than a number.
        assert_eq!(found, [Some((9, 2)), None, None]);
    }

    #[test]
    fn counters_that_take_turns_are_scaled() {
        let since = |now, before| said(now).since(said(before));
        let from_the_start = |now| since(now, [0; 3]);
        assert_eq!(from_the_start([500, 3_000, 1_000]), Some(1_500));
        assert_eq!(from_the_start([500, 1_000, 1_000]), Some(500));
        assert_eq!(from_the_start([u64::MAX, 2, 1]), Some(u64::MAX));
        // It had no turn, which says nothing; and its thread had none, so that there was nothing to count.
        assert_eq!(from_the_start([0, 1_000, 0]), None);
        assert_eq!(since([500, 3_000, 1_000], [500, 3_000, 1_000]), Some(0));
        // Opened anew meanwhile.
        assert_eq!(since([7, 20, 10], [500, 3_000, 1_000]), Some(14));
    }

    /// Scaled, the total would fall from 2,000,000 to 1,786,923, as if it had begun anew.
    #[test]
    fn a_period_is_scaled_by_its_own_turns() {
        let (before, now) = ([1_000_000, 200, 100], [1_010_000, 230, 130]);
        assert_eq!(said(now).since(said(before)), Some(10_000));
    }

    #[test]
    fn what_had_no_turn_in_a_period_is_unknown_in_that_one_only() {
        let at = |instructions, misses| Tally {
            instructions: Some(said(instructions)),
            llc: Some([said([40, 30, 10]), said(misses)]),
            ..Tally::default()
        };
        let before = at([900, 30, 20], [5, 30, 10]);
        let without = at([1_000, 40, 20], [6, 40, 20]).since(&before);
        assert_eq!((without.instructions, without.llc), (None, None));
        let with = at([1_000, 40, 25], [5, 40, 10]).since(&before);
        assert_eq!((with.instructions, with.llc), (Some(200), None));
    }
}
