// SPDX-License-Identifier: GPL-2.0-only
//! What a policy would do on this host, on any kernel, without doing it.
//!
//! The policy sees run, ready and wait times of each vCPU as the kernel counts them, and affinities
//! and weights. It does not see what only the dispatcher knows (how turns went, which task woke
//! which), nor hardware counters: it decides as on a host that hides these signals, and its notes
//! say so.

use crate::host::HostError;
use crate::output::Output;
use crate::outside::{Numbers, task_seen};
use crate::vcpu_own::Threads;
use crate::watch::{Row, Sample, Sampler, rows};
use crate::{cgroup, cookies, inventory, machine, preflight, smt};
use corun_model::time::{MS, seconds};
use corun_model::{HostSeen, Nanos, Plan, Signals, Snapshot, VmSeen};
use corun_policies::weighing::Weighing;
use corun_policies::{Policy, PolicyInfo, Settings};
use corun_system::affinity;
use corun_system::{clock, signals};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What to do.
pub struct ObserveOptions {
    /// The policy.
    pub policy: &'static PolicyInfo,
    /// What it is made of.
    pub settings: Settings,
    /// How often to say what it would do.
    pub interval: Nanos,
    /// How long; `None`: until SIGINT or SIGTERM.
    pub run_for: Option<Nanos>,
    /// Lines of JSON instead of text.
    pub json: bool,
    /// Where to.
    pub out: Box<dyn Write + Send>,
    /// Where reports that nobody read in time are noted.
    pub notes: fn(&str),
}

/// An interval, and what the policy would have hold after it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time_s: f64,
    policy: &'a str,
    vms: Vec<Row>,
    /// Names of the plan's VMs and tasks: "web" and "web/0".
    names: BTreeMap<String, String>,
    plan: &'a Plan,
    notes: &'a [String],
}

/// Looks until told to stop.
///
/// # Errors
/// [`HostError`]; nothing was changed, whatever it is.
pub fn run(options: ObserveOptions) -> Result<(), HostError> {
    let asked = signals::watch().map_err(HostError::Signals)?;
    let online = preflight::online().ok_or(HostError::Online)?;
    let mut observer = Observer {
        policy: (options.policy.make)(&options.settings),
        host: machine::seen(&online)?,
        numbers: Numbers::default(),
        began: clock::now(),
        plan: Plan::default(),
        weighing: Weighing::default(),
        unknown_cookies: 0,
    };
    let mut output = Output::new(options.out, options.notes);
    let sampler = Sampler::new(None);
    let began = observer.began;
    let end = options.run_for.map(|time| began.saturating_add(time));
    let mut then = sampler.sample();
    let mut due = began.saturating_add(options.interval);
    let mut shown = then.clone();
    while !asked.load(Ordering::Relaxed) && end.is_none_or(|end| clock::now() < end) {
        std::thread::sleep(Duration::from_nanos(observer.policy.period().max(10 * MS)));
        let now = sampler.sample();
        observer.decide(&then, &now);
        if now.at >= due {
            due = now.at.saturating_add(options.interval);
            let told = observer.tell(&shown, &now, options.policy, options.json);
            output.put(told?).map_err(HostError::Output)?;
            shown = now.clone();
        }
        observer.numbers.looked();
        then = now;
    }
    output.finish().map_err(HostError::Output)
}

struct Observer {
    policy: Box<dyn Policy>,
    host: HostSeen,
    numbers: Numbers,
    began: Nanos,
    plan: Plan,
    /// What VMs weigh with the cgroups around theirs.
    weighing: Weighing,
    /// VMs whose core-scheduling cookies cannot be read.
    unknown_cookies: usize,
}

impl Observer {
    fn decide(&mut self, then: &Sample, now: &Sample) {
        let mut vms = Vec::new();
        let mut places = BTreeMap::new();
        let mut read = cgroup::Read::new();
        let mount = cgroup::mount(Path::new("/"));
        self.unknown_cookies = 0;
        for vm in &now.vms {
            let old = then
                .vms
                .iter()
                .find(|old| old.machine.tgid == vm.machine.tgid);
            let elapsed = old.map_or(0, |old| vm.at.saturating_sub(old.at));
            let mut vcpus = Vec::new();
            let owns = Threads::of(vm.machine.tgid, mount.as_deref());
            for (_, thread) in vm.machine.vcpus() {
                let Ok(allowed) = affinity::get(thread.tid) else {
                    continue;
                };
                let sum = vm.counted(thread.tid);
                let did = sum.since(old.map_or(sum, |old| old.counted(thread.tid)));
                let task = self.numbers.task((thread.tid, thread.start));
                let own = owns.of_thread(thread.tid);
                vcpus.push(task_seen(
                    (task, own),
                    allowed,
                    did,
                    Signals::default(),
                    elapsed,
                ));
            }
            let number = self.numbers.vm((vm.machine.tgid, vm.machine.start));
            let threads = vm.machine.vcpus().map(|(_, thread)| thread.tid);
            let cookie = cookies::in_common(threads.map(smt::cookie));
            self.unknown_cookies += usize::from(cookie.is_none());
            if let Some((mount, path)) = mount.as_deref().zip(vm.machine.cgroup.as_deref()) {
                let place = cgroup::place(mount, vm.own_cgroup.as_deref(), path, &mut read);
                places.insert(number, place);
            }
            vms.push(VmSeen {
                vm: number,
                weight: vm.group.weight,
                effective: None,
                quotas: Vec::new(),
                cookie: cookies::shown(number, cookie),
                vcpus,
            });
        }
        let mut seen = Snapshot {
            now: now.at.saturating_sub(self.began),
            host: self.host.clone(),
            vms,
            others: Vec::new(),
        };
        self.weighing.weigh(&mut seen, &|vm| places.get(&vm));
        self.plan = Plan::default();
        self.policy.decide(&seen, &mut self.plan);
    }

