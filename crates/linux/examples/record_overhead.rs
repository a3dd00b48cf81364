// SPDX-License-Identifier: GPL-2.0-only
//! What `corun record` costs a busy host, measured where it is run (as root).
//!
//! Problem: what a load gets done with and without a recording differs by per cent from second to second by itself,
//! which hides a cost of one per cent.
//! How: three measures of the same turns. *Programs*: the kernel's own clock around each of the recorder's programs
//! (BPF run-time statistics; two readings of the clock per event are included, the way from the event to the program is
//! not). *Threads*: CPU time of the recorder's threads. Their sum, as a share of all pCPUs, is the cost. *Work*: what
//! the load got done per second while recorded, compared with just before and just after; and how much the latter two
//! differ, which is the error of this measure. For work, the kernel's clock around programs is off.
//!
//! Loads have two pairs of threads for a pCPU, bound to it, which wake each other in turn. In between, each computes:
//! some 1 ms (*busy*: a thousand switches a second and pCPU, the order of magnitude of hosts with many VMs; assumed),
//! some 100 us (*very busy*), nothing (*switching*: as much as a host can switch). The cost of counting guests' exits
//! shows with a VM that has a vCPU on each pCPU, whose vCPUs write to a device every 100 us or so (*guests*: ten
//! thousand a second and pCPU, assumed for servers with much I/O) or all the time (*exiting*). The recorder counts at
//! KVM's tracepoint `kvm_exit`; a KVM that does not pass it, as without the processor's help, shows nothing about that.

use corun_linux::record::{self, Progress, RecordOptions};
use corun_linux::socket;
use corun_microvm::machine::Ring;
use corun_microvm::native::{Guest, Job, Running};
use corun_model::time::{MS, SEC};
use libbpf_rs::{libbpf_sys, query::ProgInfoIter};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Turns with a recording whose effect on work is looked at.
const TURNS: usize = 12;
/// Turns with the kernel's clock around programs.
const CLOCKED: usize = 5;
/// Length of a turn, ms.
const TURN: u64 = 500;
/// A pair's threads for each pCPU.
const PAIRS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("record-overhead-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let loads = [
        ("busy", Kind::Threads { work: 1_000_000 }),
        ("very busy", Kind::Threads { work: 100_000 }),
        ("switching", Kind::Threads { work: 0 }),
        ("guests", Kind::Guests { work: 250_000 }),
        ("exiting", Kind::Guests { work: 50 }),
    ];
    let result = loads
        .into_iter()
        .try_for_each(|(name, kind)| measure(name, kind, &folder.join("recording.corun")));
    std::fs::remove_dir_all(&folder)?;
    result
}

/// What the load is; `work`: turns of a loop in between.
#[derive(Clone, Copy)]
enum Kind {
    /// Threads that wake each other.
    Threads { work: u64 },
    /// vCPUs that leave the guest.
    Guests { work: u64 },
}

impl Kind {
    /// What is counted for it.
    fn unit(self) -> &'static str {
        match self {
            Self::Threads { .. } => "wake-ups",
            Self::Guests { .. } => "exits",
        }
    }
}

