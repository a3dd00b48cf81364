// SPDX-License-Identifier: GPL-2.0-only
//! Reads programs: recursive descent, with the checks that one program allows.
//!
//! The checks are made while reading, when the position of an error is at hand.

use super::lexer::{Lexer, Place, Token};
use super::{
    DEEPEST, DeclaredQueue, LONGEST_NAME, Length, MOST_STATEMENTS, MOST_TEXT, MOST_TIMES, Program,
    Statement, Vary,
};
use corun_model::time::{self, LONGEST};

/// What is wrong with a program, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line of the program text, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
    /// What was seen and what is accepted.
    pub message: String,
}

pub(super) const STATEMENTS: &str = "compute TIME [±N% | exp], sleep TIME [±N% | exp], lock NAME { … }, \
     mutex NAME { … }, write-group NAME TIME [±N% | exp] [TIME], barrier NAME, spin-barrier NAME [TIME], condition-barrier NAME [TIME], send NAME, \
     recv NAME, loop [N] { … }, \
     count [N] [UNIT], queue NAME CAPACITY [LEFT], memory SIZE N/us, mix B/M/W, read SIZE [random], \
     write SIZE [random], append LOG SIZE, request PORT, reply PORT SIZE, transmit PORT SIZE, wait NAME, \
     signal NAME, broadcast NAME, shootdown, every TIME, \
     timer NAME TIME [absolute], busy TIME [±N% | exp], yield";

pub(super) const KEYWORDS: [&str; 32] = [
    "compute",
    "sleep",
    "lock",
    "mutex",
    "write-group",
    "barrier",
    "spin-barrier",
    "condition-barrier",
    "send",
    "recv",
    "loop",
    "count",
    "queue",
    "exp",
    "memory",
    "mix",
    "read",
    "write",
    "append",
    "random",
    "request",
    "reply",
    "transmit",
    "wait",
    "signal",
    "broadcast",
    "shootdown",
    "every",
    "busy",
    "yield",
    "timer",
    "absolute",
];

/// Keywords that begin no statement.
const NO_STATEMENTS: [&str; 3] = ["exp", "random", "absolute"];

/// Words of other languages, and the statements that do the same or nearly so.
const ELSEWHERE: [(&[&str], &str); 9] = [
    (&["while", "for", "repeat", "forever"], "loop"),
    (&["run", "cpu", "work", "burn", "execute"], "compute"),
    (&["fsync", "fdatasync", "sync", "commit", "log"], "append"),
    (&["idle", "delay", "usleep", "nanosleep", "pause"], "sleep"),
    (&["spin", "spinlock", "spin-lock"], "lock"),
    (&["receive", "accept", "listen"], "request"),
    (&["respond", "answer", "response"], "reply"),
    (&["notify", "wake"], "signal"),
    (&["pop", "take", "get"], "recv"),
];

/// The statement that was most likely meant by `word`.
fn meant(word: &str) -> Option<&'static str> {
    let lower = word.to_lowercase();
    let elsewhere = ELSEWHERE.iter();
    let elsewhere = elsewhere.filter(|(words, _)| words.contains(&lower.as_str()));
    let ours = elsewhere.map(|(_, ours)| *ours).next();
    let statements = KEYWORDS.into_iter();
    let mut statements = statements.filter(|keyword| !NO_STATEMENTS.contains(keyword));
    ours.or_else(|| corun_model::nearest(word, &mut statements))
}

pub(super) type Parsed<T> = Result<T, ParseError>;

pub(super) fn parse(text: &str) -> Parsed<Program> {
    let mut parser = Parser::new(text);
    if text.len() > MOST_TEXT {
        let message = format!(
            "saw {} bytes; a program has at most {MOST_TEXT}",
            text.len()
        );
        return Err(error(Place { line: 1, column: 1 }, message));
    }
    let block = parser.block(0)?;
    if parser.token != Token::End {
        return Err(parser.unexpected(STATEMENTS));
    }
    if block.body.is_empty() {
        return Err(parser.unexpected(STATEMENTS));
    }
    Ok(Program {
        queues: parser.queues,
        body: block.body,
    })
}

pub(super) fn parse_length(text: &str) -> Parsed<Length> {
    let mut parser = Parser::new(text);
    let length = parser.length()?;
    parser.expect(Token::End, "nothing more")?;
    Ok(length)
}

pub(super) fn parse_size(text: &str) -> Parsed<u64> {
    let mut parser = Parser::new(text);
    let size = parser.size()?;
    parser.expect(Token::End, "nothing more")?;
    Ok(size)
}

pub(super) fn error(at: Place, message: String) -> ParseError {
    ParseError {
        line: at.line,
        column: at.column,
        message,
    }
}

