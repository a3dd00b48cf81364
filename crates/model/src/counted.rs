// SPDX-License-Identifier: GPL-2.0-only
//! Numbers of things in sentences.

use std::fmt::Display;

/// A number of things, of which one is called `thing`: `1 VM`, `2 VMs`.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    match number == N::from(1) {
        true => format!("1 {thing}"),
        false => format!("{number} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let told = [
            counted(0_usize, "VM"),
            counted(1_u64, "VM"),
            counted(2_u32, "VM"),
        ];
        assert_eq!(told, ["0 VMs", "1 VM", "2 VMs"]);
    }
}
