// SPDX-License-Identifier: GPL-2.0-only
//! Two processes that hand a byte to and fro through pipes, as `perf bench sched pipe` does: on one
//! pCPU, each hand-over is a wake-up and a switch.

use anyhow::{Context, ensure};
use std::io::{Read, Write, stdin, stdout};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The argument that starts the second process.
pub const ECHO: &str = "echo";

/// Round trips before counting begins.
const WARM_UP: u32 = 100;

/// Prints nanoseconds per round trip.
pub fn run(rounds: u32) -> anyhow::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([ECHO, &(rounds + WARM_UP).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut there = child.stdin.take().context("no pipe to the child")?;
    let mut back = child.stdout.take().context("no pipe from the child")?;
    let mut hand_over = |times| -> std::io::Result<()> {
        let mut byte = [0];
        for _ in 0..times {
            there.write_all(&byte)?;
            back.read_exact(&mut byte)?;
        }
        Ok(())
    };
    hand_over(WARM_UP)?;
    let began = Instant::now();
    hand_over(rounds)?;
    let spent = began.elapsed();
    ensure!(child.wait()?.success(), "the other process failed");
    println!("pipe\t{}", spent.as_nanos() / u128::from(rounds));
    Ok(())
}

/// The second process: gives back what comes in.
pub fn echo(rounds: u32) -> anyhow::Result<()> {
    let (mut input, mut output) = (stdin().lock(), stdout().lock());
    let mut byte = [0];
    for _ in 0..rounds {
        input.read_exact(&mut byte)?;
        output.write_all(&byte)?;
        output.flush()?;
    }
    Ok(())
}
