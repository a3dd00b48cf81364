// SPDX-License-Identifier: GPL-2.0-only
//! What is known about tasks, by their ids.

use corun_model::TaskId;

/// In the order of ids: mostly values come in that order, so sorting takes one pass; a tree of values as large as
/// counters took a third of a look's time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ById<T>(Vec<(TaskId, T)>);

impl<T> ById<T> {
    /// If a task occurs several times, the last value counts.
    pub(crate) fn of(mut all: Vec<(TaskId, T)>) -> Self {
        all.sort_by_key(|(id, _)| *id);
        all.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                std::mem::swap(next, kept);
            }
            same
        });
        Self(all)
    }

    pub(crate) fn get(&self, task: TaskId) -> Option<&T> {
        self.after_the_first(task).or_else(|| self.searched(task))
    }

    /// What is at the task's place, provided that no id is missing between the first one and it: ids are given in
    /// sequence.
    fn after_the_first(&self, task: TaskId) -> Option<&T> {
        let (first, _) = self.0.first()?;
        let at = task.0.checked_sub(first.0)? as usize;
        let there = self.0.get(at).filter(|(id, _)| *id == task);
        there.map(|(_, known)| known)
    }

    fn searched(&self, task: TaskId) -> Option<&T> {
        let at = self.0.binary_search_by_key(&task, |(id, _)| *id);
        self.0.get(at.ok()?).map(|(_, known)| known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_last_of_a_task_is_found_wherever_it_stands() {
        let known = ById::of([4, 2, 3, 2, 9].into_iter().map(TaskId).zip(0..).collect());
        let found = [1, 2, 3, 4, 5, 9].map(|task| known.get(TaskId(task)).copied());
        assert_eq!(found, [None, Some(3), Some(2), Some(0), None, Some(4)]);
        assert_eq!(ById::<u32>::default().get(TaskId(0)), None);
    }
}
