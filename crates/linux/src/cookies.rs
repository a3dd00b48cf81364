// SPDX-License-Identifier: GPL-2.0-only
//! The core-scheduling cookies of VMs, as long as the daemon is in charge.
//!
//! Problem: the kernel shows a thread's cookie only to processes that may trace that thread. VMMs mostly run as another
//! user, or with capabilities that the daemon has given up. So reading cookies takes CAP_SYS_PTRACE; and a daemon that
//! had it could write into any process.
//!
//! How: before the daemon gives up its rights it starts a thread that keeps this capability and can do nothing but read
//! the cookies of threads ([`crate::confine`]), whichever policy comes into force later.
//!
//! If a VM's cookie cannot be read, it must not be taken for 0, which many VMs have and which lets
//! them share cores. Such a VM gets a cookie of its own, so that it shares cores with no other VM. The dispatcher does
//! the same for vCPUs whose cookies it does not know yet (`COOKIE_UNKNOWN` of dispatcher/cookie.h).

use crate::confine;
use crate::discovery::Vm;
use crate::smt;
use corun_model::{VmId, counted};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// The cookies given to VMs whose own cannot be read begin here: the kernel's have 32 bits (`ptr_to_hashval()` in
/// lib/vsprintf.c).
const OWN: u64 = 1 << 63;

/// The cookie that vCPUs have in common, by what was read of each; `None`: it cannot be read, or they have none in
/// common.
pub(crate) fn in_common(read: impl IntoIterator<Item = io::Result<u64>>) -> Option<u64> {
    let gone = |cookie: &io::Result<u64>| cookie.as_ref().is_err_and(smt::is_gone);
    let mut read = read.into_iter().filter(|cookie| !gone(cookie));
    let Some(first) = read.next() else {
        return Some(0);
    };
    let first = first.ok()?;
    read.all(|cookie| cookie.is_ok_and(|cookie| cookie == first))
        .then_some(first)
}

fn is_tagged(cookie: &io::Result<u64>) -> bool {
    cookie.as_ref().is_ok_and(|cookie| *cookie != 0)
}

/// The cookie by which policies know a VM.
pub(crate) fn shown(vm: VmId, cookie: Option<u64>) -> u64 {
    cookie.unwrap_or(OWN | u64::from(vm.0))
}

/// The note where cookies count and those of this many VMs cannot be read.
pub(crate) fn note(unknown: usize) -> Option<String> {
    let share = if unknown == 1 { "shares" } else { "share" };
    (unknown > 0).then(|| {
        format!(
            "{} {share} cores with no other: core-scheduling cookies cannot be read (the daemon needs \
             CAP_SYS_PTRACE when it starts), or vCPUs of a VM have several",
            counted(unknown, "VM")
        )
    })
}

/// The cookies of all VMs.
pub(crate) struct Cookies {
    reader: Reader,
    /// The threads whose cookies were read last.
    read: Vec<u32>,
    /// Of VMs, as their vCPUs have them in common.
    known: BTreeMap<VmId, Option<u64>>,
    /// The names of VMs with a vCPU that has a cookie.
    tagged: Vec<String>,
}

impl Cookies {
    /// Comes before the daemon gives up its rights.
    pub(crate) fn start() -> Self {
        Self {
            reader: Reader::start(),
            read: Vec::new(),
            known: BTreeMap::new(),
            tagged: Vec::new(),
        }
    }

    /// These are the VMs now. Cookies are read where there are other vCPUs than before; `thorough`: anyway.
    pub(crate) fn refresh(&mut self, vms: &[Vm], thorough: bool) {
        let vcpus = vms.iter().flat_map(|vm| &vm.vcpus);
        let tids = vcpus.map(|vcpu| vcpu.key.tid);
        if !thorough && tids.clone().eq(self.read.iter().copied()) {
            return;
        }
        let tids: Vec<u32> = tids.collect();
        let mut cookies = self.reader.read(&tids).into_iter();
        self.known.clear();
        self.tagged.clear();
        for vm in vms {
            let read: Vec<_> = cookies.by_ref().take(vm.vcpus.len()).collect();
            if read.iter().any(is_tagged) {
                self.tagged.push(vm.name.clone());
            }
            self.known.insert(vm.vm, in_common(read));
        }
        self.read = tids;
    }

