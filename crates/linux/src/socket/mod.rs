// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's control socket: authorised users ask what is in force and change it while the
//! daemon runs.
//!
//! A unix socket with mode 0660: its owner and group may do everything, other users nothing;
//! nothing listens on a network. A request is a line of JSON, and so is its answer ([`protocol`],
//! docs/socket.md).
//!
//! The daemon answers in its main loop, between two looks at its host, with descriptors that never
//! block. That makes each request atomic to the policy, and it bounds what a client can do: a request has a longest
//! length, a client that neither asks nor listens for a while is dropped, the number of connections is limited, and in
//! each turn each client is heard once. See man 7 unix, poll(2).

mod call;
mod client;
mod connect;
mod listener;
pub mod protocol;
pub mod scx_stats;

pub use call::{CallError, call, call_within};
pub use listener::SocketError;

use client::{Client, Tongue};
use corun_model::Nanos;
use listener::Listener;
use protocol::{Command, Reply};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the daemon listens by default.
pub const DEFAULT: &str = "/run/corun/host.sock";

/// Clients heard at the same time; others wait in the kernel's queue until one has left.
const MOST_CLIENTS: usize = 16;
/// How long a client may stay without asking anything or taking its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long no new connection is accepted after the kernel refused one, for lack of descriptors for example.
pub const PAUSE: Duration = Duration::from_millis(100);

/// The socket and those connected to it.
pub struct Server {
    listeners: Vec<(Listener, Tongue)>,
    clients: Vec<Client>,
    deaf_until: Option<Instant>,
    patience: Duration,
}

impl Server {
    /// Listens at `path`. A socket left behind by a daemon that was killed is replaced; a directory
    /// that is missing is made, if the one above is there.
    ///
    /// # Errors
    /// [`SocketError`], for example if another daemon answers there.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        Ok(Self {
            listeners: vec![(Listener::bind(path)?, Tongue::Corun)],
            clients: Vec::new(),
            deaf_until: None,
            patience: PATIENCE,
        })
    }

    /// Listens at `path`, too, to clients that speak as scx_stats does ([`scx_stats`]).
    ///
    /// # Errors
    /// [`SocketError`], for example if another scheduler answers there.
    pub fn answer_scx_stats(&mut self, path: &Path) -> Result<(), SocketError> {
        // Two directories are customary; whatever else is missing was perhaps a slip.
        listener::make_above(path)?;
        let listener = Listener::bind(path)?;
        self.listeners.push((listener, Tongue::ScxStats));
        Ok(())
    }

    /// Waits for at most `limit` ns and hears clients that have something to say; returns early
    /// after that, or when a signal arrives.
    ///
    /// # Errors
    /// Only if the kernel cannot wait; whatever clients do is no error.
    pub fn turn(
        &mut self,
        limit: Nanos,
        answer: &mut dyn FnMut(Command) -> Reply,
    ) -> io::Result<()> {
        let now = Instant::now();
        self.deaf_until = self.deaf_until.filter(|&until| until > now);
        let listening = self.clients.len() < MOST_CLIENTS && self.deaf_until.is_none();
        let mut fds = Vec::with_capacity(self.clients.len() + self.listeners.len());
        let clients = self.clients.iter();
        fds.extend(clients.map(|client| wait_for(client.fd(), client.events())));
        let heard = self.clients.len();
        if listening {
            let listeners = self.listeners.iter();
            fds.extend(listeners.map(|(socket, _)| wait_for(socket.as_raw_fd(), libc::POLLIN)));
        }
        let at_once = self.clients.iter().any(Client::has_request);
        poll(&mut fds, if at_once { 0 } else { limit })?;
        let now = Instant::now();
        for (client, fd) in self.clients.iter_mut().zip(&fds) {
            client.turn(fd.revents != 0, now, answer);
        }
        let patience = self.patience;
        self.clients
            .retain(|client| !client.is_done() && client.idle(now) < patience);
        for (at, fd) in fds.iter().skip(heard).enumerate() {
            if fd.revents != 0 && self.clients.len() < MOST_CLIENTS {
                self.accept(at, now);
            }
        }
        Ok(())
    }

    fn accept(&mut self, at: usize, now: Instant) {
        let (listener, tongue) = &self.listeners[at];
        match listener.accept() {
            Ok(Some(stream)) => self.clients.push(Client::new(stream, *tongue, now)),
            Ok(None) => {}
            Err(_) => self.deaf_until = Some(now + PAUSE),
        }
    }
}

fn wait_for(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// Waits until one of `fds` is ready, for `limit` ns at most.
fn poll(fds: &mut [libc::pollfd], limit: Nanos) -> io::Result<()> {
    let timeout = libc::timespec {
        tv_sec: (limit / 1_000_000_000).cast_signed(),
        tv_nsec: (limit % 1_000_000_000).cast_signed(),
    };
    let count = libc::nfds_t::try_from(fds.len()).map_err(io::Error::other)?;
    // SAFETY: `fds` is writable for `count` entries, `timeout` readable; no signal mask is given.
    let ready = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            count,
            &raw const timeout,
            std::ptr::null(),
        )
    };
    match io::Error::last_os_error() {
        error if ready < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
