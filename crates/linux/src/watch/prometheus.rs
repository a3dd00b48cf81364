// SPDX-License-Identifier: GPL-2.0-only
//! One sample in Prometheus' text format: counters in seconds, labels that join with those of libvirt's
//! exporters (`domain`, `uuid`, `vcpu`, a 0-based string). docs/metrics.md says what each means.

use super::sample::{Sample, VmSample};
use super::totals::Totals;
use crate::holds::HoldsNow;
use crate::inventory::Thread;
use crate::status::VmNow;
use corun_model::Wakers;
use corun_model::time::seconds;
use corun_system::procfs::Counted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A metric: name, kind, help; what follows are its lines.
type Head = (&'static str, &'static str, &'static str);
/// What a metric of a vCPU says.
type Value = fn(Counted) -> f64;
/// The value of a metric of a policy's status for a VM, if there is one.
type Thought = fn(&VmNow) -> Option<f64>;

const RUN: Head = (
    "corun_vcpu_run_seconds_total",
    "counter",
    "Time a vCPU was on a pCPU.",
);
const DELAY: Head = (
    "corun_vcpu_delay_seconds_total",
    "counter",
    "Time a vCPU wanted a pCPU and had none: what its guest sees as steal.",
);
const TURNS: Head = (
    "corun_vcpu_switches_total",
    "counter",
    "How often a vCPU was given a pCPU.",
);
const COSTOP: Head = (
    "corun_vcpu_costop_seconds_total",
    "counter",
    "Part of the delay: time a vCPU was held back for its siblings' sake.",
);
const THROTTLED: Head = (
    "corun_vm_throttled_seconds_total",
    "counter",
    "Time a VM's threads were throttled by cpu.max, summed over pCPUs.",
);
const HELPER: Head = (
    "corun_vm_helper_run_seconds_total",
    "counter",
    "Time a VM's other threads were on a pCPU, by what they are for.",
);
const VCPUS: Head = ("corun_vm_vcpus", "gauge", "vCPUs of a VM.");
const WEIGHT: Head = (
    "corun_vm_weight",
    "gauge",
    "cpu.weight of the cgroup that a VM has to itself.",
);
const INFO: Head = (
    "corun_vm_info",
    "gauge",
    "Always 1: who a VM is, and whether it is under corun's policy.",
);
const ENFORCED: Head = (
    "corun_vm_policy_enforced",
    "gauge",
    "1 if what the policy decides for a VM is carried out, 0 if it leaves the VM alone.",
);
const LOAN: Head = (
    "corun_vm_loan_ratio",
    "gauge",
    "CPU time a VM has borrowed (lent, if negative), of what it is entitled to.",
);
const WAKERS: Head = (
    "corun_vm_wakers_info",
    "gauge",
    "Always 1: who wakes a VM's vCPUs (siblings, others, hidden).",
);
const SCHEDULER: Head = (
    "corun_scheduler_info",
    "gauge",
    "Always 1: the scheduler in charge, and corun's policy.",
);
const UP: Head = (
    "corun_daemon_up",
    "gauge",
    "1 if corun host runs and answers.",
);
const LAPSES: Head = (
    "corun_daemon_lapses_total",
    "counter",
    "How often VMs fell back to fair order because the daemon hung.",
);
const HOLDS_BEGUN: Head = (
    "corun_holds_begun_total",
    "counter",
    "How often a pCPU was held for a vCPU that had halted.",
);
const HOLDS_ENDED: Head = (
    "corun_holds_ended_total",
    "counter",
    "How often that ended, by reason.",
);
const HOLD_LONGEST: Head = (
    "corun_hold_longest_seconds",
    "gauge",
    "How long the longest hold was since corun took over.",
);
const HOLD_LATEST: Head = (
    "corun_hold_latest_seconds",
    "gauge",
    "The longest by which a hold overran its timeout since corun took over.",
);
const HOLD: Head = (
    "corun_hold_seconds_total",
    "counter",
    "How long pCPUs were held, without the holds under way.",
);
const PRESSURE: Head = (
    "corun_host_cpu_waiting_seconds_total",
    "counter",
    "Time some task of the host waited for a pCPU (PSI, cpu some).",
);

/// The sample as text, with what VMs had in all until then.
pub fn text(sample: &Sample, totals: &Totals) -> String {
    let mut page = Page {
        text: String::new(),
        totals,
        twins: twins(sample),
    };
    page.host(sample);
    page.vms(sample);
    page.vcpus(sample);
    page.text
}

struct Page<'a> {
    text: String,
    totals: &'a Totals,
    /// Identities that several VMs have.
    twins: BTreeSet<Named<'a>>,
}

