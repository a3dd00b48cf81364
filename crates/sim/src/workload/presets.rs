// SPDX-License-Identifier: GPL-2.0-only
//! Benchmarks by name, written in the workload language.
//!
//! Problem: experiments name benchmarks, the simulator needs phases. Each preset states where its
//! structure and its times come from; none was fitted to a result. Where a paper gives no figure
//! the text says "assumed" and why that order of magnitude. Source of the list: the balance
//! scheduling paper (Sukwong and Kim, EuroSys 2011, §5) and Jupiter's streamcluster.

use super::{ParseError, Program};

/// A benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// What scenarios call it.
    pub name: &'static str,
    /// What it is known for, and where its structure and times come from.
    pub about: &'static str,
    /// Threads in a VM with so many vCPUs.
    default_threads: fn(u32) -> u32,
    /// Name and program text of thread i of n.
    thread: fn(u32, u32) -> (String, String),
}

/// A thread of a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetThread {
    /// Name within the VM.
    pub name: String,
    /// What it does.
    pub program: Program,
}

impl Preset {
    /// How many threads it has in a VM with `vcpus` vCPUs unless told otherwise.
    pub fn default_threads(&self, vcpus: u32) -> u32 {
        (self.default_threads)(vcpus.max(1))
    }

    /// Its threads, `threads` of them. Presets whose threads work in pairs have at least two and
    /// round up to whole pairs.
    ///
    /// # Errors
    /// None; the programs are parsed here, and a test parses them all.
    pub fn threads(&self, threads: u32) -> Result<Vec<PresetThread>, ParseError> {
        let threads = match self.name {
            "hackbench" => threads.max(2).next_multiple_of(2),
            "sync" if threads < 2 => return single_streamcluster(),
            _ => threads.max(1),
        };
        (0..threads)
            .map(|i| {
                let (name, text) = (self.thread)(i, threads);
                let program = Program::parse(&text)?;
                Ok(PresetThread { name, program })
            })
            .collect()
    }
}

/// The preset called `name`.
pub fn preset(name: &str) -> Option<Preset> {
    ALL.iter().find(|preset| preset.name == name).copied()
}

/// All names, for messages.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|preset| preset.name)
}

const ALL: [Preset; 7] = [
    Preset {
        name: "cpu",
        about: "The balance paper's CPU-bound workload: endless additions, hardly any memory or \
                I/O. One process per vCPU. The length of the statement has no effect.",
        default_threads: |vcpus| vcpus,
        thread: |i, _| (format!("cpu{i}"), "loop { compute 100ms }".into()),
    },
    Preset {
        name: "independent",
        about: "The balance paper's multiple independent processes: finite loops of arithmetic \
                without synchronisation. One process per vCPU; a loop of 10 ms is assumed, it sets \
                only how finely work is counted.",
        default_threads: |vcpus| vcpus,
        thread: |i, _| {
            let text = "loop { compute 10ms; count loops }";
            (format!("process{i}"), text.into())
        },
    },
    Preset {
        name: "pi",
        about: "Pi digits on several threads (balance paper: CPU-bound, fits memory, relatively \
                small application synchronisation). Each thread sums terms and adds its partial \
                sum under a mutex; 10 ms between sums is assumed (rare, as the paper says), 1 us \
                is an addition of shared numbers under a lock (the paper's lock holding time, §4.4).",
        default_threads: |vcpus| vcpus,
        thread: |i, _| {
            let text = "loop { compute 10ms ±10%; mutex sum { compute 1us }; count sums }";
            (format!("pi{i}"), text.into())
        },
    },
    Preset {
        name: "hackbench",
        about: "Senders and receivers on Unix sockets (balance paper: 4 threads, intensive \
                synchronisation in the guest kernel), in groups of two senders and two receivers \
                on one socket. A send or receive of 100 bytes takes about 2 us (lmbench measures \
                5-10 us for a Unix-socket round trip of 4 calls and 2 switches); for a quarter of \
                it the socket's queue and wait-queue spin locks are held; ±50 % as caches hit or miss \
                (assumed: without it the threads would march in step). The socket holds 277 \
                messages: Linux's default send buffer of 212992 bytes over 768 bytes each.",
        default_threads: |_| 4,
        thread: hackbench,
    },
    Preset {
        name: "x264",
        about: "Video encoding, one frame per thread (balance paper: multi-threaded, CPU-bound, \
                frames per second). x264 starts 1.5 threads per CPU (its `--threads auto`); a \
                frame's rows wait for the rows of the frame before. PARSEC's 640x360 video has 23 \
                rows of macroblocks; 1.4 ms per row makes about 30 frames/s on one core, the order \
                of 2.66 GHz Core 2; ±30 % stands for differences in content (assumed).",
        default_threads: |vcpus| vcpus.saturating_mul(3).div_ceil(2),
        thread: x264,
    },
    Preset {
        name: "sync",
        about: "Like PARSEC's streamcluster, the most synchronisation-intensive program of the \
                Jupiter paper: short parallel phases between barriers that block. PARSEC's \
                characterisation (Bienia et al., PACT 2008, table 1, 8 threads, simlarge) has about \
                22 G instructions and 129,600 barrier calls: 170,000 instructions or 65 us at 2.6 \
                GHz and one instruction per cycle from one to the next. ±20 % is assumed.",
        default_threads: |vcpus| vcpus,
        thread: |i, _| {
            let count = if i == 0 { "; count phases" } else { "" };
            let text = format!("loop {{ compute 65us ±20%; barrier phase{count} }}");
            (format!("worker{i}"), text)
        },
    },
    Preset {
        name: "lockheavy",
        about: "One kernel spin lock that all threads want often: a meter for lock-holder \
                preemption, no benchmark. Held for 1 us (the balance paper's analytic model, §4.4), \
                then 10 us ±50% without it: at most a tenth of a thread's time is under the lock.",
        default_threads: |vcpus| vcpus,
        thread: |i, _| {
            let text = "loop { compute 10us ±50%; lock shared { compute 1us }; count rounds }";
            (format!("locker{i}"), text.into())
        },
    },
];

/// Two senders and two receivers share a socket.
fn hackbench(i: u32, threads: u32) -> (String, String) {
    let group = i / 4;
    let members = (threads - group * 4).min(4);
    let socket = format!("socket{group}");
    if i % 4 < members / 2 {
        let text = format!(
            "queue {socket} 277; \
             loop {{ compute 1500ns ±50%; lock {socket} {{ compute 500ns ±50% }}; send {socket} }}"
        );
        (format!("sender{i}"), text)
    } else {
        let text = format!(
            "loop {{ recv {socket}; lock {socket} {{ compute 500ns ±50% }}; compute 1500ns ±50%; \
             count messages }}"
        );
        (format!("receiver{i}"), text)
    }
}

/// Thread i encodes every n-th frame; rows follow those of the frame before, around the ring.
fn x264(i: u32, threads: u32) -> (String, String) {
    let next = (i + 1) % threads;
    let queue = format!("queue rows{next} 23; ");
    let row = format!("compute 1400us ±30%; send rows{next}");
    let first = match i {
        0 => format!("loop 23 {{ {row} }}; count frames; "),
        _ => String::new(),
    };
    let text = format!("{queue}{first}loop {{ loop 23 {{ recv rows{i}; {row} }}; count frames }}");
    (format!("encoder{i}"), text)
}

/// One thread has nobody to wait for.
fn single_streamcluster() -> Result<Vec<PresetThread>, ParseError> {
    let program = Program::parse("loop { compute 65us ±20%; count phases }")?;
    let name = "worker0".into();
    Ok(vec![PresetThread { name, program }])
}
