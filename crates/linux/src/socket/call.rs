// SPDX-License-Identifier: GPL-2.0-only
//! The other end: `corun policy` asks the daemon.

use super::connect;
use super::protocol::{Command, LONGEST_REQUEST, Outcome, Refusal, Reply};
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the daemon may take: it answers within milliseconds unless its host stands still.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than any answer has, bytes: a program that says more is not the daemon. The status of 4096
/// vCPUs in 1024 VMs has 2 MB with names as people give them, 6 MB with the longest there are.
const LONGEST_REPLY: usize = 16 << 20;

/// Why there is no answer, or not the one wanted.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody is there.
    #[error(
        "no corun host runs: nothing answers on {0} (start one with `sudo corun host`, or name its \
         socket with --socket PATH)"
    )]
    NoDaemon(PathBuf),
    /// The caller may not ask it.
    #[error(
        "no permission to use {0}: it is for its owner and group (run this as root, or as a member \
         of the group)"
    )]
    NotAllowed(PathBuf),
    /// It does not answer.
    #[error("the daemon did not answer within {} s on {path}", .patience.as_secs_f64())]
    TimeOver {
        /// The socket.
        path: PathBuf,
        /// How long it had.
        patience: Duration,
    },
    /// The request would not be read.
    #[error("a request of {0} bytes is too long, at most {LONGEST_REQUEST} are accepted")]
    TooLong(usize),
    /// Something else, not corun, or a corun with another protocol.
    #[error("what answers on {path} does not speak corun's protocol: {cause}")]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        cause: serde_json::Error,
    },
    /// The connection failed.
    #[error("cannot ask the daemon on {path}: {cause}")]
    Failed {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The daemon refuses.
    #[error("{}", .0.message)]
    Refused(Refusal),
}

/// Asks the daemon that listens at `path`, and waits for its answer.
///
/// # Errors
/// [`CallError`].
pub fn call<T: DeserializeOwned>(path: &Path, command: &Command) -> Result<T, CallError> {
    call_within(PATIENCE, path, command)
}

/// The same, with this `patience` in all.
///
/// # Errors
/// [`CallError`].
pub fn call_within<T: DeserializeOwned>(
    patience: Duration,
    path: &Path,
    command: &Command,
) -> Result<T, CallError> {
    let line = command.line();
    if line.len() > LONGEST_REQUEST {
        return Err(CallError::TooLong(line.len()));
    }
    let answer = exchange(path, &line, patience);
    let answer = answer.map_err(|cause| explain(path, cause, patience))?;
    let foreign = |cause| CallError::Foreign {
        path: path.to_path_buf(),
        cause,
    };
    let reply: Reply = serde_json::from_slice(&answer).map_err(foreign)?;
    match reply.outcome {
        Outcome::Ok(answer) => serde_json::from_value(answer).map_err(foreign),
        Outcome::Error(refusal) => Err(CallError::Refused(refusal)),
    }
}

fn exchange(path: &Path, line: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let mut stream = connect::within(patience, path)?;
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(line)?;
    answer(&mut stream, until)
}

/// A line, or what there is of one when the other end closes. All of it must have come by `until`: a line that comes
/// bit by bit could take for ever.
fn answer(stream: &mut UnixStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    while answer.len() < LONGEST_REPLY {
        stream.set_read_timeout(Some(left(until)?))?;
        let count = match stream.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let new = &chunk[..count];
        let end = new.iter().position(|&byte| byte == b'\n');
        answer.extend_from_slice(&new[..end.unwrap_or(count)]);
        if count == 0 || end.is_some() {
            break;
        }
    }
    Ok(answer)
}

/// How long it is until then.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

fn explain(path: &Path, cause: io::Error, patience: Duration) -> CallError {
    let path = path.to_path_buf();
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => CallError::NoDaemon(path),
        io::ErrorKind::PermissionDenied => CallError::NotAllowed(path),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            CallError::TimeOver { path, patience }
        }
        _ => CallError::Failed { path, cause },
    }
}
