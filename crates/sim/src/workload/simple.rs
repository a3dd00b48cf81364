// SPDX-License-Identifier: GPL-2.0-only
//! Reads the statements that have no block: one function per kind of operand.

use super::lexer::Token;
use super::parser::{Parsed, Parser, error};
use super::{Access, MOST_BYTES, Memory, Mix, Statement, Timer};
use corun_model::time::LONGEST;
use corun_model::{Nanos, size, time};

/// Statements that may block their thread, and so are refused inside a kernel spin lock.
pub(super) const WAITING: [&str; 16] = [
    "sleep",
    "send",
    "recv",
    "mutex",
    "read",
    "write",
    "append",
    "request",
    "reply",
    "transmit",
    "wait",
    "every",
    "timer",
    "yield",
    "barrier",
    "write-group",
];

/// Does it always take time, so that a loop around it makes progress? (A second `reply` to the
/// same request does nothing.)
pub(super) fn takes_time(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Compute(_)
            | Statement::Sleep(_)
            | Statement::Read(_)
            | Statement::Write(_)
            | Statement::Append(..)
            | Statement::Request(_)
            | Statement::Transmit(..)
            | Statement::Every(_)
            | Statement::Timer(_)
            | Statement::Busy(_)
            | Statement::Group { .. }
    )
}

impl Parser<'_> {
    /// The statement that `keyword`, already read, begins.
    pub(super) fn simple(&mut self, keyword: &str) -> Parsed<Statement> {
        Ok(match keyword {
            "compute" => Statement::Compute(self.length()?),
            "sleep" => Statement::Sleep(self.length()?),
            "busy" => Statement::Busy(self.length()?),
            "every" => Statement::Every(self.period()?),
            "timer" => Statement::Timer(self.timer()?),
            "write-group" => Statement::Group {
                name: self.name("the name of a group")?,
                work: self.length()?,
                spin: self.patience()?,
            },
            "barrier" => Statement::Barrier(self.name("the name of a barrier")?),
            "spin-barrier" => {
                Statement::SpinBarrier(self.name("the name of a barrier")?, self.patience()?)
            }
            "condition-barrier" => {
                Statement::ConditionBarrier(self.name("the name of a barrier")?, self.patience()?)
            }
            "send" => Statement::Send(self.name("the name of a queue")?),
            "recv" => Statement::Recv(self.name("the name of a queue")?),
            "wait" => Statement::Wait(self.name("the name of a condition variable")?),
            "signal" => Statement::Signal(self.name("the name of a condition variable")?),
            "broadcast" => Statement::Broadcast(self.name("the name of a condition variable")?),
            "request" => Statement::Request(self.name("the name of a port")?),
            "reply" => Statement::Reply(self.name("the name of a port")?, self.size()?),
            "transmit" => Statement::Transmit(self.name("the name of a port")?, self.size()?),
            "read" => Statement::Read(self.access()?),
            "write" => Statement::Write(self.access()?),
            "append" => Statement::Append(self.name("the name of a log")?, self.size()?),
            "memory" => Statement::Memory(self.memory()?),
            "mix" => Statement::Mix(self.mix()?),
            "shootdown" => Statement::Shootdown,
            "yield" => Statement::Yield,
            _ => self.count()?,
        })
    }

    fn count(&mut self) -> Parsed<Statement> {
        let units = match self.token {
            Token::Number(_) => self.times("how many units, 1 to 1000000000")?,
            _ => 1,
        };
        let unit = match self.token {
            Token::Word(_) => Some(self.name("the name of the unit")?),
            _ => None,
        };
        Ok(Statement::Count(units, unit))
    }

    fn timer(&mut self) -> Parsed<Timer> {
        let name = self.name("the name of a timer")?;
        let period = self.period()?;
        let absolute = self.token == Token::Word("absolute");
        if absolute {
            self.advance();
        }
        Ok(Timer {
            name,
            period,
            absolute,
        })
    }

    /// How long threads spin at a barrier, if that is given.
    fn patience(&mut self) -> Parsed<Option<Nanos>> {
        match self.token {
            Token::Number(_) => self.period().map(Some),
            _ => Ok(None),
        }
    }

    fn period(&mut self) -> Parsed<Nanos> {
        let accepted = format!("{}, above 0 and at most a day", time::ACCEPTED);
        let Token::Number(text) = self.token else {
            return Err(self.unexpected(&accepted));
        };
        match time::parse(text) {
            Some(period) if (1..=LONGEST).contains(&period) => {
                self.advance();
                Ok(period)
            }
            _ => Err(self.unexpected(&accepted)),
        }
    }

    fn access(&mut self) -> Parsed<Access> {
        let bytes = self.size()?;
        let random = self.token == Token::Word("random");
        if random {
            self.advance();
        }
        Ok(Access { bytes, random })
    }

    fn memory(&mut self) -> Parsed<Memory> {
        let bytes = match self.token {
            Token::Number("0") => {
                self.advance();
                return Ok(Memory {
                    bytes: 0,
                    lines_per_us: 0,
                });
            }
            _ => self.size()?,
        };
        let lines_per_us =
            self.whole(1000, "cache lines touched, such as `30/us`, up to 1000/us")?;
        self.expect(Token::Slash, "`/us` after the number of cache lines")?;
        self.expect(Token::Word("us"), "`us`: cache lines per microsecond")?;
        Ok(Memory {
            bytes,
            lines_per_us,
        })
    }

    fn mix(&mut self) -> Parsed<Mix> {
        let at = self.at;
        let accepted = "three whole percentages that add up to 100, such as `60/25/15`";
        let base = self.whole(100, accepted)?;
        self.expect(Token::Slash, accepted)?;
        let miss = self.whole(100, accepted)?;
        self.expect(Token::Slash, accepted)?;
        let wait = self.whole(100, accepted)?;
        if base + miss + wait != 100 {
            let message = format!("saw `{base}/{miss}/{wait}`; accepted: {accepted}");
            return Err(error(at, message));
        }
        // At most 100 each, as checked.
        let percent = |n: u32| u8::try_from(n).unwrap_or(100);
        Ok(Mix {
            base: percent(base),
            miss: percent(miss),
            wait: percent(wait),
        })
    }

    /// A percentage from 1 to 100, with its sign.
    pub(super) fn percentage(&mut self) -> Parsed<u32> {
        let accepted = "a whole percentage from 1% to 100%";
        // Zero, with any number of digits.
        if matches!(self.token, Token::Number(text) if text.parse() == Ok(0_u32)) {
            return Err(self.unexpected(accepted));
        }
        let percent = self.whole(100, accepted)?;
        self.expect(Token::Percent, "`%`")?;
        Ok(percent)
    }

    /// A whole number up to `most`.
    fn whole(&mut self, most: u32, accepted: &str) -> Parsed<u32> {
        match self.token {
            Token::Number(text) => match text.parse::<u32>() {
                Ok(number) if number <= most => {
                    self.advance();
                    Ok(number)
                }
                _ => Err(self.unexpected(accepted)),
            },
            _ => Err(self.unexpected(accepted)),
        }
    }

    /// A number of bytes such as `1500B`, `64KB` or `4MB`; units are powers of 1024.
    pub(super) fn size(&mut self) -> Parsed<u64> {
        let accepted = format!("{}, at most 1 TiB", size::ACCEPTED);
        let Token::Number(text) = self.token else {
            return Err(self.unexpected(&accepted));
        };
        match size::parse(text) {
            Some(bytes) if (1..=MOST_BYTES).contains(&bytes) => {
                self.advance();
                Ok(bytes)
            }
            _ => Err(self.unexpected(&accepted)),
        }
    }
}
