// SPDX-License-Identifier: GPL-2.0-only
//! What lies where in the memory of the testbed's guests, and what is there when they start.

use crate::MachineError;
use crate::guest::{self, CALL_VECTOR, EXCEPTIONS, Mode, VECTOR};
use crate::machine::{Ring, Setup, Start};
use crate::memory::GuestMemory;

/// The guest's memory in bytes. Its first 2 MiB of addresses are mapped to themselves.
pub const SIZE: usize = 0x4_0000;
/// The most vCPUs that fit.
pub const MOST_VCPUS: usize = 32;

/// Segment descriptors.
pub const GDT: usize = 0x1000;
/// Interrupt gates.
pub const IDT: usize = 0x2000;
/// The programs.
pub const CODE: usize = 0x3000;
/// The page that all vCPUs share.
pub const SHARED: usize = 0x5000;
/// The root of the page tables, followed by the other two levels.
pub const PAGE_TABLES: usize = 0x6000;
const BLOCKS: usize = 0x1_0000;
const PAGE: usize = 0x1000;

/// Descriptors: none, 64-bit code and data of ring 0, data and 64-bit code of ring 3.
pub const DESCRIPTORS: [u64; 5] = [
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00cf_f300_0000_ffff,
    0x00af_fb00_0000_ffff,
];
/// The selector of the code descriptor of ring 0.
pub const CODE_SELECTOR: u16 = 8;
/// The selector of the data descriptor of ring 0.
pub const DATA_SELECTOR: u16 = 16;
/// The selector of the data descriptor of ring 3.
pub const USER_DATA_SELECTOR: u16 = 24 | 3;
/// The selector of the code descriptor of ring 3.
pub const USER_CODE_SELECTOR: u16 = 32 | 3;
/// Gates up to the last vector used: of the exceptions, and of the interrupts. Anything else is a fault.
pub const GATES: usize = CALL_VECTOR + 1;

/// What a guest does, in its own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The kind of work.
    pub mode: Mode,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// Rounds of an empty loop per computation.
    pub work: u64,
    /// Length of a sleep in [`Mode::Timer`].
    pub sleep_ns: u32,
    /// Does the guest ask for its steal time? An emulated host that writes it stalls now and then, under any scheduler:
    /// so only guests that are to show it have it.
    pub steal: bool,
}

/// The address of vCPU `index`'s block: its counter, then its parameters; its stack is at the end.
pub fn block(index: usize) -> usize {
    BLOCKS + index * PAGE
}

/// Where KVM writes how long vCPU `index` wanted a pCPU and had none, in ns: `struct kvm_steal_time`, 64 bytes aligned
/// to their size (Documentation/virt/kvm/x86/msr.rst, MSR_KVM_STEAL_TIME).
pub fn steal(index: usize) -> usize {
    block(index) + 0x100
}

/// The first address after vCPU `index`'s stack.
pub fn stack(index: usize) -> usize {
    block(index) + PAGE
}

/// The first instruction of `mode`.
pub fn entry(mode: Mode) -> usize {
    CODE + guest::entry(mode)
}

/// The whole machine.
///
/// # Errors
/// [`MachineError::Memory`].
pub fn setup(program: &Program) -> Result<Setup, MachineError> {
    let mut memory = GuestMemory::new(SIZE)?;
    for (at, bytes) in pieces(program) {
        memory.write(at, &bytes);
    }
    let start = |index| Start {
        ring: Ring::Kernel,
        rip: entry(program.mode) as u64,
        rsp: stack(index) as u64,
        rsi: block(index) as u64,
        rdi: SHARED as u64,
        steal: program.steal.then(|| steal(index) as u64),
    };
    Ok(Setup {
        memory: vec![(0, memory)],
        vcpus: (0..program.vcpus).map(start).collect(),
    })
}

/// The pieces of memory that are not zero at the start: addresses and contents.
pub fn pieces(program: &Program) -> Vec<(usize, Vec<u8>)> {
    let mut pieces = vec![
        (GDT, words(&DESCRIPTORS)),
        (
            IDT + VECTOR * 16,
            words(&gate(CODE + guest::interrupt_handler())),
        ),
        (
            IDT + CALL_VECTOR * 16,
            words(&gate(CODE + guest::call_handler())),
        ),
        (CODE, guest::code().to_vec()),
    ];
    for exception in 0..EXCEPTIONS {
        let handler = CODE + guest::fault_entry(exception);
        pieces.push((IDT + exception * 16, words(&gate(handler))));
    }
    pieces.extend(page_tables());
    for index in 0..program.vcpus {
        let next = (index + 1) % program.vcpus;
        let parameters = [
            index as u64,
            program.work,
            u64::from(program.sleep_ns),
            next as u64,
            program.vcpus as u64,
        ];
        pieces.push((block(index) + 8, words(&parameters)));
    }
    pieces
}

/// Three levels of one entry each: one page of 2 MiB, at its own address.
fn page_tables() -> [(usize, Vec<u8>); 3] {
    const PRESENT_WRITABLE: u64 = 0b11;
    const LARGE: u64 = 1 << 7;
    let table = |level: usize| PAGE_TABLES + level * PAGE;
    [
        (table(0), words(&[table(1) as u64 | PRESENT_WRITABLE])),
        (table(1), words(&[table(2) as u64 | PRESENT_WRITABLE])),
        (table(2), words(&[LARGE | PRESENT_WRITABLE])),
    ]
}

/// A 64-bit interrupt gate to `handler`, which lies below 4 GiB.
fn gate(handler: usize) -> [u64; 2] {
    const PRESENT_INTERRUPT_GATE: u64 = 0x8e00 << 32;
    let handler = handler as u64;
    let low = handler & 0xffff
        | u64::from(CODE_SELECTOR) << 16
        | PRESENT_INTERRUPT_GATE
        | (handler & 0xffff_0000) << 32;
    [low, 0]
}

/// Numbers as they lie in memory.
pub(crate) fn words(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(vcpus: usize) -> Program {
        Program {
            mode: Mode::Ping,
            vcpus,
            work: 7,
            sleep_ns: 9,
            steal: false,
        }
    }

    #[test]
    fn nothing_overlaps_and_everything_fits() {
        let mut spans: Vec<(usize, usize)> = pieces(&program(MOST_VCPUS))
            .iter()
            .map(|(at, bytes)| (*at, at + bytes.len()))
            .collect();
        spans.push((SHARED, SHARED + PAGE));
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{pair:x?}");
        }
        assert!(stack(MOST_VCPUS - 1) <= SIZE);
        // Between parameters and stack, and aligned as KVM wants it.
        assert!(
            steal(1).is_multiple_of(64) && steal(1) > block(1) + 48 && steal(1) + 64 < stack(1)
        );
    }

    #[test]
    fn the_gate_leads_to_the_handler() {
        let [low, high] = gate(0x0001_2345);
        assert_eq!((low, high), (0x0001_8e00_0008_2345, 0));
    }

    #[test]
    fn vcpus_take_turns_in_a_ring() {
        let pieces = pieces(&program(2));
        let second = &pieces.iter().find(|(at, _)| *at == block(1) + 8).unwrap().1;
        assert_eq!(*second, words(&[1, 7, 9, 0, 2]));
    }
}