/// Measures a load, recorded in some turns.
fn measure(name: &str, kind: Kind, file: &Path) -> Result<(), Box<dyn Error>> {
    let load = match Load::start(kind) {
        Ok(load) => load,
        Err(why) if matches!(kind, Kind::Guests { .. }) => {
            println!("{name}: no guests here: {why}");
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    thread::sleep(Duration::from_millis(300));
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let before = [load.rate(), load.rate()];
        turns.push((before, recorded(file, &load)?.rate, load.rate()));
    }
    let mut sum = Recorded::default();
    {
        let _clock = Clock::on()?;
        for _ in 0..CLOCKED {
            sum.add(&recorded(file, &load)?);
        }
    }
    load.stop()?;
    println!("{name}: {}", told(&turns, &sum, kind.unit())?);
    Ok(())
}

/// The work of a turn with a recording, of two before it, and of one after it, per second.
type Turn = ([f64; 2], f64, f64);

fn told(turns: &[Turn], sum: &Recorded, unit: &str) -> Result<String, Box<dyn Error>> {
    let with = quartiles(
        turns
            .iter()
            .map(|(before, with, after)| with / ((before[1] + after) / 2.0)),
    );
    let without = quartiles(turns.iter().map(|(before, _, _)| before[1] / before[0]));
    let pcpus = thread::available_parallelism()?.get() as u64;
    let share = |ns: u64| ns as f64 / (sum.time.max(1) * pcpus) as f64 * 100.0;
    let each = |ns: u64| ns as f64 / sum.events.max(1) as f64;
    let rates: f64 = turns
        .iter()
        .map(|turn| turn.0[0] + turn.0[1] + turn.2)
        .sum();
    Ok(format!(
        "{:.0} {unit}/s, {:.0} events/s, {} lost, {:.1} bytes each\n  \
         cost {:.2} % of {pcpus} pCPUs: programs {:.2} % ({:.0} ns an event), threads {:.2} % ({:.0} ns an event)\n  \
         work while recorded {:.4} ({:.4} to {:.4}; median and quartiles of {TURNS}); without against \
         without {:.4} ({:.4} to {:.4})",
        rates / (3 * turns.len()) as f64,
        sum.events as f64 * SEC as f64 / sum.time.max(1) as f64,
        sum.lost,
        sum.bytes as f64 / sum.events.max(1) as f64,
        share(sum.programs + sum.threads),
        share(sum.programs),
        each(sum.programs),
        share(sum.threads),
        each(sum.threads),
        with[1],
        with[0],
        with[2],
        without[1],
        without[0],
        without[2],
    ))
}

/// Lower quartile, median, upper quartile.
fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values.get(values.len() * quarter / 4).copied();
    [1, 2, 3].map(|quarter| at(quarter).unwrap_or(f64::NAN))
}

/// The kernel takes the time of every BPF program as long as this is there.
struct Clock {
    _on: OwnedFd,
}

impl Clock {
    fn on() -> Result<Self, Box<dyn Error>> {
        // SAFETY: it takes a number and gives a descriptor of ours, or a negative number.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(std::io::Error::from_raw_os_error(-fd).into());
        }
        // SAFETY: just opened, and nobody else has it.
        let _on = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { _on })
    }
}

/// The BPF programs that there are, and the time each has taken, ns.
fn programs() -> BTreeMap<u32, u64> {
    ProgInfoIter::default()
        .map(|it| (it.id, it.run_time_ns))
        .collect()
}

/// What recordings did.
#[derive(Default)]
struct Recorded {
    /// Wake-ups or exits per second.
    rate: f64,
    events: u64,
    lost: u64,
    bytes: u64,
    /// Time of its programs and of its threads, and how long that was, ns.
    programs: u64,
    threads: u64,
    time: u64,
}

impl Recorded {
    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.lost += other.lost;
        self.bytes += other.bytes;
        self.programs += other.programs;
        self.threads += other.threads;
        self.time += other.time;
    }
}

/// The state at some moment.
struct Moment {
    when: Instant,
    done: u64,
    programs: u64,
    threads: u64,
    events: u64,
}

/// A turn's recording, from the first look at its progress to the last, so that neither loading the programs
/// nor ending them is in it.
fn recorded(file: &Path, load: &Load) -> Result<Recorded, Box<dyn Error>> {
    let others = programs();
    let (mut first, mut last) = (None, None);
    let mut progress = |progress: &Progress| {
        // Looking at programs takes time, too: once at the beginning and once close to the end.
        if last.is_some() || (first.is_some() && progress.elapsed < (TURN - 40) * MS) {
            return;
        }
        let before = own_cpu_ns() + writer_cpu_ns();
        let programs = programs()
            .into_iter()
            .filter(|(id, _)| !others.contains_key(id));
        let now = Moment {
            programs: programs.map(|(_, ns)| ns).sum(),
            threads: before,
            when: Instant::now(),
            done: load.done(),
            events: progress.events,
        };
        if first.is_none() {
            let threads = own_cpu_ns() + writer_cpu_ns();
            first = Some(Moment { threads, ..now });
        } else {
            last = Some(now);
        }
    };
    let recorded = record::run(RecordOptions {
        file: file.to_path_buf(),
        run_for: Some(TURN * MS),
        anonymise: false,
        daemon: socket::DEFAULT.into(),
        progress: &mut progress,
    })?;
    std::fs::remove_file(file)?;
    if let Some(error) = recorded.cut {
        return Err(error.into());
    }
    let (first, last) = first.zip(last).ok_or("a turn is too short")?;
    let time = last.when.duration_since(first.when);
    let events = last.events - first.events;
    Ok(Recorded {
        rate: (last.done - first.done) as f64 / time.as_secs_f64(),
        events,
        lost: recorded.progress.lost,
        bytes: recorded.progress.bytes * events / recorded.progress.events.max(1),
        programs: last.programs - first.programs,
        threads: last.threads - first.threads,
        time: time.as_nanos() as u64,
    })
}

