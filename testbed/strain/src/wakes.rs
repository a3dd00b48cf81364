// SPDX-License-Identifier: GPL-2.0-only
//! A thread that wakes another one, which sleeps, and goes to sleep itself: measures how long it takes until the other
//! one runs, as schbench does.

use anyhow::anyhow;
use std::io::{PipeReader, Read, Write, pipe};
use std::thread;
use std::time::{Duration, Instant};

/// Both are asleep again by then.
const PAUSE: Duration = Duration::from_micros(500);

/// Prints the median and the 99th percentile, nanoseconds.
pub fn run(rounds: u32) -> anyhow::Result<()> {
    let (reader, mut writer) = pipe()?;
    let began = Instant::now();
    let sleeper = thread::spawn(move || sleep(reader, began, rounds));
    for _ in 0..rounds {
        thread::sleep(PAUSE);
        let sent = u64::try_from(began.elapsed().as_nanos())?;
        writer.write_all(&sent.to_ne_bytes())?;
    }
    let mut latencies = sleeper
        .join()
        .map_err(|_| anyhow!("the sleeper has died"))??;
    latencies.sort_unstable();
    println!("wake median\t{}", quantile(&latencies, 50));
    println!("wake p99\t{}", quantile(&latencies, 99));
    Ok(())
}

/// Reads when it was woken, again and again; returns how long each wake-up took to arrive, nanoseconds.
fn sleep(mut reader: PipeReader, began: Instant, rounds: u32) -> anyhow::Result<Vec<u64>> {
    let mut latencies = Vec::new();
    let mut sent = [0; 8];
    for _ in 0..rounds {
        reader.read_exact(&mut sent)?;
        let now = u64::try_from(began.elapsed().as_nanos())?;
        latencies.push(now.saturating_sub(u64::from_ne_bytes(sent)));
    }
    Ok(latencies)
}

/// The value below which `percent` of them lie; 0 if there are none.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_of_what_is_sorted() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!(quantile(&values, 50), 101);
        assert_eq!(quantile(&values, 99), 199);
        assert_eq!(quantile(&[7], 99), 7);
        assert_eq!(quantile(&[], 50), 0);
    }
}