/// The identity that a VM claims: its name and its UUID. A user may start a VM that claims another
/// one's.
type Named<'a> = (&'a str, &'a str);

fn named(vm: &VmSample) -> Named<'_> {
    let identity = &vm.machine.identity;
    (&identity.name, identity.uuid.as_deref().unwrap_or_default())
}

/// How every [`text`] has always begun: that tells these files from others, also from those of `corun guest`, whose
/// metrics are named `corun_guest_`.
pub const BEGINNING: &str = "# HELP corun_scheduler_";

/// Identities that occur more than once: node_exporter refuses a file in which a line occurs twice,
/// and all other files with it.
fn twins(sample: &Sample) -> BTreeSet<Named<'_>> {
    let mut once = BTreeSet::new();
    let vms = sample.vms.iter().map(named);
    vms.filter(|vm| !once.insert(*vm)).collect()
}

/// Does a name end as that of a twin does? A VM may be named like a twin: with the process added,
/// too, names are different again.
fn names_process(name: &str) -> bool {
    let end = name.rsplit_once(" (pid ");
    let number = end.and_then(|(_, end)| end.strip_suffix(')'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

impl Page<'_> {
    fn head(&mut self, (name, kind, help): Head) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, (name, ..): Head, labels: &str, value: f64) {
        let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
    }

    fn of_vm(&self, vm: &VmSample) -> String {
        let (name, uuid) = named(vm);
        match self.twins.contains(&(name, uuid)) || names_process(name) {
            false => labels(&[("domain", name), ("uuid", uuid)]),
            true => {
                let name = format!("{name} (pid {})", vm.machine.tgid);
                labels(&[("domain", &name), ("uuid", uuid)])
            }
        }
    }

    fn of_vcpu(&self, vm: &VmSample, number: u32) -> String {
        format!("{},vcpu=\"{number}\"", self.of_vm(vm))
    }

    fn host(&mut self, sample: &Sample) {
        let daemon = sample.daemon.as_ref();
        let policy = daemon.map_or("", |daemon| daemon.policy.as_str());
        let labels = labels(&[("scheduler", &sample.scheduler), ("policy", policy)]);
        self.head(SCHEDULER);
        self.line(SCHEDULER, &labels, 1.0);
        let up = f64::from(u8::from(daemon.is_some()));
        self.head(UP);
        let _ = writeln!(self.text, "{} {up}", UP.0);
        if let Some(daemon) = daemon {
            self.head(LAPSES);
            let _ = writeln!(self.text, "{} {}", LAPSES.0, daemon.lapses);
            self.holds(&daemon.holds);
        }
        if let Some(waiting) = sample.pressure {
            self.head(PRESSURE);
            let _ = writeln!(self.text, "{} {}", PRESSURE.0, seconds(waiting));
        }
    }

    fn holds(&mut self, holds: &HoldsNow) {
        self.head(HOLDS_BEGUN);
        let _ = writeln!(self.text, "{} {}", HOLDS_BEGUN.0, holds.begun);
        self.head(HOLDS_ENDED);
        let ended = [
            ("woke", holds.woke),
            ("timeout", holds.expired),
            ("gave_way", holds.gave_way),
        ];
        for (why, count) in ended {
            self.line(HOLDS_ENDED, &labels(&[("why", why)]), count as f64);
        }
        let lengths = [
            (HOLD, holds.held_s),
            (HOLD_LONGEST, holds.longest_s),
            (HOLD_LATEST, holds.latest_s),
        ];
        for (head, seconds) in lengths {
            self.head(head);
            let _ = writeln!(self.text, "{} {seconds}", head.0);
        }
    }

    fn vms(&mut self, sample: &Sample) {
        self.head(INFO);
        for vm in &sample.vms {
            let identity = &vm.machine.identity;
            let pid = vm.machine.tgid.to_string();
            let under =
                under_policy(sample, vm).map_or("", |under| if under { "yes" } else { "no" });
            let more = [
                ("manager", identity.manager.name()),
                ("id", identity.id.as_deref().unwrap_or_default()),
                ("pid", &pid),
                ("under_policy", under),
            ];
            self.line(INFO, &format!("{},{}", self.of_vm(vm), labels(&more)), 1.0);
        }
        self.thoughts(sample);
        self.head(VCPUS);
        for vm in &sample.vms {
            self.line(VCPUS, &self.of_vm(vm), vcpus(vm).len() as f64);
        }
        self.head(WEIGHT);
        for vm in &sample.vms {
            if let Some(weight) = vm.group.weight {
                self.line(WEIGHT, &self.of_vm(vm), f64::from(weight));
            }
        }
        self.head(THROTTLED);
        for vm in &sample.vms {
            if let Some(sum) = self.totals.throttled_s(vm) {
                self.line(THROTTLED, &self.of_vm(vm), sum);
            }
        }
        self.head(HELPER);
        for vm in &sample.vms {
            for (role, time) in self.totals.helped(vm) {
                let labels = format!("{},{}", self.of_vm(vm), labels(&[("role", role.name())]));
                self.line(HELPER, &labels, seconds(time));
            }
        }
    }

    /// What policies think of VMs, where they do.
    fn thoughts(&mut self, sample: &Sample) {
        let of = |vm: &VmSample| known(sample, vm);
        let all: [(Head, Thought); 2] = [
            (ENFORCED, |vm| vm.enforced.map(|on| f64::from(u8::from(on)))),
            (LOAN, |vm| vm.loan_percent.map(|percent| percent / 100.0)),
        ];
        for (head, value) in all {
            let told = sample.vms.iter();
            let told = told.filter_map(|vm| Some((vm, value(of(vm)?)?)));
            let told: Vec<(&VmSample, f64)> = told.collect();
            if !told.is_empty() {
                self.head(head);
            }
            for (vm, value) in told {
                self.line(head, &self.of_vm(vm), value);
            }
        }
        let told = sample.vms.iter();
        let told = told.filter_map(|vm| Some((vm, of(vm)?.wakers?)));
        let told: Vec<(&VmSample, Wakers)> = told.collect();
        if !told.is_empty() {
            self.head(WAKERS);
        }
        for (vm, wakers) in told {
            let labels = format!(
                "{},{}",
                self.of_vm(vm),
                labels(&[("wakers", wakers.name())])
            );
            self.line(WAKERS, &labels, 1.0);
        }
    }

    fn vcpus(&mut self, sample: &Sample) {
        let all: [(Head, Value); 3] = [
            (RUN, |counted| seconds(counted.run)),
            (DELAY, |counted| seconds(counted.ready)),
            (TURNS, |counted| counted.turns as f64),
        ];
        for (head, value) in all {
            self.head(head);
            for vm in &sample.vms {
                for (number, thread) in vcpus(vm) {
                    let labels = self.of_vcpu(vm, number);
                    self.line(head, &labels, value(vm.counted(thread.tid)));
                }
            }
        }
        let Some(daemon) = &sample.daemon else {
            return;
        };
        self.head(COSTOP);
        for vm in &sample.vms {
            let known = daemon.vm(vm.machine.tgid);
            for (number, thread) in vcpus(vm) {
                let vcpus = known.map_or(&[][..], |known| &known.vcpus);
                if let Some(vcpu) = vcpus.iter().find(|vcpu| vcpu.tid == thread.tid) {
                    self.line(COSTOP, &self.of_vcpu(vm, number), vcpu.costop_s);
                }
            }
        }
    }
}

/// What the daemon says about a VM.
fn known<'a>(sample: &'a Sample, vm: &VmSample) -> Option<&'a VmNow> {
    let daemon = sample.daemon.as_ref()?;
    daemon.vm(vm.machine.tgid)
}

