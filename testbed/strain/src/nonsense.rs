// SPDX-License-Identifier: GPL-2.0-only
//! Malformed requests to the control socket of `corun host` (docs/socket.md), as a broken or hostile
//! client sends them: each must be refused, or its connection closed, and none carried out.

use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A daemon that has not answered by then counts as not answering. Longer than it lets clients be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections that stay open and silent meanwhile; fewer than the daemon allows.
const SILENT: usize = 8;

/// How often requests had which outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcomes {
    refused: u32,
    closed: u32,
}

/// Sends `count` of them and prints how often each kind of outcome occurred; fails if one was carried out or not
/// answered at all.
pub fn run(socket: &Path, count: u32) -> anyhow::Result<()> {
    let silent: Result<Vec<_>, _> = (0..SILENT).map(|_| UnixStream::connect(socket)).collect();
    let silent = silent.context("cannot connect")?;
    let mut chance = Chance(0x5eed);
    let mut outcomes = Outcomes::default();
    for round in 0..count {
        let request = request(round, &mut chance);
        send(socket, &request, &mut outcomes)
            .with_context(|| format!("request {round}: {:?}", String::from_utf8_lossy(&request)))?;
    }
    drop(silent);
    println!("refused\t{}", outcomes.refused);
    println!("closed\t{}", outcomes.closed);
    Ok(())
}

/// Sends a request on a connection of its own.
fn send(socket: &Path, request: &[u8], outcomes: &mut Outcomes) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(socket).context("cannot connect")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // A daemon may close the connection before everything is sent.
    if let Err(error) = stream.write_all(request)
        && !matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    {
        return Err(error).context("it takes nothing");
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut lines = Vec::new();
    for line in BufReader::new(stream).split(b'\n') {
        match line {
            Ok(line) => lines.push(line),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error).context("it does not answer"),
        }
    }
    for line in &lines {
        let answer: Value = serde_json::from_slice(line).context("the answer is no JSON")?;
        if answer.get("error").is_none() {
            bail!("it was carried out: {answer}");
        }
    }
    match lines.is_empty() {
        true => outcomes.closed += 1,
        false => outcomes.refused += 1,
    }
    Ok(())
}

/// Requests with wrong content.
const WRONG: &[&str] = &[
    r#"{"version": 2, "command": "policy"}"#,
    r#"{"version": -1, "command": "policy"}"#,
    r#"{"command": "policy"}"#,
    r#"{"version": 1}"#,
    r#"{"version": 1, "command": "polcy"}"#,
    r#"{"version": 1, "command": ["policy"]}"#,
    r#"{"version": 1, "command": "policy", "more": 1}"#,
    r#"{"version": 1, "command": "set-policy"}"#,
    r#"{"version": 1, "command": "set-policy", "name": ""}"#,
    r#"{"version": 1, "command": "set-policy", "name": "../../etc/passwd"}"#,
    r#"{"version": 1, "command": "set-policy", "name": "fair\u0000"}"#,
    r#"{"version": 1, "command": "set-policy", "name": 7}"#,
    r#"{"version": 1, "command": "set-policy", "name": "microsliced", "set": {"slice": "0ns"}}"#,
    r#"{"version": 1, "command": "set-policy", "name": "microsliced", "set": {"slice": "-1ms"}}"#,
    r#"{"version": 1, "command": "set-policy", "name": "microsliced", "set": {"slice": "1e308s"}}"#,
    r#"{"version": 1, "command": "set-policy", "name": "microsliced", "set": {"slice": "99999999999999999999s"}}"#,
    r#"{"version": 1, "command": "set-policy", "name": "microsliced", "set": {"slice": 5}}"#,
    r#"{"version": 1, "command": "set-policy", "name": "microsliced", "set": {"": ""}}"#,
    r#"{"version": 1, "command": "set-policy", "name": "fair", "set": []}"#,
    r#"["version", 1]"#,
    "null",
    "",
];

/// Request number `round`: of six kinds in turn.
fn request(round: u32, chance: &mut Chance) -> Vec<u8> {
    let wrong = WRONG[chance.below(WRONG.len())];
    let mut bytes = match round % 6 {
        0 | 1 => wrong.as_bytes().to_vec(),
        // Cut off.
        2 => wrong.as_bytes()[..chance.below(wrong.len() + 1)].to_vec(),
        3 => (0..chance.below(300)).map(|_| chance.byte()).collect(),
        4 => b"[".repeat(1 + chance.below(4000)),
        // Too long for a request.
        _ => b" ".repeat(5000 + chance.below(100_000)),
    };
    // Some lack the end of the line.
    if chance.below(8) != 0 {
        bytes.push(b'\n');
    }
    bytes
}

/// A source of random numbers: Knuth's linear congruential generator (MMIX), of which the upper bits are used.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A number from 0 to below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next()).unwrap_or(0) % limit
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::{Chance, Outcomes, WRONG, request, send};
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// What `send` makes of a daemon that answers like this.
    fn met(answer: &'static [u8]) -> Result<Outcomes, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let daemon = thread::spawn(move || listener.accept()?.0.write_all(answer));
        let mut outcomes = Outcomes::default();
        let sent = send(&path, b"null\n", &mut outcomes);
        daemon.join().expect("a thread").expect("an answer");
        sent.map(|()| outcomes).map_err(|error| error.to_string())
    }

    fn outcomes(refused: u32, closed: u32) -> Result<Outcomes, String> {
        Ok(Outcomes { refused, closed })
    }

    #[test]
    fn what_is_carried_out_is_told_from_what_is_refused() {
        assert_eq!(met(b"{\"error\": {}}\n"), outcomes(1, 0));
        assert_eq!(met(b""), outcomes(0, 1));
        assert!(met(b"{\"ok\": 1}\n").is_err_and(|error| error.contains("carried out")));
        assert!(met(b"{\n").is_err_and(|error| error.contains("no JSON")));
    }

    #[test]
    fn every_kind_of_request_comes_and_chance_repeats_itself() {
        let all = |seed| {
            let mut chance = Chance(seed);
            let made: Vec<_> = (0..600).map(|round| request(round, &mut chance)).collect();
            made
        };
        let made = all(1);
        assert_eq!(made, all(1));
        assert_ne!(made, all(2));
        assert!(made.iter().any(|bytes| bytes.len() > 4096));
        for wrong in WRONG {
            let whole = format!("{wrong}\n").into_bytes();
            assert!(made.contains(&whole), "{wrong}");
        }
    }
}
