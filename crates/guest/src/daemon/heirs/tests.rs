// SPDX-License-Identifier: GPL-2.0-only
//! Real processes that a daemon has "moved"; it is asked to look, and no other part of it works.

use super::*;
use crate::detector::Sighting;
use crate::guest::{Cause, Source};
use crate::testing::{Sleeper, daemon_in, key_of, was_free};
use corun_model::{Nanos, PcpuId, PcpuSet};
use std::io::{BufRead, BufReader};
use std::sync::atomic::AtomicBool;

/// A daemon with a moved shell, which creates what a test wants.
struct Scene {
    daemon: Daemon,
    shell: Sleeper,
    _folder: tempfile::TempDir,
}

impl Scene {
    /// `None`: the daemon may not work here, or there are no two vCPUs to move between.
    fn new(source: Source, script: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let vcpus = affinity::get(0).unwrap();
        let mut daemon = daemon_in(folder.path(), source)?;
        daemon.vcpus = vcpus;
        if vcpus != PcpuSet::first(2) {
            return None;
        }
        // The script creates them only after the shell has been moved.
        let shell = Sleeper::of(&format!("sleep 0.3; {script}"));
        let key = shell.key();
        let mut migrater = lock(&daemon.migrater);
        migrater.add(key, was_free(vcpus), 0, clock::now()).unwrap();
        drop(migrater);
        let mut scene = Self {
            daemon,
            shell,
            _folder: folder,
        };
        scene.move_to(1);
        Some(scene)
    }

    fn move_to(&mut self, vcpu: u32) {
        let (key, mut migrater) = (self.shell.key(), lock(&self.daemon.migrater));
        migrater.pins.ordered(&key, vcpu, clock::now());
        affinity::pin(key.tid, PcpuId(vcpu)).unwrap();
        migrater.pins.moved(&key, clock::now());
    }

    /// The process number that the script has written.
    fn told(&mut self) -> u32 {
        let mut line = String::new();
        let output = self.shell.0.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, output)
            .read_line(&mut line)
            .unwrap();
        line.trim().parse().unwrap()
    }

    fn give_back(&mut self) {
        let key = self.shell.key();
        affinity::free(key.tid).unwrap();
        let mut migrater = lock(&self.daemon.migrater);
        migrater.remove(&key);
        migrater.pins.given_back(&key, clock::now());
    }
}

fn is_free(tid: u32) -> bool {
    affinity::get(tid).unwrap() == PcpuSet::first(2)
}

fn kill(tid: u32) {
    // SAFETY: a process that this test started.
    unsafe { libc::kill(libc::pid_t::try_from(tid).unwrap(), libc::SIGKILL) };
}

#[test]
fn a_thread_is_born_between_its_creation_and_now() {
    let before = clock::now();
    let task = Sleeper::new();
    let born = born(task.key().start);
    assert!(born.start <= before && before < born.end, "{born:?}");
    assert!(born.end <= clock::now() + 2 * TICK);
}

#[test]
fn a_time_without_end_is_none() {
    let Some(mut scene) = Scene::new(Source::Proc, "sleep 1") else {
        return;
    };
    scene.daemon.options.run_for = Some(Nanos::MAX);
    let ended = scene.daemon.serve(&AtomicBool::new(true));
    assert!(matches!(ended, Ok(Cause::Asked)));
}

#[test]
fn grandchildren_are_freed() {
    let script = "sh -c 'sleep 50 & echo $!; wait' & wait";
    let Some(mut scene) = Scene::new(Source::Proc, script) else {
        return;
    };
    let grandchild = scene.told();
    assert!(!is_free(grandchild), "inherited");
    scene.daemon.free_heirs().unwrap();
    assert!(is_free(grandchild));
    assert_eq!(scene.daemon.heirs.freed, 2);
    kill(grandchild);
}

#[test]
fn heirs_of_one_that_was_given_back_since_are_freed() {
    let Some(mut scene) = Scene::new(Source::Proc, "sleep 50 & echo $!; wait") else {
        return;
    };
    let child = scene.told();
    scene.give_back();
    scene.daemon.free_heirs().unwrap();
    assert!(is_free(child));
    // The second look forgets threads that are not moved any more.
    scene.daemon.heirs.looked += 3 * SEC;
    scene.daemon.free_heirs().unwrap();
    assert!(!lock(&scene.daemon.migrater).pins.has(&scene.shell.key()));
    kill(child);
}

#[test]
fn a_thread_tied_to_another_vcpu_than_the_moved_one_stays_there() {
    let Some(mut scene) = Scene::new(Source::Proc, "taskset -c 0 sleep 50 & echo $!; wait") else {
        return;
    };
    let child = scene.told();
    while affinity::get(child).unwrap() != affinity::only(0) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    scene.daemon.free_heirs().unwrap();
    // Not even if the moved thread goes there.
    scene.move_to(0);
    scene.daemon.free_heirs().unwrap();
    assert_eq!(affinity::get(child).unwrap(), affinity::only(0));
    assert_eq!(scene.daemon.heirs.freed, 0);
    kill(child);
}

#[test]
fn an_heir_is_freed_once_and_what_is_set_then_stays() {
    let Some(mut scene) = Scene::new(Source::Proc, "sleep 50 & echo $!; wait") else {
        return;
    };
    let child = scene.told();
    scene.daemon.free_heirs().unwrap();
    assert!(is_free(child));
    affinity::pin(child, PcpuId(1)).unwrap();
    scene.daemon.free_heirs().unwrap();
    scene
        .daemon
        .judge_candidate(&key_of(child, child), scene.shell.id());
    assert_eq!(affinity::get(child).unwrap(), affinity::only(1));
    kill(child);
}

/// The first process that a moved thread creates ends at once, so that nothing leads to the second.
#[test]
fn bpf_tells_of_grandchildren_whose_parents_have_gone() {
    let script = "sh -c 'sleep 50 & echo $!'; sleep 50";
    // Without BPF nothing can be seen.
    let Some(mut scene) = Scene::new(Source::Bpf, script) else {
        return;
    };
    let grandchild = scene.told();
    let until = clock::now() + 5 * SEC;
    let mut seen = Vec::new();
    while clock::now() < until && !is_free(grandchild) {
        for sighting in scene.daemon.lookout.wait(50 * MS) {
            if let Sighting::Heir { .. } = sighting {
                seen.push(sighting);
                scene.daemon.seen(sighting).unwrap();
            }
        }
    }
    assert!(is_free(grandchild), "{seen:?}");
    let root = scene.shell.id();
    let (tid, vcpu) = (grandchild, 1);
    assert!(
        seen.contains(&Sighting::Heir { tid, root, vcpu }),
        "{seen:?}"
    );
    kill(grandchild);
}