    /// By which policies know a VM.
    pub(crate) fn of(&self, vm: VmId) -> u64 {
        shown(vm, self.known.get(&vm).copied().flatten())
    }

    /// The VMs that have cookies.
    pub(crate) fn tagged(&self) -> &[String] {
        &self.tagged
    }

    /// The note where cookies count.
    pub(crate) fn note(&self) -> Option<String> {
        note(
            self.known
                .values()
                .filter(|cookie| cookie.is_none())
                .count(),
        )
    }
}

/// The threads whose cookies are wanted, and where to answer.
type Request = (Vec<u32>, Sender<Vec<io::Result<u64>>>);

/// The thread that may read cookies. It ends with this.
struct Reader(Sender<Request>);

impl Reader {
    fn start() -> Self {
        let (ask, asked) = mpsc::channel();
        // Without the thread requests are not heard, and no cookie can be read.
        let _ = thread::Builder::new()
            .name("cookies".to_string())
            .spawn(move || answer(&asked));
        let reader = Self(ask);
        // It answers when it has given up everything else: the daemon does not go on before.
        reader.read(&[]);
        reader
    }

    /// The cookies of these threads, in their order.
    fn read(&self, tids: &[u32]) -> Vec<io::Result<u64>> {
        let (answer, answered) = mpsc::channel();
        let asked = self.0.send((tids.to_vec(), answer)).ok();
        let read = asked.and_then(|()| answered.recv().ok());
        let deaf = |_: &u32| Err(io::Error::from(io::ErrorKind::BrokenPipe));
        read.unwrap_or_else(|| tids.iter().map(deaf).collect())
    }
}

/// What the thread does: with more rights than it needs, nothing.
fn answer(asked: &Receiver<Request>) {
    if confine::confine_to_cookies().is_err() {
        return;
    }
    while let Ok((tids, answer)) = asked.recv() {
        // The thread that asked may have gone.
        let _ = answer.send(tids.into_iter().map(smt::cookie).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::host;

    fn failed(errno: i32) -> io::Result<u64> {
        Err(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn a_vm_has_the_cookie_of_its_vcpus() {
        assert_eq!(in_common([Ok(7), Ok(7)]), Some(7));
        assert_eq!(in_common([Ok(7), failed(libc::ESRCH)]), Some(7));
        assert_eq!(in_common([]), Some(0));
        assert_eq!(in_common([Ok(7), Ok(0)]), None);
        assert_eq!(in_common([Ok(0), failed(libc::EPERM)]), None);
        assert_eq!(in_common([failed(libc::EPERM)]), None);
    }

    /// Otherwise VMs that must not would share cores.
    #[test]
    fn unknown_cookies_are_unlike_each_other_and_unlike_none() {
        let [first, second] = [0, 1].map(|vm| shown(VmId(vm), None));
        assert!(first != second && first != 0 && second != 0);
        assert_eq!(shown(VmId(1), Some(0)), 0);
    }

    #[test]
    fn cookies_are_read_by_a_thread_with_the_right_to() {
        let mut cookies = Cookies::start();
        let me = std::process::id();
        assert_eq!(cookies.reader.read(&[me])[0].as_ref().unwrap(), &0);
        let (vms, _) = host();
        cookies.refresh(&vms, false);
        assert_eq!(cookies.read.len(), 6);
        assert_eq!(cookies.known.len(), 3);
    }

    #[test]
    fn without_that_thread_no_cookie_is_known() {
        let (deaf, _) = mpsc::channel();
        let mut cookies = Cookies {
            reader: Reader(deaf),
            read: Vec::new(),
            known: BTreeMap::new(),
            tagged: Vec::new(),
        };
        let (vms, _) = host();
        cookies.refresh(&vms, false);
        let seen: Vec<u64> = vms.iter().map(|vm| cookies.of(vm.vm)).collect();
        assert!(seen.iter().all(|cookie| *cookie != 0));
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
        assert!(
            cookies
                .note()
                .unwrap()
                .starts_with("3 VMs share cores with no other")
        );
    }
}
