// SPDX-License-Identifier: GPL-2.0-only
//! Writes programs so that reading them back gives the same program.

use super::{Access, Length, Memory, Program, Statement, Vary};
use corun_model::Nanos;
use corun_model::time::{MS, SEC, US};
use std::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for queue in &self.queues {
            write!(f, "queue {} {}", queue.name, queue.places)?;
            if let Some(writable) = queue.writable {
                write!(f, " {writable}")?;
            }
            f.write_str("; ")?;
        }
        list(f, &self.body)
    }
}

fn list(f: &mut fmt::Formatter<'_>, body: &[Statement]) -> fmt::Result {
    for (index, statement) in body.iter().enumerate() {
        if index > 0 {
            f.write_str("; ")?;
        }
        write!(f, "{statement}")?;
    }
    Ok(())
}

fn block(f: &mut fmt::Formatter<'_>, body: &[Statement]) -> fmt::Result {
    f.write_str(" { ")?;
    list(f, body)?;
    f.write_str(" }")
}

/// How long threads spin at a barrier, if that is given.
fn patience(f: &mut fmt::Formatter<'_>, spin: Option<Nanos>) -> fmt::Result {
    match spin {
        Some(spin) => write!(f, " {}", Span(spin)),
        None => Ok(()),
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Compute(length) => write!(f, "compute {length}"),
            Statement::Sleep(length) => write!(f, "sleep {length}"),
            Statement::Lock(name, body) => {
                write!(f, "lock {name}")?;
                block(f, body)
            }
            Statement::Mutex(name, body) => {
                write!(f, "mutex {name}")?;
                block(f, body)
            }
            Statement::Group { name, work, spin } => {
                write!(f, "write-group {name} {work}")?;
                patience(f, *spin)
            }
            Statement::Barrier(name) => write!(f, "barrier {name}"),
            Statement::SpinBarrier(name, spin) => {
                write!(f, "spin-barrier {name}")?;
                patience(f, *spin)
            }
            Statement::ConditionBarrier(name, spin) => {
                write!(f, "condition-barrier {name}")?;
                patience(f, *spin)
            }
            Statement::Send(name) => write!(f, "send {name}"),
            Statement::Recv(name) => write!(f, "recv {name}"),
            Statement::Loop(times, body) => {
                f.write_str("loop")?;
                if let Some(times) = times {
                    write!(f, " {times}")?;
                }
                block(f, body)
            }
            Statement::Memory(Memory { bytes: 0, .. }) => f.write_str("memory 0"),
            Statement::Memory(memory) => {
                write!(
                    f,
                    "memory {} {}/us",
                    Size(memory.bytes),
                    memory.lines_per_us
                )
            }
            Statement::Mix(mix) => write!(f, "mix {}/{}/{}", mix.base, mix.miss, mix.wait),
            Statement::Read(access) => write!(f, "read {access}"),
            Statement::Write(access) => write!(f, "write {access}"),
            Statement::Append(log, bytes) => write!(f, "append {log} {}", Size(*bytes)),
            Statement::Request(port) => write!(f, "request {port}"),
            Statement::Reply(port, bytes) => write!(f, "reply {port} {}", Size(*bytes)),
            Statement::Transmit(port, bytes) => write!(f, "transmit {port} {}", Size(*bytes)),
            Statement::Wait(name) => write!(f, "wait {name}"),
            Statement::Signal(name) => write!(f, "signal {name}"),
            Statement::Broadcast(name) => write!(f, "broadcast {name}"),
            Statement::Shootdown => f.write_str("shootdown"),
            Statement::Every(period) => write!(f, "every {}", Span(*period)),
            Statement::Timer(timer) => {
                let absolute = if timer.absolute { " absolute" } else { "" };
                write!(f, "timer {} {}{absolute}", timer.name, Span(timer.period))
            }
            Statement::Busy(length) => write!(f, "busy {length}"),
            Statement::Yield => f.write_str("yield"),
            Statement::Count(units, None) => write!(f, "count {units}"),
            Statement::Count(units, Some(unit)) => write!(f, "count {units} {unit}"),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Span(self.mean))?;
        match self.vary {
            Vary::Fixed => Ok(()),
            Vary::Percent(percent) => write!(f, " ±{percent}%"),
            Vary::Exponential => f.write_str(" exp"),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let random = if self.random { " random" } else { "" };
        write!(f, "{}{random}", Size(self.bytes))
    }
}

/// A duration in the largest unit that is exact.
struct Span(Nanos);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        exact(f, self.0, &[(SEC, "s"), (MS, "ms"), (US, "us"), (1, "ns")])
    }
}

/// Bytes in the largest unit that is exact.
pub(super) struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"), (1, "B")];
        exact(f, self.0, &units)
    }
}

fn exact(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let fits = |(scale, _): &&(u64, &str)| value.is_multiple_of(*scale);
    let (scale, unit) = units.iter().find(fits).copied().unwrap_or((1, ""));
    write!(f, "{}{unit}", value / scale)
}
