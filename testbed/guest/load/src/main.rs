// SPDX-License-Identifier: GPL-2.0-only
//! Load for measuring `corun guest`, in one static program for both sides.
//!
//! In the guest, `inside SECONDS READERS DEVICE`: on each vCPU a thread that computes and is tied to it, and free
//! threads that read a device synchronously and past the page cache; prints what both got done in SECONDS after a
//! warm-up. `storm SECONDS DEVICE`: threads that read once and end, as fast as they can be created; prints how many a
//! second.
//!
//! On the machine that emulates the guest, `outside ON CPU…`: real-time threads that take one CPU after the other for
//! ON ms each, as other VMs' vCPUs would; prints what they took, whenever a line comes in.

mod inside;
mod outside;
mod system;

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["inside", seconds, readers, device] => {
            inside::run(number(seconds)?, number(readers)?, device)
        }
        ["storm", seconds, device] => inside::storm(number(seconds)?, device),
        ["outside", on, cpus @ ..] if !cpus.is_empty() => {
            let cpus: anyhow::Result<Vec<u64>> = cpus.iter().map(|cpu| number(cpu)).collect();
            outside::run(number(on)?, &cpus?)
        }
        _ => bail!(
            "usage: corun-guestload inside SECONDS READERS DEVICE | storm SECONDS DEVICE | outside ON-MS CPU…"
        ),
    }
}

fn number(word: &str) -> anyhow::Result<u64> {
    word.parse()
        .with_context(|| format!("{word:?} is no number"))
}
