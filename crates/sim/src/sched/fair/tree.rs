// SPDX-License-Identifier: GPL-2.0-only
//! Sorted runqueues without allocation: search trees whose nodes are the tasks themselves.
//!
//! A task is on one runqueue at most, so one table of nodes serves all of them; a runqueue is the
//! root of its tree. The trees are treaps: their shape is that of a random binary tree, with
//! priorities that are a fixed function of the task, so that a run can be repeated. Each node also
//! knows the least `rank` below it, which lets [`Forest::find`] skip whole branches (Linux' EEVDF
//! keeps its tree by deadline with the least vruntime of each subtree; `__pick_eevdf()` of 6.8).
//! Insertion, removal and both searches take O(log n).

use corun_model::TaskId;

const NIL: u32 = u32::MAX;

/// A runqueue's tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root(u32);

impl Default for Root {
    fn default() -> Self {
        Self(NIL)
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Sort key; entries of equal key stay in the order they came in.
    key: (i64, u64),
    rank: i64,
    least_rank: i64,
    left: u32,
    right: u32,
    priority: u32,
    /// Is it in a tree at all?
    linked: bool,
}

/// The nodes of all tasks.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    nodes: Vec<Node>,
    order: u64,
}

impl Forest {
    /// A node for one more task.
    pub(crate) fn add(&mut self) {
        let index = self.nodes.len() as u32;
        self.nodes.push(Node {
            key: (0, 0),
            rank: 0,
            least_rank: 0,
            left: NIL,
            right: NIL,
            priority: index
                .wrapping_add(1)
                .wrapping_mul(0x9e37_79b9)
                .rotate_left(15)
                ^ index.wrapping_mul(0x85eb_ca6b),
            linked: false,
        });
    }

    /// Puts `task` behind everything with the same `key`.
    pub(crate) fn insert(&mut self, root: &mut Root, task: TaskId, key: i64, rank: i64) {
        debug_assert!(!self.nodes[task.index()].linked, "{task} is queued twice");
        self.order += 1;
        let node = &mut self.nodes[task.index()];
        node.key = (key, self.order);
        node.rank = rank;
        node.least_rank = rank;
        (node.left, node.right, node.linked) = (NIL, NIL, true);
        let key = node.key;
        let (before, after) = self.split(root.0, key);
        let before = self.merge(before, task.0);
        root.0 = self.merge(before, after);
    }

    /// Takes `task` out.
    pub(crate) fn remove(&mut self, root: &mut Root, task: TaskId) {
        debug_assert!(self.nodes[task.index()].linked, "{task} is not queued");
        root.0 = self.without(root.0, task.0);
        self.nodes[task.index()].linked = false;
    }

    /// The task with the least key.
    pub(crate) fn first(&self, root: Root) -> Option<TaskId> {
        let mut at = root.0;
        let mut found = None;
        while at != NIL {
            found = Some(TaskId(at));
            at = self.nodes[at as usize].left;
        }
        found
    }

    /// The task with the least key but one.
    pub(crate) fn second(&self, root: Root) -> Option<TaskId> {
        let mut at = root.0;
        let mut parent = None;
        while at != NIL {
            let node = self.nodes[at as usize];
            if node.left == NIL {
                return self.first(Root(node.right)).or(parent);
            }
            parent = Some(TaskId(at));
            at = node.left;
        }
        None
    }

    /// The task with the least key among those whose rank is `fit`. If `fit` holds for a rank it
    /// must hold for every lower one.
    pub(crate) fn find(&self, root: Root, fit: impl Fn(i64) -> bool) -> Option<TaskId> {
        let mut at = root.0;
        while at != NIL {
            let node = &self.nodes[at as usize];
            let left_fits = self
                .nodes
                .get(node.left as usize)
                .is_some_and(|left| fit(left.least_rank));
            if left_fits {
                at = node.left;
            } else if fit(node.rank) {
                return Some(TaskId(at));
            } else {
                at = node.right;
            }
        }
        None
    }

    /// Number of tasks in a tree; for checks.
    pub(crate) fn count(&self, root: Root) -> usize {
        match self.nodes.get(root.0 as usize) {
            Some(node) => 1 + self.count(Root(node.left)) + self.count(Root(node.right)),
            None => 0,
        }
    }

    fn refresh(&mut self, at: u32) {
        let node = self.nodes[at as usize];
        let below = |child: u32| {
            self.nodes
                .get(child as usize)
                .map_or(i64::MAX, |c| c.least_rank)
        };
        let least = node.rank.min(below(node.left)).min(below(node.right));
        self.nodes[at as usize].least_rank = least;
    }

    /// The tree at `at` as two: keys below `key`, and the others.
    fn split(&mut self, at: u32, key: (i64, u64)) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let node = self.nodes[at as usize];
        if node.key < key {
            let (low, high) = self.split(node.right, key);
            self.nodes[at as usize].right = low;
            self.refresh(at);
            (at, high)
        } else {
            let (low, high) = self.split(node.left, key);
            self.nodes[at as usize].left = high;
            self.refresh(at);
            (low, at)
        }
    }

    /// One tree of two, all keys of `low` being below those of `high`.
    fn merge(&mut self, low: u32, high: u32) -> u32 {
        if low == NIL || high == NIL {
            return if low == NIL { high } else { low };
        }
        let top = if self.nodes[low as usize].priority >= self.nodes[high as usize].priority {
            self.nodes[low as usize].right = self.merge(self.nodes[low as usize].right, high);
            low
        } else {
            self.nodes[high as usize].left = self.merge(low, self.nodes[high as usize].left);
            high
        };
        self.refresh(top);
        top
    }

    fn without(&mut self, at: u32, task: u32) -> u32 {
        if at == NIL {
            return NIL;
        }
        let node = self.nodes[at as usize];
        if at == task {
            return self.merge(node.left, node.right);
        }
        if self.nodes[task as usize].key < node.key {
            let left = self.without(node.left, task);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.without(node.right, task);
            self.nodes[at as usize].right = right;
        }
        self.refresh(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the tree with a sorted list.
        #[test]
        fn like_a_sorted_list(steps in prop::collection::vec((0u32..24, -20i64..20, -20i64..20), 1..200)) {
            let mut forest = Forest::default();
            (0..24).for_each(|_| forest.add());
            let mut root = Root::default();
            let mut list: Vec<(i64, u64, i64, u32)> = Vec::new();
            for (order, (task, key, rank)) in steps.into_iter().enumerate() {
                match list.iter().position(|entry| entry.3 == task) {
                    Some(at) => {
                        list.remove(at);
                        forest.remove(&mut root, TaskId(task));
                    }
                    None => {
                        list.push((key, order as u64, rank, task));
                        list.sort_unstable();
                        forest.insert(&mut root, TaskId(task), key, rank);
                    }
                }
                prop_assert_eq!(forest.count(root), list.len());
                prop_assert_eq!(forest.first(root), list.first().map(|e| TaskId(e.3)));
                prop_assert_eq!(forest.second(root), list.get(1).map(|e| TaskId(e.3)));
                for limit in [-21, -5, 0, 7, 20] {
                    let expected = list.iter().find(|e| e.2 <= limit).map(|e| TaskId(e.3));
                    prop_assert_eq!(forest.find(root, |r| r <= limit), expected);
                }
            }
        }
    }
}
