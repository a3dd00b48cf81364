// SPDX-License-Identifier: GPL-2.0-only
//! `corun top` on a terminal.

use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;

/// A terminal without a size, like a serial console: our side, and that of programs.
fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: writes two descriptors, and reads nothing where it is given null.
    let made = unsafe { libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast()) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: nobody else has them.
    unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) }
}

/// How the terminal deals with what is typed.
fn modes(terminal: &File) -> libc::tcflag_t {
    let mut modes = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: fills what it is given, which is large enough.
    let told = unsafe { libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr()) };
    assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was filled.
    unsafe { modes.assume_init() }.c_lflag
}

/// Reads until `end` was written, or nobody is left to write. Returns all of it.
fn read_until(terminal: &mut File, end: &str) -> String {
    let mut all = Vec::new();
    let mut some = [0; 4096];
    loop {
        match terminal.read(&mut some) {
            Ok(count) if count > 0 => all.extend_from_slice(&some[..count]),
            _ => return String::from_utf8_lossy(&all).into_owned(),
        }
        if String::from_utf8_lossy(&all).contains(end) {
            return String::from_utf8_lossy(&all).into_owned();
        }
    }
}

#[test]
fn who_ends_it_has_the_terminal_back() {
    // What is ignored, as by `nohup`, ends nothing.
    let heeded = |signal: &libc::c_int| !corun_system::signals::is_ignored(*signal).unwrap();
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT]
        .into_iter()
        .filter(heeded)
    {
        let (mut ours, theirs) = terminal();
        let before = modes(&ours);
        let side = || theirs.try_clone().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
        command.args(["top", "--delay", "3600"]).env("COLUMNS", "");
        command.stdin(side()).stdout(side()).stderr(side());
        let mut child = command.spawn().unwrap();
        drop((command, theirs));
        let drawn = read_until(&mut ours, "%RDY");
        assert!(drawn.contains("\x1b[?1049h"), "{drawn:?}");
        assert!(
            drawn.contains("%RDY"),
            "a terminal without a size: {drawn:?}"
        );
        assert_ne!(modes(&ours), before, "raw");
        // SAFETY: takes numbers; the child exists until it is waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        let rest = read_until(&mut ours, "no such text");
        assert!(rest.contains("\x1b[?1049l"), "{signal}: {rest:?}");
        assert!(rest.contains("\x1b[?25h"), "{signal}: the cursor: {rest:?}");
        assert_eq!(modes(&ours), before, "{signal}");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}
