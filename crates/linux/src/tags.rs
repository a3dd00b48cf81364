// SPDX-License-Identifier: GPL-2.0-only
//! As long as this lives, no task on the host can make a core-scheduling cookie: bpf/tags.bpf.c.
//!
//! When the daemon ends, for whatever reason, the kernel removes the program, as it does the dispatcher.

use crate::log;
use crate::object::Aligned;
use libbpf_rs::{Link, Object, ObjectBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The compiled program.
static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tags.bpf.o")));

/// The program at work.
pub(crate) struct NoNewCookies {
    link: Link,
    _object: Object,
    /// The link once more.
    longer: Option<OwnedFd>,
}

impl NoNewCookies {
    /// From now on.
    ///
    /// # Errors
    /// The kernel's reason.
    pub(crate) fn from_now_on() -> libbpf_rs::Result<Self> {
        // What libbpf says besides the reason.
        log::begin();
        let open = ObjectBuilder::default()
            .name("tags")?
            .open_memory(&PROGRAM.0)?;
        let object = open.load()?;
        let program = object.progs_mut().find(|it| it.name() == "no_new_cookies");
        let program = program.ok_or_else(|| io::Error::other("no program no_new_cookies"))?;
        Ok(Self {
            link: program.attach()?,
            _object: object,
            longer: None,
        })
    }

    /// Makes it last as long as the scheduler that was attached before it: when a process is killed, the kernel closes
    /// its descriptors in order, and is done with a scheduler when that one's is closed.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(crate) fn outlive(&mut self) -> io::Result<()> {
        self.longer = Some(self.link.as_fd().try_clone_to_owned()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smt::PR_SCHED_CORE_GET;

    /// What the kernel says to a thread that asks this of itself.
    fn asks(what: libc::c_ulong) -> Option<i32> {
        let mut cookie = 0u64;
        let into = match what {
            PR_SCHED_CORE_GET => (&raw mut cookie) as usize,
            _ => 0,
        };
        // SAFETY: of these commands GET alone writes, eight bytes to where the last argument points.
        let result = unsafe { libc::prctl(libc::PR_SCHED_CORE, what, 0, 0, into) };
        (result != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// With root's rights, where the kernel takes programs.
    #[test]
    fn cookies_can_be_read_and_not_made() {
        let before = asks(PR_SCHED_CORE_GET);
        let program = match NoNewCookies::from_now_on() {
            Ok(program) => program,
            Err(why) => return println!("not here: {why:#}"),
        };
        for what in [1, 2, 3] {
            assert_eq!(asks(what), Some(libc::ENODEV), "{what}");
        }
        assert_eq!(asks(PR_SCHED_CORE_GET), before);
        // SAFETY: takes no memory.
        assert!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) } >= 0);
        drop(program);
        if let Some(why) = before {
            assert_eq!(asks(9), Some(why), "the kernel answers itself again");
        }
    }
}