fn under_policy(sample: &Sample, vm: &VmSample) -> Option<bool> {
    Some(known(sample, vm)?.under_policy)
}

/// The vCPUs of a VM, each number once: a thread has its creator's name until it is given its own.
fn vcpus(vm: &VmSample) -> BTreeMap<u32, &Thread> {
    let mut all: BTreeMap<u32, &Thread> = BTreeMap::new();
    for (number, thread) in vm.machine.vcpus() {
        let known = all.entry(number).or_insert(thread);
        if (thread.start, thread.tid) < (known.start, known.tid) {
            *known = thread;
        }
    }
    all
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let pair = |(key, value): &(&str, &str)| format!("{key}=\"{}\"", escaped(value));
    pairs.iter().map(pair).collect::<Vec<_>>().join(",")
}

/// As the format wants values; VMs' names come from outside.
fn escaped(value: &str) -> String {
    let plain = value.replace('\\', "\\\\").replace('"', "\\\"");
    plain.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::FakeHost;
    use crate::watch::Sampler;
    use serde_json::json;

    /// At a first look.
    fn text(sample: &Sample) -> String {
        let mut totals = Totals::default();
        totals.add(sample);
        super::text(sample, &totals)
    }

    /// A policy's status is shown for VMs that have one, and for no others.
    #[test]
    fn a_vm_that_its_policy_leaves_alone_says_so() {
        let host = FakeHost::new();
        for (pid, name) in [(5, "web"), (7, "db")] {
            let line = format!("qemu -name guest={name}");
            let (own, vcpu) = ((pid, "qemu"), (pid + 1, "CPU 0/KVM"));
            host.process(pid, &line, &format!("/{name}"), 1, &[own, vcpu]);
        }
        let mut sample = Sampler::below(host.root()).sample();
        assert!(!text(&sample).contains("corun_vm_policy_enforced"));
        let vm = |name: &str, pid: u32| {
            json!({"name": name, "uuid": null, "manager": "none", "id": null, "pid": pid, "slot": pid,
                "weight": null, "under_policy": true, "placement": "balance", "vcpus": []})
        };
        let mut left_alone = vm("web", 5);
        left_alone["enforced"] = false.into();
        left_alone["loan_percent"] = (-12.5).into();
        left_alone["wakers"] = "hidden".into();
        sample.daemon = serde_json::from_value(json!({
            "version": "1", "policy": "jupiter", "policy_for_s": 1.0, "for_s": 1.0,
            "max_wait_s": null, "max_ready_percent": null, "max_pressure_percent": null,
            "forced": [], "lapses": 0, "notes": [], "vms": [left_alone, vm("db", 7)]
        }))
        .unwrap();
        let text = text(&sample);
        for wanted in [
            "corun_vm_policy_enforced{domain=\"web\",uuid=\"\"} 0",
            "corun_vm_loan_ratio{domain=\"web\",uuid=\"\"} -0.125",
            "corun_vm_wakers_info{domain=\"web\",uuid=\"\",wakers=\"hidden\"} 1",
        ] {
            assert_eq!(
                text.lines().filter(|line| *line == wanted).count(),
                1,
                "{wanted}\n{text}"
            );
        }
        assert!(
            !text.contains("corun_vm_policy_enforced{domain=\"db\""),
            "{text}"
        );
    }

    #[test]
    fn counters_in_seconds_with_labels_that_join() {
        let host = FakeHost::new();
        let uuid = "5b1f8c0e-52a1-4c3d-9d3e-0a1b2c3d4e5f";
        let line = format!("qemu -name guest=we\"b\\1 -uuid {uuid}");
        let names = [(5, "qemu"), (6, "CPU 0/KVM"), (7, "IO a")];
        host.process(5, &line, "/web", 1, &names);
        host.file("/proc/5/task/6/schedstat", "1500000000 250000000 7\n");
        let text = text(&Sampler::below(host.root()).sample());
        let has =
            |wanted: &str| assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
        let vm = format!("domain=\"we\\\"b\\\\1\",uuid=\"{uuid}\"");
        has(&format!(
            "corun_vcpu_run_seconds_total{{{vm},vcpu=\"0\"}} 1.5"
        ));
        has(&format!(
            "corun_vcpu_delay_seconds_total{{{vm},vcpu=\"0\"}} 0.25"
        ));
        has(&format!(
            "corun_vm_helper_run_seconds_total{{{vm},role=\"io\"}} 0"
        ));
        has("corun_daemon_up 0");
        each_is_explained_once(&text);
    }

    /// A VM that says it is another one, and a thread that has not got its own name yet.
    #[test]
    fn no_line_is_there_twice() {
        let host = FakeHost::new();
        for pid in [5, 15] {
            let names = [(pid, "q"), (pid + 1, "CPU 0/KVM"), (pid + 2, "CPU 0/KVM")];
            host.process(pid, "qemu -name guest=web", &format!("/{pid}"), 1, &names);
        }
        // The others say what a twin is called here.
        for (pid, name) in [(25, "db"), (35, "web (pid 5)"), (45, "web (pid 35)")] {
            // Words end with a 0 in /proc.
            let names = [(pid, "q"), (pid + 1, "CPU 0/KVM")];
            host.process(pid, "qemu", &format!("/{pid}"), 1, &names);
            host.file(
                &format!("/proc/{pid}/cmdline"),
                &format!("qemu\0-name\0guest={name}\0"),
            );
        }
        host.file("/proc/5/task/6/schedstat", "1500000000 250000000 7\n");
        let text = text(&Sampler::below(host.root()).sample());
        let mut series: Vec<_> = text.lines().filter_map(|it| it.rsplit_once(' ')).collect();
        let count = series.len();
        series.sort_unstable();
        series.dedup_by_key(|(series, _)| *series);
        assert_eq!(series.len(), count, "{text}");
        for line in [
            "corun_vcpu_run_seconds_total{domain=\"web (pid 5)\",uuid=\"\",vcpu=\"0\"} 1.5",
            "corun_vcpu_run_seconds_total{domain=\"web (pid 15)\",uuid=\"\",vcpu=\"0\"} 0",
            "corun_vm_vcpus{domain=\"db\",uuid=\"\"} 1",
            "corun_vm_vcpus{domain=\"web (pid 5) (pid 35)\",uuid=\"\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }

    #[test]
    fn holds_are_told_by_how_they_ended() {
        let host = FakeHost::new();
        let mut sample = Sampler::below(host.root()).sample();
        let status = serde_json::json!({
            "version": "1", "policy": "vsmtio", "policy_for_s": 1.0, "for_s": 1.0, "max_wait_s": null,
            "max_ready_percent": null, "max_pressure_percent": null, "forced": [], "lapses": 0,
            "holds": {"begun": 6, "woke": 3, "expired": 2, "gave_way": 1, "under_way": 0,
                      "held_s": 0.006, "mean_s": 0.001, "longest_s": 0.003, "latest_s": 0.0001},
            "notes": [], "vms": []
        });
        sample.daemon = Some(serde_json::from_value(status).unwrap());
        let text = text(&sample);
        for wanted in [
            "corun_holds_begun_total 6",
            "corun_holds_ended_total{why=\"woke\"} 3",
            "corun_holds_ended_total{why=\"timeout\"} 2",
            "corun_holds_ended_total{why=\"gave_way\"} 1",
            "corun_hold_seconds_total 0.006",
            "corun_hold_longest_seconds 0.003",
            "corun_hold_latest_seconds 0.0001",
        ] {
            assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
        }
        each_is_explained_once(&text);
    }

    fn each_is_explained_once(text: &str) {
        for name in text.lines().filter(|line| !line.starts_with('#')) {
            let name = name.split(['{', ' ']).next().unwrap();
            let head = format!("# TYPE {name} ");
            assert_eq!(text.matches(&head).count(), 1, "{name}");
        }
    }
}