/// A lock held around the statement being read.
#[derive(Clone, PartialEq)]
enum Held {
    Spin(String),
    Mutex(String),
}

/// A list of statements and what is known about it.
#[derive(Default)]
struct Block {
    body: Vec<Statement>,
    takes_time: bool,
    endless: bool,
}

pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(super) token: Token<'a>,
    pub(super) at: Place,
    queues: Vec<DeclaredQueue>,
    held: Vec<Held>,
    statements: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut lexer = Lexer::new(text);
        let (token, at) = lexer.next();
        Self {
            lexer,
            token,
            at,
            queues: Vec::new(),
            held: Vec::new(),
            statements: 0,
        }
    }

    pub(super) fn advance(&mut self) {
        (self.token, self.at) = self.lexer.next();
    }

    pub(super) fn unexpected(&self, accepted: &str) -> ParseError {
        error(self.at, format!("saw {}; accepted: {accepted}", self.token))
    }

    fn no_statement(&self, word: &str) -> ParseError {
        let Some(guess) = meant(word) else {
            return self.unexpected(STATEMENTS);
        };
        let token = &self.token;
        let message = format!("saw {token}; did you mean `{guess}`? Accepted: {STATEMENTS}");
        error(self.at, message)
    }

    pub(super) fn expect(&mut self, token: Token<'_>, accepted: &str) -> Parsed<()> {
        if self.token != token {
            return Err(self.unexpected(accepted));
        }
        self.advance();
        Ok(())
    }

    /// Statements up to a `}` or the end.
    fn block(&mut self, depth: usize) -> Parsed<Block> {
        let mut block = Block::default();
        loop {
            while self.token == Token::Semicolon {
                self.advance();
            }
            if matches!(self.token, Token::Close | Token::End) {
                return Ok(block);
            }
            if block.endless {
                let message = format!(
                    "saw {} after an endless loop; it is never reached: end the loop with `loop N {{ … }}` or take this away",
                    self.token
                );
                return Err(error(self.at, message));
            }
            let closed = self.item(&mut block, depth)?;
            let ends = matches!(self.token, Token::Semicolon | Token::Close | Token::End);
            if !closed && !ends {
                return Err(self.unexpected("`;` between statements, or what the statement takes"));
            }
        }
    }

    /// One statement or declaration; did it end in `}`?
    fn item(&mut self, block: &mut Block, depth: usize) -> Parsed<bool> {
        let at = self.at;
        let Token::Word(keyword) = self.token else {
            return Err(self.unexpected(STATEMENTS));
        };
        self.statements += 1;
        if self.statements > MOST_STATEMENTS {
            let message = format!("a program has at most {MOST_STATEMENTS} statements");
            return Err(error(at, message));
        }
        if !KEYWORDS.contains(&keyword) || NO_STATEMENTS.contains(&keyword) {
            return Err(self.no_statement(keyword));
        }
        self.advance();
        if keyword == "queue" {
            self.declare_queue(at, depth)?;
            return Ok(false);
        }
        self.may_wait(keyword, at)?;
        let statement = match keyword {
            "loop" => self.repeat(block, at, depth)?,
            "lock" | "mutex" => self.locked(keyword, block, depth)?,
            _ => self.simple(keyword)?,
        };
        block.takes_time |= super::simple::takes_time(&statement);
        let closed = matches!(
            statement,
            Statement::Loop(..) | Statement::Lock(..) | Statement::Mutex(..)
        );
        block.body.push(statement);
        Ok(closed)
    }

    /// Nothing may block or wait for other threads inside a spin lock, and no barrier inside a
    /// mutex: the others could never get there.
    fn may_wait(&self, keyword: &str, at: Place) -> Parsed<()> {
        let barrier = matches!(keyword, "barrier" | "spin-barrier" | "condition-barrier");
        let waits = barrier || super::simple::WAITING.contains(&keyword);
        for held in &self.held {
            let message = match held {
                Held::Spin(name) if waits => format!(
                    "saw `{keyword}` inside `lock {name}`; a kernel spin lock allows compute, busy, lock, shootdown, signal, broadcast, loop N and count inside"
                ),
                Held::Mutex(name) if barrier => format!(
                    "saw `{keyword}` inside `mutex {name}`; the other threads could not reach it while the mutex is held"
                ),
                _ => continue,
            };
            return Err(error(at, message));
        }
        Ok(())
    }

    fn declare_queue(&mut self, at: Place, depth: usize) -> Parsed<()> {
        if depth > 0 {
            let message = "saw `queue` inside a block; a queue is declared outside of all blocks";
            return Err(error(at, message.into()));
        }
        let name = self.name("the name of a queue")?;
        let places = self.times("the queue's capacity, 1 to 1000000000 items")?;
        let writable = match self.token {
            Token::Number(_) => Some(self.left_of(places)?),
            _ => None,
        };
        if self.queues.iter().any(|known| known.name == name) {
            return Err(error(
                at,
                format!("queue {name} has been declared already; declare it once"),
            ));
        }
        self.queues.push(DeclaredQueue {
            name,
            places,
            writable,
        });
        Ok(())
    }

    /// Reads how many of so many places are still taken when senders are woken.
    fn left_of(&mut self, places: u32) -> Parsed<u32> {
        let at = self.at;
        let accepted = "how many items are left when senders are woken, fewer than the capacity";
        let left = self.times(accepted)?;
        match left < places {
            true => Ok(left),
            false => Err(error(at, format!("saw `{left}`; accepted: {accepted}"))),
        }
    }

    fn repeat(&mut self, outer: &mut Block, at: Place, depth: usize) -> Parsed<Statement> {
        let times = match self.token {
            Token::Number(_) => Some(self.times("how many rounds, 1 to 1000000000")?),
            _ => None,
        };
        let inner = self.braces(depth)?;
        if !inner.takes_time {
            let message =
                "saw a loop that takes no time; it needs a `compute`, `sleep` or the like inside";
            return Err(error(at, message.into()));
        }
        let endless = times.is_none() || inner.endless;
        if let (true, Some(Held::Spin(name) | Held::Mutex(name))) = (endless, self.held.last()) {
            let message = format!(
                "saw an endless loop inside lock {name}, which is never released; accepted: `loop N {{ … }}`"
            );
            return Err(error(at, message));
        }
        outer.takes_time = true;
        outer.endless = endless;
        Ok(Statement::Loop(times, inner.body))
    }

    fn locked(&mut self, keyword: &str, outer: &mut Block, depth: usize) -> Parsed<Statement> {
        let at = self.at;
        let name = self.name("the name of a lock")?;
        let held = match keyword {
            "lock" => Held::Spin(name.clone()),
            _ => Held::Mutex(name.clone()),
        };
        if self.held.contains(&held) {
            let message =
                format!("saw `{keyword} {name}` inside itself; it would wait for itself for ever");
            return Err(error(at, message));
        }
        self.held.push(held);
        let inner = self.braces(depth)?;
        self.held.pop();
        outer.takes_time |= inner.takes_time;
        Ok(match keyword {
            "lock" => Statement::Lock(name, inner.body),
            _ => Statement::Mutex(name, inner.body),
        })
    }

    fn braces(&mut self, depth: usize) -> Parsed<Block> {
        if depth + 1 > DEEPEST {
            return Err(error(
                self.at,
                format!("blocks may be nested at most {DEEPEST} deep"),
            ));
        }
        self.expect(Token::Open, "`{` and the statements of the block")?;
        let block = self.block(depth + 1)?;
        self.expect(Token::Close, "`}` or another statement")?;
        Ok(block)
    }

    pub(super) fn name(&mut self, accepted: &str) -> Parsed<String> {
        match self.token {
            Token::Word(word) if word.len() <= LONGEST_NAME && !KEYWORDS.contains(&word) => {
                self.advance();
                Ok(word.into())
            }
            _ => Err(self.unexpected(&format!(
                "{accepted}: up to {LONGEST_NAME} letters, digits, `_` and `-`, beginning with a letter or `_`, no keyword"
            ))),
        }
    }

    pub(super) fn times(&mut self, accepted: &str) -> Parsed<u32> {
        let Token::Number(text) = self.token else {
            return Err(self.unexpected(accepted));
        };
        match text.parse::<u32>() {
            Ok(times) if (1..=MOST_TIMES).contains(&times) => {
                self.advance();
                Ok(times)
            }
            _ => Err(self.unexpected(accepted)),
        }
    }

    pub(super) fn length(&mut self) -> Parsed<Length> {
        let accepted = format!("{}, above 0 and at most a day", time::ACCEPTED);
        let Token::Number(text) = self.token else {
            return Err(self.unexpected(&accepted));
        };
        let mean = match time::parse(text) {
            Some(mean) if (1..=LONGEST).contains(&mean) => mean,
            _ => return Err(self.unexpected(&accepted)),
        };
        self.advance();
        let vary = match self.token {
            Token::Word("exp") => {
                self.advance();
                Vary::Exponential
            }
            Token::PlusMinus => {
                self.advance();
                Vary::Percent(self.percentage()?)
            }
            _ => Vary::Fixed,
        };
        Ok(Length { mean, vary })
    }
}
