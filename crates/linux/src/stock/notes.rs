// SPDX-License-Identifier: GPL-2.0-only
//! What has been printed already: each note once, as long as it holds.

use corun_system::procfs::ThreadKey;
use std::collections::BTreeSet;
use std::io;

/// No more than there are threads and notes at the moment, however long one runs.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    policy: BTreeSet<String>,
    threads: BTreeSet<ThreadKey>,
}

impl Notes {
    /// What is new among the policy's notes and the threads that could not be set. `there`: the threads that exist.
    pub(crate) fn news(
        &mut self,
        policy: Vec<String>,
        failed: &[(ThreadKey, io::Error)],
        there: impl Iterator<Item = ThreadKey>,
    ) -> Vec<String> {
        let known = std::mem::take(&mut self.policy);
        let mut news: Vec<String> = policy
            .iter()
            .filter(|it| !known.contains(*it))
            .cloned()
            .collect();
        self.policy = policy.into_iter().collect();
        if !self.threads.is_empty() {
            let there: BTreeSet<ThreadKey> = there.collect();
            self.threads.retain(|key| there.contains(key));
        }
        for (key, error) in failed {
            if self.threads.insert(*key) {
                let tid = key.tid;
                news.push(format!("thread {tid} could not be set as wanted: {error}"));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tid: u32) -> ThreadKey {
        ThreadKey {
            tgid: 1,
            tid,
            start: 0,
        }
    }

    fn failed(tid: u32) -> [(ThreadKey, io::Error); 1] {
        [(key(tid), io::Error::from_raw_os_error(libc::EINVAL))]
    }

    #[test]
    fn people_are_told_once_as_long_as_it_is_so() {
        let mut notes = Notes::default();
        let mut news = |said: &[&str], tid| {
            let said = said.iter().map(ToString::to_string).collect();
            notes
                .news(said, &failed(tid), [key(1), key(tid)].into_iter())
                .len()
        };
        assert_eq!(news(&["a", "b"], 1), 3);
        assert_eq!(news(&["a", "b"], 1), 0);
        assert_eq!(news(&["b"], 2), 1);
        assert_eq!(news(&["a", "b"], 1), 1, "so again");
    }

    #[test]
    fn what_was_told_of_threads_that_have_gone_is_forgotten() {
        let mut notes = Notes::default();
        for tid in 0..1000 {
            let news = notes.news(Vec::new(), &failed(tid), [key(tid)].into_iter());
            assert_eq!(news.len(), 1);
        }
        assert_eq!(notes.threads.len(), 1);
    }
}
