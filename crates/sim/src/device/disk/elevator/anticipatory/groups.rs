// SPDX-License-Identifier: GPL-2.0-only
//! Which group's turn it is: CFQ's service tree of control groups.
//!
//! A group's virtual disk time advances by the time it was served, divided by its share of the
//! weights on the tree; the least advanced group goes next. A group that had nothing queued gets no
//! credit: it joins behind all others, whatever it had used.

/// A share of 1 (`CFQ_SERVICE_SHIFT`).
const ONE: u64 = 1 << 12;
/// How far behind the last one a group joins (`CFQ_IDLE_DELAY`, a fifth of a second of ticks of
/// 4 ms). Virtual time of one tick served is at least [`ONE`], so this only breaks ties.
const BEHIND: u64 = 50;

/// A group's place.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    weight: u64,
    /// Virtual disk time.
    used: u64,
    /// Its share of the weights on the tree when it joined, in [`ONE`]s.
    share: u64,
    /// A serial number given when it joined, which orders equals; `None`: it is not on the tree.
    joined: Option<u64>,
}

/// All groups of a disk.
#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    least: u64,
    joins: u64,
}

impl Groups {
    pub fn new(weights: impl Iterator<Item = u32>) -> Self {
        let group = |weight: u32| Group {
            weight: u64::from(weight.max(1)),
            ..Group::default()
        };
        Self {
            groups: weights.map(group).collect(),
            least: 0,
            joins: 0,
        }
    }

    /// Groups that are served or wait to be.
    pub fn busy(&self) -> usize {
        self.groups.iter().filter(|g| g.joined.is_some()).count()
    }

    /// The group's share of the disk, applied to `time`.
    pub fn share_of(&self, group: usize, time: u64) -> u64 {
        time * self.groups[group].share / ONE
    }

    /// A group has something queued (`cfq_group_notify_queue_add`).
    pub fn arrive(&mut self, group: usize) {
        if self.groups[group].joined.is_some() {
            return;
        }
        let on_tree = self.groups.iter().filter(|g| g.joined.is_some());
        let last = on_tree.map(|g| g.used).max();
        self.groups[group].used = last.map_or(self.least, |last| last + BEHIND);
        self.join(group);
    }

    /// A group has nothing queued (`cfq_group_notify_queue_del`).
    pub fn leave(&mut self, group: usize) {
        self.groups[group].joined = None;
    }

    /// A group was served for this charge (`cfq_group_served`): it is charged by the share it had,
    /// and gets a new one.
    pub fn served(&mut self, group: usize, charge: u64) {
        let slot = &mut self.groups[group];
        slot.used += charge * ONE * ONE / slot.share.max(1);
        slot.joined = None;
        self.join(group);
    }

    /// The group that goes next (`cfq_get_next_cfqg`).
    pub fn first(&mut self) -> Option<usize> {
        let key = |group: &usize| {
            let slot = &self.groups[*group];
            slot.joined.map(|joined| (slot.used, joined))
        };
        let on_tree = (0..self.groups.len()).filter(|group| key(group).is_some());
        let first = on_tree.min_by_key(key)?;
        self.least = self.least.max(self.groups[first].used);
        Some(first)
    }

    /// Virtual disk time that a group has had.
    #[cfg(test)]
    pub fn used(&self, group: usize) -> u64 {
        self.groups[group].used
    }

    fn join(&mut self, group: usize) {
        self.joins += 1;
        self.groups[group].joined = Some(self.joins);
        let on_tree = self.groups.iter().filter(|g| g.joined.is_some());
        let sum: u64 = on_tree.map(|g| g.weight).sum();
        let slot = &mut self.groups[group];
        slot.share = (ONE * slot.weight / sum).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_used_least_of_its_share_goes_next() {
        let mut groups = Groups::new([100, 300].into_iter());
        groups.arrive(0);
        groups.arrive(1);
        // The first joined alone: its share was all of the disk.
        assert_eq!(
            (groups.share_of(0, 400), groups.share_of(1, 400)),
            (400, 300)
        );
        assert_eq!(groups.first(), Some(0));
        groups.served(0, 25);
        assert_eq!(groups.share_of(0, 400), 100);
        assert_eq!(groups.first(), Some(1));
        // 30 ticks at a share of three quarters count as 40, 25 at a share of one as 25.
        groups.served(1, 30);
        assert_eq!(groups.first(), Some(0));
        groups.served(0, 5);
        assert_eq!(groups.first(), Some(1), "25 + 20 against 40");
    }

    #[test]
    fn a_group_that_was_away_has_no_credit() {
        let mut groups = Groups::new([100, 100].into_iter());
        groups.arrive(0);
        groups.arrive(1);
        groups.leave(1);
        groups.served(0, 1000);
        groups.arrive(1);
        assert_eq!((groups.first(), groups.busy()), (Some(0), 2));
        groups.served(0, 1);
        assert_eq!(groups.first(), Some(1));
    }
}
