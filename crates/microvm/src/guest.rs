// SPDX-License-Identifier: GPL-2.0-only
//! The guests' programs, assembled from `guest.s`.

use std::fmt;
use std::str::FromStr;

std::arch::global_asm!(include_str!("guest.s"));

unsafe extern "C" {
    static corun_guest_begin: u8;
    static corun_guest_end: u8;
    static corun_guest_interrupt: u8;
    static corun_guest_spin: u8;
    static corun_guest_lock: u8;
    static corun_guest_yield: u8;
    static corun_guest_timer: u8;
    static corun_guest_ping: u8;
    static corun_guest_barrier: u8;
    static corun_guest_pio: u8;
    static corun_guest_call: u8;
    static corun_guest_answer: u8;
    static corun_guest_faults: u8;
}

/// The vector of every interrupt in the guest: the timer's and the other vCPUs'.
pub const VECTOR: usize = 0x40;
/// Except for calls, which have Linux' own (`CALL_FUNCTION_VECTOR`).
pub const CALL_VECTOR: usize = 0xfc;

/// What a guest does all day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each vCPU counts for ever.
    Spin,
    /// The vCPUs share one spin lock.
    Lock,
    /// The same, and a vCPU that spins for long asks KVM to let the next vCPU go first.
    Yield,
    /// Each vCPU computes briefly and halts until its timer wakes it.
    Timer,
    /// One vCPU at a time computes briefly, wakes the next one by IPI and halts.
    Ping,
    /// Each vCPU computes and halts until all have; the last one wakes the others by IPI.
    Barrier,
    /// Each vCPU computes, then calls all others by IPI and spins until they have answered.
    Call,
    /// Each vCPU leaves the guest all the time, by port writes.
    Pio,
}

/// All modes, with the names they have on the command line.
const MODES: [(&str, Mode); 8] = [
    ("spin", Mode::Spin),
    ("lock", Mode::Lock),
    ("yield", Mode::Yield),
    ("timer", Mode::Timer),
    ("ping", Mode::Ping),
    ("barrier", Mode::Barrier),
    ("call", Mode::Call),
    ("pio", Mode::Pio),
];

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = MODES
            .iter()
            .find(|(_, mode)| mode == self)
            .map_or("?", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        MODES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, mode)| *mode)
            .ok_or_else(|| {
                let names: Vec<_> = MODES.iter().map(|(name, _)| *name).collect();
                format!(
                    "unknown mode `{text}`, expected one of: {}",
                    names.join(", ")
                )
            })
    }
}

/// The machine code of all programs, to be placed anywhere.
pub fn code() -> &'static [u8] {
    let length = offset_of(&raw const corun_guest_end);
    // SAFETY: guest.s defines `begin` and `end` in this order in one read-only section, so the
    // bytes between them are initialised, never change and live as long as the program.
    unsafe { std::slice::from_raw_parts(&raw const corun_guest_begin, length) }
}

/// Where in [`code`] the program of `mode` begins.
pub fn entry(mode: Mode) -> usize {
    offset_of(match mode {
        Mode::Spin => &raw const corun_guest_spin,
        Mode::Lock => &raw const corun_guest_lock,
        Mode::Yield => &raw const corun_guest_yield,
        Mode::Timer => &raw const corun_guest_timer,
        Mode::Ping => &raw const corun_guest_ping,
        Mode::Barrier => &raw const corun_guest_barrier,
        Mode::Call => &raw const corun_guest_call,
        Mode::Pio => &raw const corun_guest_pio,
    })
}

/// Where in [`code`] the interrupt handler begins.
pub fn interrupt_handler() -> usize {
    offset_of(&raw const corun_guest_interrupt)
}

/// Where in [`code`] the handler of calls begins.
pub fn call_handler() -> usize {
    offset_of(&raw const corun_guest_answer)
}

/// The exceptions of the processor.
pub const EXCEPTIONS: usize = 32;
/// The port that a guest writes to when an exception has occurred, with what happened on its stack.
pub const FAULT_PORT: u16 = 0xf5;
/// Words that lie on the stack then: exception, error code, then what the processor pushed, from the address of the
/// instruction on.
pub const FAULT_WORDS: usize = 7;

/// Where in [`code`] the entry for an exception begins.
pub fn fault_entry(exception: usize) -> usize {
    offset_of(&raw const corun_guest_faults) + 16 * exception
}

fn offset_of(symbol: *const u8) -> usize {
    symbol.addr() - (&raw const corun_guest_begin).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_names_round_trip() {
        for (name, mode) in MODES {
            assert_eq!(name.parse(), Ok(mode));
            assert_eq!(mode.to_string(), name);
        }
    }

    #[test]
    fn an_unknown_mode_lists_the_known_ones() {
        let error = "sleep".parse::<Mode>().unwrap_err();
        assert!(
            error.contains("`sleep`")
                && error.contains("spin, lock, yield, timer, ping, barrier, call, pio")
        );
    }

    /// What a page fault (14, with an error code) and a division (0, without) leave on the stack.
    #[test]
    fn exceptions_leave_their_numbers_on_the_stack() {
        let at = |exception| &code()[fault_entry(exception)..];
        assert_eq!(at(14)[..2], [0x6a, 14]);
        assert_eq!(at(0)[..4], [0x6a, 0, 0x6a, 0]);
        assert_eq!(at(3)[..4], [0x6a, 0, 0x6a, 3]);
    }

    /// The bytes that the processor must see: `inc qword ptr [rsi]; jmp` back to it.
    #[test]
    fn the_spin_program_is_assembled_as_expected() {
        let start = entry(Mode::Spin);
        assert_eq!(code()[start..start + 5], [0x48, 0xff, 0x06, 0xeb, 0xfb]);
    }

    #[test]
    fn every_program_lies_within_the_code_and_the_handler_returns() {
        let code = code();
        for (_, mode) in MODES {
            assert!(entry(mode) < fault_entry(0));
        }
        assert!(fault_entry(EXCEPTIONS - 1) < interrupt_handler());
        assert!(interrupt_handler() < code.len());
        assert!(code.ends_with(&[0x48, 0xcf]), "iretq");
    }
}
