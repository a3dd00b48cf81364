// SPDX-License-Identifier: GPL-2.0-only
//! Cpusets that change while corun is at work, and afterwards: real ones, of version 1, where this machine has them.

use super::*;

/// A cpuset (version 1) of this machine's, as long as this lives; `None` where none are available.
struct Cpuset(PathBuf);

impl Cpuset {
    fn of(name: &str, pcpus: &PcpuSet) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup/cpuset");
        let mems = fs::read_to_string(root.join("cpuset.effective_mems")).ok()?;
        let folder = root.join(format!("corun-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let it = Self(folder);
        it.is(pcpus);
        fs::write(it.0.join("cpuset.mems"), mems).unwrap();
        Some(it)
    }

    fn is(&self, pcpus: &PcpuSet) {
        fs::write(self.0.join("cpuset.cpus"), pcpus.to_string()).unwrap();
    }

    fn has(&self, fake: &Fake) {
        fs::write(self.0.join("tasks"), fake.tid.to_string()).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let tasks = fs::read_to_string(self.0.join("tasks")).unwrap_or_default();
        let root = self.0.with_file_name("tasks");
        tasks.lines().for_each(|tid| drop(fs::write(&root, tid)));
        let _ = fs::remove_dir(&self.0);
    }
}

/// The first two pCPUs, and both, if a thread may use more than one.
fn two(fake: &Fake) -> Option<[PcpuSet; 3]> {
    let all = found(fake).0;
    let mut all = all.iter();
    let (first, second) = (all.next()?, all.next()?);
    let set = |pcpus: &[PcpuId]| pcpus.iter().copied().collect();
    Some([set(&[first]), set(&[second]), set(&[first, second])])
}

/// A thread in a cpuset of its own, and what corun knows of it: nothing yet.
struct Bound {
    fake: Fake,
    cpuset: Cpuset,
    state: State,
    first: PcpuSet,
    second: PcpuSet,
    both: PcpuSet,
    folder: tempfile::TempDir,
}

impl Bound {
    /// In a cpuset of what is picked of [`two`]; `None`: there is one pCPU only, or there are no cpusets.
    fn to(name: &str, pick: fn([PcpuSet; 3]) -> PcpuSet) -> Option<Self> {
        let (fake, folder) = (Fake::start("worker"), tempfile::tempdir().unwrap());
        let [first, second, both] = two(&fake)?;
        let cpuset = Cpuset::of(name, &pick([first, second, both]))?;
        cpuset.has(&fake);
        let (state, _) = State::open(&folder.path().join("s"), None).unwrap();
        Some(Self {
            fake,
            cpuset,
            state,
            first,
            second,
            both,
            folder,
        })
    }

    /// What it may use, according to the kernel.
    fn may(&self) -> PcpuSet {
        found(&self.fake).0
    }

    /// Corun ties it to these.
    fn tie(&mut self, pcpus: PcpuSet) {
        let refused = self.state.set(&masks(&self.fake, pcpus)).unwrap();
        assert!(refused.is_empty());
    }

    /// Corun looks thoroughly. Returns what is news of what it may use.
    fn look(&mut self) -> Option<PcpuSet> {
        let now = BTreeMap::from([(key(&self.fake), self.may())]);
        let online = preflight::online().unwrap();
        self.state.heed(now, &online, true).remove(&key(&self.fake))
    }
}

/// The kernel keeps the mask that was asked for, and ties the thread again when its cpuset has the pCPU again.
#[test]
fn a_thread_whose_cpuset_lacks_its_pcpu_is_set_free_all_the_same() {
    for ends in ["asked", "killed"] {
        let Some(mut it) = Bound::to(ends, |[.., both]| both) else {
            return;
        };
        it.tie(it.first);
        it.cpuset.is(&it.second);
        assert_eq!(it.may(), it.second, "not what was asked for");
        let path = it.folder.path().join("s");
        match ends {
            "asked" => assert_eq!(it.state.restore().unwrap(), 1),
            _ => {
                drop(it.state);
                assert!(restore(&path).unwrap()[0].contains("of 1 thread"));
            }
        }
        assert!(!path.exists());
        it.cpuset.is(&it.both);
        assert_eq!(found(&it.fake).0, it.both, "{ends}");
        let this = Process::here(std::process::id());
        assert_eq!(this.thread(it.fake.tid).allowed(), Some(it.both));
    }
}

/// While the daemon works, such a mask counts as set by nobody: the vCPU is placed within what there is.
#[test]
fn a_cpuset_that_lacks_a_thread_s_pcpu_for_a_while_ties_it_no_longer_than_that() {
    let Some(mut it) = Bound::to("while", |[.., both]| both) else {
        return;
    };
    it.tie(it.first);
    assert_eq!(it.look(), None, "as it was");
    it.cpuset.is(&it.second);
    assert_eq!(it.look(), Some(it.second), "what it may use");
    for _ in 0..3 {
        assert_eq!(it.look(), None, "told once");
        it.tie(it.second);
    }
    it.cpuset.is(&it.both);
    assert_eq!(it.may(), it.both, "it was all that it might use");
    assert_eq!(it.look(), Some(it.both));
    it.tie(it.second);
    assert_eq!(it.may(), it.second);
    it.state.restore().unwrap();
    assert_eq!(it.may(), it.both);
}

/// `AllowedCPUs=` of machine.slice: what comes to it later is for its VMs, too.
#[test]
fn a_thread_in_a_cpuset_is_given_back_all_of_it_though_it_is_larger_by_then() {
    let Some(mut it) = Bound::to("larger", |[first, ..]| first) else {
        return;
    };
    let mut wish = masks(&it.fake, it.first);
    wish[0].1.slice = Some(20 * MS);
    it.state.set(&wish).unwrap();
    it.state.restore().unwrap();
    it.cpuset.is(&it.both);
    assert_eq!(it.may(), it.both);
}

/// The same for masks that somebody sets meanwhile, such as by `taskset` to all of the cpuset.
#[test]
fn who_is_set_free_meanwhile_stays_free() {
    let Some(mut it) = Bound::to("free", |[.., both]| both) else {
        return;
    };
    affinity::set(it.fake.tid, &it.first).unwrap();
    let nowhere = "511".parse().unwrap();
    it.state.set(&masks(&it.fake, nowhere)).unwrap(); // refused, and known from now on
    affinity::set(it.fake.tid, &it.both).unwrap();
    for _ in 0..3 {
        it.look();
    }
    it.tie(it.second);
    assert_eq!(it.may(), it.second);
    it.cpuset.is(&it.first);
    it.state.restore().unwrap();
    it.cpuset.is(&it.both);
    assert_eq!(it.may(), it.both);
}
