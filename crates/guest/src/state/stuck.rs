// SPDX-License-Identifier: GPL-2.0-only
//! Threads that cannot be given back what they had, as shown to people.

use corun_model::PcpuSet;
use corun_system::procfs::ThreadKey;
use std::fmt::{self, Display, Formatter};

/// Of more than these only the number is shown.
const MOST: usize = 5;

/// A thread that cannot be given back what it had: it stays written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub(super) key: ThreadKey,
    /// The vCPUs that it was allowed.
    pub(super) allowed: PcpuSet,
    /// What the kernel said.
    pub(super) why: String,
}

impl Display for Stuck {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ThreadKey { tgid, tid, .. } = self.key;
        let (allowed, why) = (&self.allowed, &self.why);
        write!(
            f,
            "thread {tid} of process {tgid} cannot be given back vCPUs {allowed}: {why}"
        )
    }
}

/// A sentence for each, as far as they are few.
pub(crate) fn in_words<'a>(stuck: impl ExactSizeIterator<Item = &'a Stuck>) -> Vec<String> {
    let more = stuck.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("and {more} more"));
    stuck.take(MOST).map(Stuck::to_string).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named_and_the_others_counted() {
        let stuck = |tid| Stuck {
            key: ThreadKey {
                tgid: 7,
                tid,
                start: 1,
            },
            allowed: PcpuSet::first(2),
            why: "no".to_string(),
        };
        let all: Vec<Stuck> = (10..17).map(stuck).collect();
        let told = in_words(all.iter());
        assert_eq!(
            told[0],
            "thread 10 of process 7 cannot be given back vCPUs 0-1: no"
        );
        assert_eq!((told.len(), told[5].as_str()), (6, "and 2 more"));
        assert_eq!(in_words(all[..5].iter()).len(), 5);
    }
}
