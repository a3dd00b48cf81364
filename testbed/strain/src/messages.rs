// SPDX-License-Identifier: GPL-2.0-only
//! Groups of threads in which each sender sends to each receiver, as in hackbench: many wake-ups, and more threads that
//! want to run than there are pCPUs.

use anyhow::anyhow;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Senders of a group, and receivers of a group. hackbench has 20, which is more than an emulated host can cope with.
const MEMBERS: u32 = 5;
/// As hackbench's.
const MESSAGE: [u8; 100] = [1; 100];

type Threads = Vec<JoinHandle<std::io::Result<()>>>;

/// Where all threads begin, and when they did.
struct Start {
    gate: Barrier,
    began: OnceLock<Instant>,
}

impl Start {
    /// Waits for all others. The last one to come has a pCPU at that moment, and records the time: any other may get a
    /// pCPU only when everything is over.
    fn wait(&self) {
        if self.gate.wait().is_leader() {
            self.began.get_or_init(Instant::now);
        }
    }
}

/// Prints nanoseconds per message.
pub fn run(groups: u32, rounds: u32) -> anyhow::Result<()> {
    let start = Arc::new(Start {
        gate: Barrier::new(usize::try_from(groups * MEMBERS * 2)?),
        began: OnceLock::new(),
    });
    let mut threads = Threads::new();
    for _ in 0..groups {
        group(&mut threads, rounds, &start)?;
    }
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow!("a member of a group has died"))??;
    }
    let began = start.began.get().ok_or(anyhow!("nobody has begun"))?;
    let sent = u128::from(groups) * u128::from(MEMBERS * MEMBERS) * u128::from(rounds);
    println!("messages\t{}", began.elapsed().as_nanos() / sent);
    Ok(())
}

/// The threads of a group, which wait for `start`.
fn group(threads: &mut Threads, rounds: u32, start: &Arc<Start>) -> std::io::Result<()> {
    let mut ends = Vec::new();
    for _ in 0..MEMBERS {
        let (end, mut receiver) = UnixStream::pair()?;
        ends.push(end);
        let start = Arc::clone(start);
        threads.push(thread::spawn(move || {
            let mut message = MESSAGE;
            start.wait();
            for _ in 0..rounds * MEMBERS {
                receiver.read_exact(&mut message)?;
            }
            Ok(())
        }));
    }
    for _ in 0..MEMBERS {
        let ends: std::io::Result<Vec<_>> = ends.iter().map(UnixStream::try_clone).collect();
        let (mut ends, start) = (ends?, Arc::clone(start));
        threads.push(thread::spawn(move || {
            start.wait();
            for _ in 0..rounds {
                for end in &mut ends {
                    end.write_all(&MESSAGE)?;
                }
            }
            Ok(())
        }));
    }
    Ok(())
}
