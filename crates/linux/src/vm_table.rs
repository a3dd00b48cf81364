// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher's table of VMs, as memory that this process shares with the kernel.
//!
//! Problem: the control loop looks at every slot up to 33 times a second, to see which VMs came and
//! went; copying the table by system calls (2 MiB) was most of what the daemon cost. How: it is
//! mapped, and only occupied slots are read.

use crate::mapping::{Access, Mapping, words_of};
use crate::skel::types;
use corun_dispatcher::MAX_VMS;
use corun_model::{PcpuId, PcpuSet};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a slot; arrays in the kernel are packed in such words.
const WORDS: usize = words_of::<types::vm_ctx>();
/// Where its parts begin: `id` and `vcpus` share the first word.
const ACTIVE_WEIGHT: usize = offset_of!(types::vm_ctx, active_weight) / size_of::<u64>();
const HERE: usize = offset_of!(types::vm_ctx, here) / size_of::<u64>();

/// What an occupied slot says about its VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VmSlot {
    /// Its place in the table.
    pub(crate) at: u32,
    /// The VM's process.
    pub(crate) id: u32,
    /// vCPU threads that the dispatcher has seen.
    pub(crate) vcpus: u32,
    /// Sum of the weights of its ready and running vCPUs.
    pub(crate) active_weight: u64,
    /// How many are ready or running.
    pub(crate) occupied: u64,
    /// pCPUs with two of them or more.
    pub(crate) stacked: PcpuSet,
}

/// The mapping.
pub(crate) struct VmTable(Mapping);

impl VmTable {
    /// Maps the array that `map` is (`vm_ctxs` of dispatcher/platform/bpf.h, `BPF_F_MMAPABLE`).
    ///
    /// # Errors
    /// The kernel's reason.
    pub(crate) fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        Mapping::of(map, MAX_VMS * WORDS, Access::Read).map(Self)
    }

    /// Occupied slots. There are pCPUs with numbers below `pcpus` only.
    pub(crate) fn occupied(&self, pcpus: u32) -> Vec<VmSlot> {
        let slots = (0..).zip(self.0.words().chunks_exact(WORDS));
        slots
            .filter_map(|(at, words)| slot_in(at, words, pcpus))
            .collect()
    }
}

/// What a slot says; `None`: it is free.
fn slot_in(at: u32, words: &[AtomicU64], pcpus: u32) -> Option<VmSlot> {
    let halves = |word: &AtomicU64| {
        let [a, b, c, d, e, f, g, h] = word.load(Ordering::Relaxed).to_ne_bytes();
        [[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes)
    };
    let [id, vcpus] = halves(words.first()?);
    if id == 0 {
        return None;
    }
    let mut slot = VmSlot {
        at,
        id,
        vcpus,
        active_weight: words.get(ACTIVE_WEIGHT)?.load(Ordering::Relaxed),
        ..VmSlot::default()
    };
    // Nearly all of it is zeros.
    let pairs = (0..pcpus).step_by(2).zip(words.get(HERE..)?);
    for (cpu, pair) in pairs.filter(|(_, pair)| pair.load(Ordering::Relaxed) != 0) {
        for (cpu, count) in (cpu..).zip(halves(pair)) {
            slot.occupied += u64::from(count);
            if count > 1 {
                slot.stacked.insert(PcpuId(cpu));
            }
        }
    }
    Some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::bytes_of;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn occupied_slots_are_read_as_they_were_written() {
        let mut file = tempfile::tempfile().unwrap();
        let mut third = types::vm_ctx {
            id: 4711,
            vcpus: 3,
            active_weight: u64::MAX - 1,
            ..types::vm_ctx::default()
        };
        third.here[0] = 1;
        third.here[1] = 2;
        third.here[511] = 9;
        for slot in 0..MAX_VMS {
            let free = types::vm_ctx::default();
            file.write_all(bytes_of(if slot == 3 { &third } else { &free }))
                .unwrap();
        }
        let table = VmTable::map(file.as_fd()).unwrap();
        let expected = VmSlot {
            at: 3,
            id: 4711,
            vcpus: 3,
            active_weight: u64::MAX - 1,
            occupied: 12,
            stacked: [PcpuId(1), PcpuId(511)].into_iter().collect(),
        };
        assert_eq!(table.occupied(512), [expected]);
        let few = table.occupied(2);
        assert_eq!((few[0].occupied, few[0].stacked.len()), (3, 1));
    }

    #[test]
    fn what_cannot_be_mapped_is_said() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(VmTable::map(reader.as_fd()).is_err());
    }
}