/// CPU time of the thread that records, ns.
fn own_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing, and this clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * SEC + time.tv_nsec.cast_unsigned()
}

/// CPU time of the thread that writes the file, ns.
fn writer_cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let mut writers = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm"))
            .is_ok_and(|comm| comm.trim() == "corun-writer")
    });
    let stat = writers
        .next()
        .and_then(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    stat.and_then(|stat| stat.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Threads that wake each other, or a VM.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    guest: Option<Running>,
    pcpus: usize,
}

impl Load {
    fn start(kind: Kind) -> Result<Self, Box<dyn Error>> {
        let mut load = Self {
            stop: Arc::default(),
            done: Arc::default(),
            guest: None,
            pcpus: thread::available_parallelism()?.get(),
        };
        match kind {
            Kind::Threads { work } => load.threads(work)?,
            Kind::Guests { work } => load.guest = Some(guest(work, load.pcpus)?),
        }
        Ok(load)
    }

    fn threads(&self, work: u64) -> Result<(), Box<dyn Error>> {
        for cpu in 0..self.pcpus {
            for _ in 0..PAIRS {
                let (one, other) = UnixStream::pair()?;
                self.spawn(cpu, work, one, true);
                self.spawn(cpu, work, other, false);
            }
        }
        Ok(())
    }

    fn spawn(&self, cpu: usize, work: u64, mut stream: UnixStream, first: bool) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::clone(&self.done));
        thread::spawn(move || {
            bind(cpu);
            let mut byte = [0];
            if first && stream.write_all(&byte).is_err() {
                return;
            }
            while !stop.load(Ordering::Relaxed) && stream.read_exact(&mut byte).is_ok() {
                compute(work);
                done.fetch_add(1, Ordering::Relaxed);
                if stream.write_all(&byte).is_err() {
                    return;
                }
            }
        });
    }

    /// What has been done so far.
    fn done(&self) -> u64 {
        match &self.guest {
            Some(guest) => (0..guest.vcpus()).map(|vcpu| guest.look(vcpu).work).sum(),
            None => self.done.load(Ordering::Relaxed),
        }
    }

    /// What is done per second in the next turn.
    fn rate(&self) -> f64 {
        let (began, before) = (Instant::now(), self.done());
        thread::sleep(Duration::from_millis(TURN));
        (self.done() - before) as f64 / began.elapsed().as_secs_f64()
    }

    fn stop(self) -> Result<(), Box<dyn Error>> {
        self.stop.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(100));
        self.guest.map_or(Ok(()), Running::stop)?;
        Ok(())
    }
}

/// A VM with a vCPU on each pCPU, or on as many as it can have. There is always a page to be served, which takes
/// `work` turns of a loop and an exit.
fn guest(work: u64, pcpus: usize) -> Result<Running, Box<dyn Error>> {
    let guest = Guest {
        job: Job::Pages { gaps: vec![1] },
        vcpus: pcpus.min(corun_microvm::native::MOST_VCPUS),
        ring: Ring::User,
        gap: u64::MAX,
        // A page takes 50 us of this.
        per_us: work / 50,
    };
    let running = guest.start(|vcpu| {
        bind(vcpu);
        Ok(())
    })?;
    thread::sleep(Duration::from_millis(300));
    running.check()?;
    Ok(running)
}

/// A fixed amount of work: about this many ns, by rounds of a loop at some 1 ns each (assumed; what matters is only
/// that it is the same with and without a recording).
fn compute(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

fn bind(cpu: usize) {
    // SAFETY: a zeroed set is an empty one; `CPU_SET` writes within it, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
