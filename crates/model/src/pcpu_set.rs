// SPDX-License-Identifier: GPL-2.0-only
//! A set of pCPUs: affinity masks and cpusets, written as the kernel does (`0-3,8`).

use crate::{PcpuId, Topology};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

const WORDS: usize = Topology::MAX_PCPUS as usize / 64;

/// A set of pCPUs with numbers below [`Topology::MAX_PCPUS`].
///
/// Laid out as the dispatcher's `allowed` mask: bit `n % 64` of word `n / 64` stands for pCPU `n`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[repr(transparent)]
pub struct PcpuSet([u64; WORDS]);

impl PcpuSet {
    /// pCPUs 0 to `count` - 1.
    pub fn first(count: u32) -> Self {
        let word = |index: usize| match count.saturating_sub(index as u32 * 64) {
            0 => 0,
            bits @ 1..=63 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        Self(std::array::from_fn(word))
    }

    /// The set of the bits in a mask of this layout, such as `sched_getaffinity(2)` fills.
    pub fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// The mask.
    pub fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Puts a pCPU in; a number out of range is ignored.
    pub fn insert(&mut self, cpu: PcpuId) {
        if let Some(word) = self.0.get_mut(cpu.index() / 64) {
            *word |= 1 << (cpu.0 % 64);
        }
    }

    /// Takes a pCPU out, if it is in.
    pub fn remove(&mut self, cpu: PcpuId) {
        if let Some(word) = self.0.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.0 % 64));
        }
    }

    /// The first pCPU of the set in a range of numbers.
    pub fn first_in(&self, range: Range<u32>) -> Option<PcpuId> {
        let first = range.start as usize / 64;
        let from_here = u64::MAX << (range.start % 64);
        let words = self.0.iter().enumerate().skip(first);
        let found = words.map(|(index, word)| match index == first {
            true => (index, word & from_here),
            false => (index, *word),
        });
        let (index, word) = found.into_iter().find(|(_, word)| *word != 0)?;
        let cpu = index as u32 * 64 + word.trailing_zeros();
        (cpu < range.end).then_some(PcpuId(cpu))
    }

    /// Is this pCPU in the set?
    #[inline]
    pub fn contains(&self, cpu: PcpuId) -> bool {
        self.0
            .get(cpu.index() / 64)
            .is_some_and(|word| word >> (cpu.0 % 64) & 1 == 1)
    }

    /// Number of pCPUs in the set.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Are there two or more in it?
    pub fn has_several(&self) -> bool {
        self.iter().nth(1).is_some()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The pCPUs that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, other) in both.0.iter_mut().zip(other.0) {
            *word &= other;
        }
        both
    }

    /// The pCPUs that are in either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut all = *self;
        for (word, other) in all.0.iter_mut().zip(other.0) {
            *word |= other;
        }
        all
    }

    /// All pCPUs of the set in order.
    pub fn iter(&self) -> impl Iterator<Item = PcpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    PcpuId(index as u32 * 64 + bit)
                })
            })
        })
    }
}

impl FromIterator<PcpuId> for PcpuSet {
    fn from_iter<I: IntoIterator<Item = PcpuId>>(cpus: I) -> Self {
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl FromStr for PcpuSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |what: &str| {
            format!(
                "{what:?} is not a list of pCPUs: expected numbers and ranges below {} such as 0-3,8",
                Topology::MAX_PCPUS
            )
        };
        let number = |part: &str| {
            let value = part.trim().parse::<u32>().ok();
            value
                .filter(|&n| n < Topology::MAX_PCPUS)
                .ok_or_else(|| bad(part))
        };
        let mut set = Self::default();
        for part in text.split(',') {
            let (low, high) = match part.split_once('-') {
                Some((low, high)) => (number(low)?, number(high)?),
                None => (number(part)?, number(part)?),
            };
            if low > high {
                return Err(bad(part));
            }
            (low..=high).for_each(|n| set.insert(PcpuId(n)));
        }
        Ok(set)
    }
}

impl fmt::Display for PcpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().map(|cpu| cpu.0).peekable();
        let mut separator = "";
        while let Some(low) = cpus.next() {
            let mut high = low;
            while cpus.next_if_eq(&(high + 1)).is_some() {
                high += 1;
            }
            match low == high {
                true => write!(f, "{separator}{low}")?,
                false => write!(f, "{separator}{low}-{high}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for PcpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl TryFrom<String> for PcpuSet {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PcpuSet> for String {
    fn from(set: PcpuSet) -> Self {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_of_a_range_is_found_and_goes_when_removed() {
        let mut set: PcpuSet = "3,64-65,511".parse().unwrap();
        assert_eq!(set.first_in(0..512), Some(PcpuId(3)));
        assert_eq!(set.first_in(4..64), None);
        assert_eq!(set.first_in(4..65), Some(PcpuId(64)));
        assert_eq!(set.first_in(66..512), Some(PcpuId(511)));
        assert_eq!(set.first_in(512..u32::MAX), None);
        set.remove(PcpuId(64));
        set.remove(PcpuId(5000));
        assert_eq!(set.to_string(), "3,65,511");
    }

    #[test]
    fn a_mask_has_a_bit_for_each() {
        let set: PcpuSet = "0,2,64-65".parse().unwrap();
        assert_eq!(set.words()[..3], [0b101, 0b11, 0]);
        assert_eq!(PcpuSet::from_words(*set.words()), set);
    }

    #[test]
    fn lists_round_trip() {
        let set: PcpuSet = "0-3,8,64-65".parse().unwrap();
        assert_eq!(set.len(), 7);
        assert_eq!(set.to_string(), "0-3,8,64-65");
        assert!(set.contains(PcpuId(64)) && !set.contains(PcpuId(4)));
        assert_eq!(set.and(&PcpuSet::first(4)), PcpuSet::first(4));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "a", "3-1", "512", "1,,2", "-1"] {
            assert!(text.parse::<PcpuSet>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_first_are_those_below(count in 0u32..600) {
            let set: PcpuSet = (0..count).map(PcpuId).collect();
            prop_assert_eq!(PcpuSet::first(count), set);
            prop_assert_eq!((set.is_empty(), set.has_several()), (count == 0, count > 1));
        }

        #[test]
        fn any_set_survives_writing_and_reading(cpus in prop::collection::btree_set(0u32..512, 1..40)) {
            let set: PcpuSet = cpus.iter().copied().map(PcpuId).collect();
            prop_assert_eq!(set.to_string().parse::<PcpuSet>(), Ok(set));
            prop_assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
        }
    }
}
