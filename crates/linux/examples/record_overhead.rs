// SPDX-License-Identifier: GPL-2.0-only
//! What `corun record` costs a busy host, measured where it is run (as root).
//!
//! Problem: costs in absolute numbers mean little, and a machine's speed drifts.
//! How: the same load runs all the time, and is recorded or not by turns of a second; what it got done while
//! recorded is compared with what it got done in the turns just before and after. Two loads, each with two
//! pairs of threads for a pCPU, bound to it: *switching*, where each thread only wakes the other and
//! sleeps, which is the most a host can switch; *busy*, where it computes for some 100 us before.

use corun_linux::record::{self, Progress, RecordOptions};
use corun_model::time::{MS, SEC};
use std::error::Error;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Turns with a recording; there is one more without.
const TURNS: usize = 10;
/// A pair's threads for each pCPU.
const PAIRS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("record-overhead-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let result = [("switching", 0), ("busy", 100_000)]
        .into_iter()
        .try_for_each(|(name, work)| measure(name, work, &folder.join("recording.corun")));
    std::fs::remove_dir_all(&folder)?;
    result
}

/// A load, recorded by turns.
fn measure(name: &str, work: u64, file: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let load = Load::start(work)?;
    thread::sleep(Duration::from_millis(300));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut sum = Sum::default();
    without.push(load.rate_while(|| thread::sleep(Duration::from_secs(1))));
    for _ in 0..TURNS {
        with.push(recorded(file, &load, &mut sum)?);
        std::fs::remove_file(file)?;
        without.push(load.rate_while(|| thread::sleep(Duration::from_secs(1))));
    }
    load.stop();
    let mut ratios: Vec<f64> = with
        .iter()
        .zip(without.windows(2))
        .map(|(with, beside)| with / ((beside[0] + beside[1]) / 2.0))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let pcpus = thread::available_parallelism()?.get();
    println!(
        "{name}: {:.0} wake-ups/s without; with a recording {:.3} of that (median of {TURNS}; {:.3} to \
         {:.3}); {:.0} events/s, {lost} lost, {:.1} bytes each; the recording thread {:.2} % of {pcpus} pCPUs",
        without.iter().sum::<f64>() / without.len() as f64,
        ratios[TURNS / 2],
        ratios[0],
        ratios[TURNS - 1],
        sum.events as f64 * 1e9 / sum.time.max(1) as f64,
        sum.bytes as f64 / sum.events.max(1) as f64,
        sum.cpu as f64 / (sum.time.max(1) * pcpus as u64) as f64 * 100.0,
        lost = sum.lost,
    );
    Ok(())
}

/// All recordings of a load.
#[derive(Default)]
struct Sum {
    events: u64,
    lost: u64,
    bytes: u64,
    /// CPU time of the recording thread, and how long that was, ns.
    cpu: u64,
    time: u64,
}

/// A second's recording: what the load got done per second, from the first look at its progress to the last,
/// so that neither loading the program nor ending it is in it.
fn recorded(file: &std::path::Path, load: &Load, sum: &mut Sum) -> Result<f64, Box<dyn Error>> {
    let mut first = None;
    let (mut rate, mut spent) = (0.0, (0, 0));
    let mut progress = |_: &Progress| {
        let now = (
            Instant::now(),
            load.done.load(Ordering::Relaxed),
            own_cpu_ns(),
        );
        let (began, before, cpu) = *first.get_or_insert(now);
        let time = now.0.duration_since(began);
        rate = (now.1 - before) as f64 / time.as_secs_f64();
        spent = (now.2 - cpu, time.as_nanos() as u64);
    };
    let recorded = record::run(RecordOptions {
        file: file.to_path_buf(),
        run_for: Some(1000 * MS),
        anonymise: false,
        progress: &mut progress,
    })?;
    sum.events += recorded.progress.events;
    sum.lost += recorded.progress.lost;
    (sum.cpu, sum.time) = (sum.cpu + spent.0, sum.time + spent.1);
    sum.bytes += recorded.progress.bytes;
    match recorded.cut {
        Some(error) => Err(error.into()),
        None => Ok(rate),
    }
}

/// CPU time of the thread that records (the one that writes hardly needs any), ns.
fn own_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing, and this clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * SEC + time.tv_nsec.cast_unsigned()
}

/// Threads that wake each other.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Load {
    fn start(work: u64) -> Result<Self, Box<dyn Error>> {
        let load = Self {
            stop: Arc::default(),
            done: Arc::default(),
        };
        for cpu in 0..thread::available_parallelism()?.get() {
            for _ in 0..PAIRS {
                let (one, other) = UnixStream::pair()?;
                load.spawn(cpu, work, one, true);
                load.spawn(cpu, work, other, false);
            }
        }
        Ok(load)
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

    /// Wake-ups per second while `what` goes on.
    fn rate_while(&self, what: impl FnOnce()) -> f64 {
        let (began, before) = (Instant::now(), self.done.load(Ordering::Relaxed));
        what();
        (self.done.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64()
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(100));
    }
}

/// A fixed amount of work: about so many ns, by turns of a loop at some 1 ns (assumed; only that it is
/// the same with and without a recording matters).
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
