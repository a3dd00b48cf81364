// SPDX-License-Identifier: GPL-2.0-only
//! What tests strain a host with: its scheduler with switches, wake-ups and a real-time thread, corun's daemon with
//! malformed requests.
//!
//! Microbenchmarks do a fixed number of operations, so that the work is the same under every scheduler, and print a
//! line each: name, a tab, nanoseconds. They are modelled on `perf bench sched pipe`, schbench and hackbench.

mod cookie;
mod hog;
mod messages;
mod nonsense;
mod pipe;
mod wakes;

use anyhow::{Context, bail};

const USAGE: &str = "\
usage: corun-strain pipe ROUNDS             two processes hand a byte to and fro: ns per round trip
       corun-strain wakes ROUNDS            a thread wakes another one that sleeps: ns until it runs
       corun-strain messages GROUPS ROUNDS  threads that send and receive by dozens: ns per message
       corun-strain hog SECONDS             a real-time thread that computes: ns that it had a pCPU
       corun-strain cookie                  a task that gives itself a core-scheduling cookie: was it made?
       corun-strain nonsense SOCKET COUNT   malformed requests to `corun host`: how each was answered";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["pipe", rounds] => pipe::run(number(rounds)?),
        [pipe::ECHO, rounds] => pipe::echo(number(rounds)?),
        ["wakes", rounds] => wakes::run(number(rounds)?),
        ["messages", groups, rounds] => messages::run(number(groups)?, number(rounds)?),
        ["hog", seconds] => hog::run(number(seconds)?),
        ["cookie"] => {
            cookie::run();
            Ok(())
        }
        ["nonsense", socket, count] => nonsense::run(socket.as_ref(), number(count)?),
        _ => bail!(USAGE),
    }
}

/// A count, at least one.
fn number(word: &str) -> anyhow::Result<u32> {
    let number = word.parse().ok().filter(|&number| number > 0);
    number.with_context(|| format!("{word:?} is no number from 1 to {}", u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn counts_are_numbers_from_one() {
        assert_eq!(number("12").ok(), Some(12));
        for word in ["0", "-1", "x", "", "4294967296"] {
            let said = number(word).err().map(|error| error.to_string());
            assert!(said.is_some_and(|said| said.contains(word)), "{word}");
        }
    }
}