    /// What the policy would set now, and what VMs have had since `then`.
    fn tell(
        &mut self,
        then: &Sample,
        now: &Sample,
        policy: &PolicyInfo,
        json: bool,
    ) -> Result<Vec<u8>, HostError> {
        let mut notes = self.policy.status().notes;
        notes.extend(inventory::left_out(now.vms.iter().map(|vm| &vm.machine)));
        if self.plan.pcpus.iter().any(|pcpu| pcpu.cookies) {
            notes.extend(cookies::note(self.unknown_cookies));
        }
        let line = Line {
            time_s: seconds(now.at.saturating_sub(self.began)),
            policy: policy.name,
            vms: rows(then, now, false),
            names: self.names(now),
            plan: &self.plan,
            notes: &notes,
        };
        let text = match json {
            true => serde_json::to_string(&line).map_err(|e| HostError::Output(e.into()))? + "\n",
            false => in_words(&line),
        };
        Ok(text.into_bytes())
    }

    fn names(&mut self, now: &Sample) -> BTreeMap<String, String> {
        let mut names = BTreeMap::new();
        for vm in &now.vms {
            let name = &vm.machine.identity.name;
            let key = self.numbers.vm((vm.machine.tgid, vm.machine.start));
            names.insert(format!("vm {}", key.0), name.clone());
            for (number, thread) in vm.machine.vcpus() {
                let key = self.numbers.task((thread.tid, thread.start));
                names.insert(format!("task {}", key.0), format!("{name}/{number}"));
            }
        }
        names
    }
}

fn in_words(line: &Line<'_>) -> String {
    // A VM that was seen only once has no shares yet; the plan may concern it nevertheless.
    let nothing = line.vms.is_empty() && line.plan.vms.is_empty() && line.plan.tasks.is_empty();
    let mut text = match nothing {
        true => format!(
            "{:.1} s  {} would do nothing: there is no VM\n",
            line.time_s, line.policy
        ),
        false => format!("{:.1} s  {} would:\n", line.time_s, line.policy),
    };
    for vm in &line.vms {
        text += &format!(
            "  {:<24} %RUN {:>5.1} %RDY {:>5.1}\n",
            vm.name,
            100.0 * vm.run,
            100.0 * vm.ready
        );
    }
    let name = |key: String| line.names.get(&key).cloned().unwrap_or(key);
    for vm in &line.plan.vms {
        let placed = vm.placement;
        text += &format!(
            "  VM {}: placed {placed}\n",
            name(format!("vm {}", vm.vm.0))
        );
    }
    for task in &line.plan.tasks {
        let mut said = Vec::new();
        if let Some(slice) = task.slice {
            said.push(format!("slice {} ms", slice as f64 / MS as f64));
        }
        said.extend(task.home.map(|home| format!("home {}", home.0)));
        said.extend(task.pool.map(|pool| format!("pool {pool}")));
        if !said.is_empty() {
            let vcpu = name(format!("task {}", task.task.0));
            text += &format!("  vCPU {vcpu}: {}\n", said.join(", "));
        }
    }
    for note in line.notes {
        text += &format!("  note: {note}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn an_interval_without_end_is_none() {
        let options = ObserveOptions {
            policy: corun_policies::find("balance").unwrap(),
            settings: Settings::default(),
            interval: Nanos::MAX,
            run_for: Some(0),
            json: false,
            out: Box::new(io::sink()),
            notes: |_| {},
        };
        run(options).unwrap();
    }

    #[test]
    fn a_reader_that_does_not_read_does_not_keep_it_from_its_end() {
        let (_reader, writer) = crate::output::tests::full_pipe();
        let options = ObserveOptions {
            policy: corun_policies::find("balance").unwrap(),
            settings: Settings::default(),
            interval: MS,
            run_for: Some(300 * MS),
            json: false,
            out: Box::new(writer),
            notes: |_| {},
        };
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(run(options).is_ok()));
        let ended = end.recv_timeout(Duration::from_secs(60));
        assert_eq!(ended, Ok(true));
    }

    #[test]
    fn a_vm_that_was_seen_once_is_a_vm() {
        let plan = Plan {
            vms: vec![corun_model::VmPlan::placed(
                corun_model::VmId(1),
                corun_model::Placement::Balance,
            )],
            ..Plan::default()
        };
        let line = Line {
            time_s: 1.0,
            policy: "balance",
            vms: Vec::new(),
            names: BTreeMap::new(),
            plan: &plan,
            notes: &[],
        };
        let text = in_words(&line);
        assert!(text.starts_with("1.0 s  balance would:\n  VM "), "{text}");
    }

    #[test]
    fn a_host_without_vms_is_told_of() {
        let line = Line {
            time_s: 1.0,
            policy: "balance",
            vms: Vec::new(),
            names: BTreeMap::new(),
            plan: &Plan::default(),
            notes: &["something".to_string()],
        };
        assert_eq!(
            in_words(&line),
            "1.0 s  balance would do nothing: there is no VM\n  note: something\n"
        );
    }
}
