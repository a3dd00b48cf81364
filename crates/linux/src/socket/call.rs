// SPDX-License-Identifier: GPL-2.0-only
//! The other end: `corun policy` asks the daemon.

use super::protocol::{Command, LONGEST_REQUEST, Outcome, Refusal, Reply};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the daemon may take (messages say it, too): it answers within milliseconds unless its host stands still.
const LIMIT: Duration = Duration::from_secs(10);
/// More than any answer has, bytes: whoever says more is not the daemon. The status of 4096 vCPUs in 1024 VMs has 2 MB
/// with names as people give them, 6 MB with the longest there are.
const LONGEST_REPLY: u64 = 16 << 20;

/// Why there is no answer, or not the one wanted.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody is there.
    #[error(
        "no corun host runs: nothing answers on {0} (start one with `sudo corun host`, or name its \
         socket with --socket PATH)"
    )]
    NoDaemon(PathBuf),
    /// One may not.
    #[error(
        "no permission to use {0}: it is for its owner and group (run this as root, or as a member \
         of the group)"
    )]
    NotAllowed(PathBuf),
    /// It does not answer.
    #[error("the daemon did not answer within 10 s on {0}")]
    TimeOver(PathBuf),
    /// The request would not be read.
    #[error("a request of {0} bytes is too long, at most {LONGEST_REQUEST} are accepted")]
    TooLong(usize),
    /// Something else, not corun, or one that speaks otherwise.
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
    /// The daemon says no.
    #[error("{}", .0.message)]
    Refused(Refusal),
}

/// Asks the daemon that listens at `path`, and waits for its answer.
///
/// # Errors
/// [`CallError`].
pub fn call<T: DeserializeOwned>(path: &Path, command: &Command) -> Result<T, CallError> {
    let line = command.line();
    if line.len() > LONGEST_REQUEST {
        return Err(CallError::TooLong(line.len()));
    }
    let answer = exchange(path, &line).map_err(|cause| explain(path, cause))?;
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

fn exchange(path: &Path, line: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(line)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(LONGEST_REPLY)).read_until(b'\n', &mut answer)?;
    Ok(answer)
}

fn explain(path: &Path, cause: io::Error) -> CallError {
    let path = path.to_path_buf();
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => CallError::NoDaemon(path),
        io::ErrorKind::PermissionDenied => CallError::NotAllowed(path),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => CallError::TimeOver(path),
        _ => CallError::Failed { path, cause },
    }
}
