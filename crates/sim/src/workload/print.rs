// SPDX-License-Identifier: GPL-2.0-only
//! Writes programs so that reading them back gives the same program.

use super::{Length, Program, Statement, Vary};
use corun_model::time::{MS, SEC, US};
use std::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, places) in &self.queues {
            write!(f, "queue {name} {places}; ")?;
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
            Statement::Barrier(name) => write!(f, "barrier {name}"),
            Statement::SpinBarrier(name) => write!(f, "spin-barrier {name}"),
            Statement::Send(name) => write!(f, "send {name}"),
            Statement::Recv(name) => write!(f, "recv {name}"),
            Statement::Loop(times, body) => {
                f.write_str("loop")?;
                if let Some(times) = times {
                    write!(f, " {times}")?;
                }
                block(f, body)
            }
            Statement::Count(units, None) => write!(f, "count {units}"),
            Statement::Count(units, Some(unit)) => write!(f, "count {units} {unit}"),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(SEC, "s"), (MS, "ms"), (US, "us"), (1, "ns")];
        let (scale, unit) = units
            .into_iter()
            .find(|(scale, _)| self.mean.is_multiple_of(*scale))
            .unwrap_or((1, "ns"));
        write!(f, "{}{unit}", self.mean / scale)?;
        match self.vary {
            Vary::Fixed => Ok(()),
            Vary::Percent(percent) => write!(f, " ±{percent}%"),
            Vary::Exponential => f.write_str(" exp"),
        }
    }
}
