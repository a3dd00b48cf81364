// SPDX-License-Identifier: GPL-2.0-only
//! Runs on several threads, with results in the order of the jobs.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Reads a number of simultaneous runs, or of other things of which there is at least one.
///
/// # Errors
/// What is accepted.
pub fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().and_then(NonZeroUsize::new);
    number.ok_or_else(|| "expected a whole number from 1 on".to_string())
}

/// Does `work` on each of `items` on up to `threads` threads. Results come in the order of the
/// items, whatever the order in which they were done; after a failure no new item is begun.
///
/// # Errors
/// The failure of the first item that failed.
pub fn run<T, R, E>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E>
where
    T: Sync,
    R: Send,
    E: Send,
{
    run_while(items, threads, || true, work)
}

/// The same as long as `go_on` says so: what has begun by then is finished, so that the results are those of the first
/// items.
///
/// # Errors
/// As [`run`].
pub fn run_while<T, R, E>(
    items: &[T],
    threads: usize,
    go_on: impl Fn() -> bool + Sync,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E>
where
    T: Sync,
    R: Send,
    E: Send,
{
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (results, done) = mpsc::channel();
    let worker = |results: mpsc::Sender<(usize, Result<R, E>)>| {
        while !failed.load(Ordering::Relaxed) && go_on() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = work(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            // The receiver outlives all workers.
            let _ = results.send((at, result));
        }
    };
    let mut all: Vec<(usize, Result<R, E>)> = thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            let results = results.clone();
            scope.spawn(|| worker(results));
        }
        drop(results);
        done.iter().collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_hang_on_threads() {
        let items: Vec<u64> = (0..50).collect();
        let work = |n: &u64| {
            thread::sleep(std::time::Duration::from_micros(500 * (n % 3)));
            Ok::<u64, ()>(n * n)
        };
        let alone = run(&items, 1, work);
        assert_eq!(alone, run(&items, 8, work));
        assert_eq!(alone.unwrap()[49], 49 * 49);
        assert_eq!(run(&[], 4, work), Ok(vec![]));
    }

    #[test]
    fn what_was_begun_is_done() {
        let items: Vec<usize> = (0..50).collect();
        let begun = AtomicUsize::new(0);
        let work = |n: &usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            Ok::<usize, ()>(*n)
        };
        let done = run_while(&items, 4, || begun.load(Ordering::Relaxed) < 20, work).unwrap();
        assert!((20..24).contains(&done.len()), "{}", done.len());
        assert_eq!(done[..], items[..done.len()]);
    }

    #[test]
    fn the_first_failure_is_told_and_ends_it() {
        let work = |n: &u64| if *n == 3 { Err("three") } else { Ok(*n) };
        assert_eq!(run(&[1, 2, 3, 4], 1, work), Err("three"));
    }
}
