// SPDX-License-Identifier: GPL-2.0-only
//! The programs' machine code, assembled from `programs.s`.

use super::Job;

std::arch::global_asm!(include_str!("programs.s"));

unsafe extern "C" {
    static corun_native_begin: u8;
    static corun_native_end: u8;
    static corun_native_measure: u8;
    static corun_native_list: u8;
    static corun_native_pages: u8;
    static corun_native_spin: u8;
}

/// The machine code of all programs, to be placed anywhere.
pub(super) fn code() -> &'static [u8] {
    let length = offset_of(&raw const corun_native_end);
    // SAFETY: programs.s defines `begin` and `end` in this order in one read-only section, so the
    // bytes between them are initialised, never change and live as long as the program.
    unsafe { std::slice::from_raw_parts(&raw const corun_native_begin, length) }
}

/// Where in [`code`] a program begins.
pub(super) fn entry(job: &Job) -> usize {
    offset_of(match job {
        Job::Measure { .. } => &raw const corun_native_measure,
        Job::List { .. } => &raw const corun_native_list,
        Job::Pages { .. } => &raw const corun_native_pages,
        Job::Spin { .. } => &raw const corun_native_spin,
    })
}

fn offset_of(symbol: *const u8) -> usize {
    symbol.addr() - (&raw const corun_native_begin).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_assembled_as_expected() {
        let code = code();
        let list = entry(&Job::List { next: vec![0] });
        // `mov r8, [r8]; dec rcx; jnz` back to it: a hop.
        let hop = [0x4d, 0x8b, 0x00, 0x48, 0xff, 0xc9, 0x75, 0xf8];
        assert!(code[list..].windows(hop.len()).any(|bytes| bytes == hop));
        // `mov [0x200000], eax; jmp` back to it: the end.
        let end = [0x89, 0x04, 0x25, 0, 0, 0x20, 0, 0xeb, 0xf7];
        assert!(code.ends_with(&end), "{:x?}", &code[code.len() - 12..]);
        // `pause`, which processors recognise.
        let spin = entry(&Job::Spin { rounds: vec![1] });
        assert!(code[spin..].windows(2).any(|bytes| bytes == [0xf3, 0x90]));
    }
}
