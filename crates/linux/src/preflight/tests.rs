// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::inventory::tests::FakeHost;

const GOOD: [(&str, &str); 10] = [
    ("/sys/kernel/sched_ext/state", "disabled\n"),
    ("/sys/kernel/btf/vmlinux", ""),
    ("/sys/module/kvm/x", ""),
    ("/proc/self/status", "CapEff:\t000001ffffffffff\n"),
    ("/proc/sys/kernel/osrelease", "7.2.13+deb14-cloud-amd64\n"),
    ("/proc/cmdline", "quiet\n"),
    ("/proc/loadavg", "4.00 3.00 2.00 9/300 4711\n"),
    (
        "/proc/pressure/memory",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    ),
    ("/sys/devices/system/cpu/online", "0-7\n"),
    ("/sys/devices/system/cpu/smt/active", "1\n"),
];

fn good() -> FakeHost {
    let host = FakeHost::new();
    for (path, text) in GOOD {
        host.file(path, text);
    }
    host
}

fn ids(host: &FakeHost) -> Vec<&'static str> {
    let findings = check_in(host.root(), &|_| Ok(0));
    findings.iter().map(|finding| finding.id).collect()
}

/// The findings of a good host with these files changed.
fn findings(changed: &[(&str, &str)]) -> Vec<&'static str> {
    let host = good();
    for (path, text) in changed {
        host.file(path, text);
    }
    ids(&host)
}

#[test]
fn a_good_host_has_no_findings() {
    assert!(findings(&[]).is_empty());
}

#[test]
fn what_may_be_in_the_way() {
    let state = ("/sys/kernel/sched_ext/state", "enabled\n");
    let lavd = ("/sys/kernel/sched_ext/root/ops", "lavd\n");
    assert_eq!(findings(&[state, lavd]), ["other-scheduler"]);
    let gone = findings(&[("/sys/kernel/sched_ext/root/ops", "corun\n")]);
    assert!(gone.is_empty(), "one that has left says nothing");
    let one = |path, text| findings(&[(path, text)]);
    let none = "CapEff:\t0000000000000000\n";
    assert_eq!(one("/proc/self/status", none), ["privileges"]);
    let tracer = "CapEff:\t000000c000000000\n";
    assert!(one("/proc/self/status", tracer).is_empty());
    let wide = "0-600\n";
    assert_eq!(one("/sys/devices/system/cpu/online", wide), ["pcpus"]);
    let locked = "none integrity [confidentiality]\n";
    assert_eq!(one("/sys/kernel/security/lockdown", locked), ["lockdown"]);
    assert_eq!(one("/proc/loadavg", "81.00 9 9 1/2 3\n"), ["load"]);
    assert!(one("/proc/loadavg", "79.00 9 9 1/2 3\n").is_empty());
    let stalled =
        "some avg10=90.00 avg60=0 avg300=0 total=1\nfull avg10=11.00 avg60=0 avg300=0 total=1\n";
    assert_eq!(one("/proc/pressure/memory", stalled), ["memory-pressure"]);
    let isolated = [
        ("/sys/devices/system/cpu/isolated", "2-3\n"),
        ("/proc/cmdline", "isolcpus=2-3\n"),
    ];
    assert_eq!(findings(&isolated), ["isolcpus"]);
}

/// The dispatcher's numbers are the host's.
#[test]
fn a_pid_namespace_of_its_own_is_in_the_way() {
    let found = |link: &str| {
        let host = good();
        let folder = host.root().join("proc/self/ns");
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(link, folder.join("pid")).unwrap();
        check_in(host.root(), &|_| Ok(0))
    };
    assert!(found("pid:[4026531836]").is_empty(), "the host's");
    let found = found("pid:[4026532741]");
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].id, found[0].severity),
        ("pid-namespace", Severity::Impossible)
    );
    assert!(found[0].stays() && found[0].remedy.contains("--pid=host"));
}

#[test]
fn kernels_with_the_bugs_are_known() {
    let both = ["cve-2026-43392", "cve-2026-43482"];
    let kernel = |release: &str| findings(&[("/proc/sys/kernel/osrelease", release)]);
    for bad in [
        "6.12.77",
        "6.14.11-pve",
        "6.17.9",
        "6.18.19",
        "6.19.9-arch1-1",
        "6.19-rc4",
    ] {
        assert_eq!(kernel(bad), both, "{bad}");
    }
    for fixed in [
        "6.12.78",
        "6.18.20-1-lts",
        "6.19.10",
        "7.0.0",
        "7.2.13",
        "8.0-rc1",
    ] {
        assert!(kernel(fixed).is_empty(), "{fixed}");
    }
    let backported = [
        ("/proc/sys/kernel/osrelease", "6.14.0-37-generic"),
        ("/proc/kallsyms", "0000000000000000 t scx_enable_workfn\n"),
    ];
    assert!(findings(&backported).is_empty());
}

/// The names of sched_ext's kfuncs that the dispatcher declares and cannot do without.
fn called() -> Vec<&'static str> {
    let declarations = include_str!("../../../../dispatcher/platform/kfuncs.h")
        .split("__ksym")
        .filter_map(|declared| declared.rsplit_once('(')?.0.rsplit([' ', '*']).next());
    declarations
        .filter(|name| name.contains("scx_") && *name != "scx_bpf_task_set_slice")
        .collect()
}

fn symbols(names: &[&str]) -> String {
    let symbol = |name: &&str| format!("0000000000000000 T {name}\n");
    names.iter().map(symbol).collect()
}

/// Linux 6.12 has other names for some, and either will do.
#[test]
fn a_kernel_without_what_the_dispatcher_calls_is_refused() {
    let all = called();
    let is_old = |name: &str| name.contains("dispatch") || name.ends_with("consume");
    let (old, new): (Vec<_>, Vec<_>) = all.iter().partition(|name| is_old(name));
    assert_eq!((old.len(), new.len()), (6, 14), "{all:?}");
    let renamed = |name: &str| name.contains("_dsq_insert") || name.contains("_dsq_move");
    let of_6_12: Vec<_> = all.iter().copied().filter(|it| !renamed(it)).collect();
    assert_eq!(of_6_12.len(), 14);
    for mut kernel in [new, of_6_12] {
        kernel.push("ext_server_init");
        assert!(findings(&[("/proc/kallsyms", &symbols(&kernel))]).is_empty());
        for left_out in 0..kernel.len() - 1 {
            let mut lacking = kernel.clone();
            let name = lacking.remove(left_out);
            let host = [("/proc/kallsyms", symbols(&lacking))];
            let host = host.each_ref().map(|(file, text)| (*file, text.as_str()));
            assert!(findings(&host).contains(&"kfuncs"), "without {name}");
        }
    }
}

#[test]
fn a_real_time_kernel_is_known() {
    let host = good();
    host.file("/sys/kernel/realtime", "1\n");
    assert_eq!(ids(&host), ["realtime"]);
    host.file("/sys/kernel/realtime", "0\n");
    assert!(ids(&host).is_empty());
}

/// Unless RCU's thread has a real-time priority, or the kernel serves sched_ext's tasks.
#[test]
fn a_kernel_that_lets_rcu_starve_is_known() {
    let host = good();
    host.file("/proc/kallsyms", &symbols(&called()));
    assert_eq!(ids(&host), ["rcu-starves"]);
    let thread = |policy: &str| {
        let fields = "S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 -2 0 1 0 7 0 0 18446744073709551615 0 0 0 0 0 0 0 \
                      2147483647 0 0 0 0 17 0 1";
        let stat = format!("18 (rcu_preempt) {fields} {policy} 0 0 0 0 0 0 0 0 0 0 0\n");
        host.file("/proc/18/stat", &stat);
    };
    thread("0");
    assert_eq!(ids(&host), ["rcu-starves"]);
    thread("1");
    assert!(ids(&host).is_empty());
}

/// Ubuntu's kernels are all the first of their series by their name.
#[test]
fn a_kernel_that_may_deadlock_beside_a_pressure_watch_is_known() {
    let found = |release: &str, more: &[&str]| {
        let mut names = called();
        names.extend(["ext_server_init", "psi_trigger_create"]);
        names.extend(more);
        findings(&[
            ("/proc/sys/kernel/osrelease", release),
            ("/proc/kallsyms", &symbols(&names)),
        ])
    };
    for bad in ["6.18.33", "7.0.0-34-generic", "7.0.10", "7.1.3-xanmod1"] {
        assert_eq!(found(bad, &[]), ["psi-trigger"], "{bad}");
        assert!(found(bad, &["psi_trigger_create_rtpoll_worker"]).is_empty());
    }
    for good in ["6.12.117", "6.18.32", "6.19.10", "7.2.13", "7.3.4"] {
        assert!(found(good, &[]).is_empty(), "{good}");
    }
}

#[test]
fn an_empty_host_has_findings_that_help() {
    let host = FakeHost::new();
    let findings = check_in(host.root(), &|_| Ok(0));
    let ids: Vec<_> = findings.iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["sched-ext", "btf", "kvm"]);
    let text = findings[0].to_string();
    assert!(text.contains("remedy: boot Linux 6.12"), "{text}");
    host.file("/proc/sys/kernel/osrelease", "6.12.57+deb13-amd64\n");
    host.file(
        "/boot/config-6.12.57+deb13-amd64",
        "# CONFIG_SCHED_CLASS_EXT is not set\n",
    );
    let what = check_in(host.root(), &|_| Ok(0))[0].what.clone();
    assert!(what.contains("without CONFIG_SCHED_CLASS_EXT"), "{what}");
    host.file("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    let what = check_in(host.root(), &|_| Ok(0))[0].what.clone();
    assert!(what.contains("older than 6.12"), "{what}");
}

fn with_vm(cgroup: &str) -> FakeHost {
    let host = good();
    let threads = [(5, "qemu"), (6, "CPU 0/KVM")];
    host.process(5, "qemu -name guest=web", cgroup, 1, &threads);
    host.file("/sys/fs/cgroup/cgroup.controllers", "cpu\n");
    host
}

/// The dispatcher keeps them: nothing to refuse or to warn of.
#[test]
fn limits_of_vms_are_no_findings() {
    let host = with_vm("/machine.slice/web.scope/emulator");
    let scope = "/sys/fs/cgroup/machine.slice/web.scope";
    host.file(&format!("{scope}/cpu.max"), "20000 100000\n");
    host.file("/sys/fs/cgroup/machine.slice/cpu.idle", "1\n");
    host.file("/sys/fs/cgroup/machine.slice/cpu.weight", "300\n");
    assert!(ids(&host).is_empty());
}

#[test]
fn cookies_matter_where_there_is_smt() {
    let host = with_vm("/web");
    let vcpu = |tid| Ok(u64::from(tid == 6));
    let found = check_in(host.root(), &vcpu);
    assert_eq!(found[0].id, "core-scheduling");
    assert!(found[0].what.ends_with("have core-scheduling cookies: web"));
    let emulator = |tid| Ok(u64::from(tid == 5));
    assert_eq!(check_in(host.root(), &emulator)[0].id, "core-scheduling");
    // Any process may give itself one.
    host.process(8, "x", "/user.slice", 1, &[(8, "x"), (9, "y")]);
    let found = check_in(host.root(), &|tid| Ok(u64::from(tid == 9)));
    assert!(
        found[0].what.ends_with("cookies: process 8 (x)"),
        "{found:?}"
    );
    host.file("/sys/devices/system/cpu/smt/active", "0\n");
    assert!(check_in(host.root(), &vcpu).is_empty());
}

/// On a host that boots there is no VM yet.
#[test]
fn cookies_that_nothing_can_keep_away_matter_without_any_vm() {
    let host = good();
    let with = |more: &[&str]| {
        let mut names = called();
        names.push("ext_server_init");
        names.extend(more);
        host.file("/proc/kallsyms", &symbols(&names));
        ids(&host)
    };
    assert!(with(&[]).is_empty(), "no core scheduling");
    assert!(with(&["sched_core_share_pid", "security_task_prctl"]).is_empty());
    assert_eq!(with(&["sched_core_share_pid"]), ["core-scheduling"]);
    host.file("/sys/devices/system/cpu/smt/active", "0\n");
    assert!(with(&["sched_core_share_pid"]).is_empty());
}

/// As under a unit without CAP_SYS_PTRACE, whose VMs run as another user.
#[test]
fn cookies_that_may_not_be_read_are_not_taken_for_none() {
    let host = with_vm("/web");
    let refused = |errno| move |_| Err(io::Error::from_raw_os_error(errno));
    let found = check_in(host.root(), &refused(libc::EPERM));
    assert_eq!(found[0].id, "core-scheduling");
    assert!(found[0].what.contains("cannot be told"), "{found:?}");
    assert!(found[0].remedy.contains("CAP_SYS_PTRACE"), "{found:?}");
    assert!(check_in(host.root(), &refused(libc::ESRCH)).is_empty());
    // What is known of one says more than what is not known of another.
    let mixed = |tid| match tid {
        6 => Ok(1),
        _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
    };
    host.process(8, "qemu -name guest=db", "/db", 1, &[(9, "CPU 0/KVM")]);
    let found = check_in(host.root(), &mixed);
    assert!(found[0].what.ends_with("have core-scheduling cookies: web"));
    host.file("/sys/devices/system/cpu/smt/active", "0\n");
    assert!(check_in(host.root(), &mixed).is_empty());
}

#[test]
fn only_what_is_dangerous_can_be_forced() {
    let host = FakeHost::new();
    let force = ["kvm".to_string(), "btf".to_string()];
    let verdict = Verdict::of(check_in(host.root(), &|_| Ok(0)), &force);
    let ids = |findings: &[Finding]| findings.iter().map(|f| f.id).collect::<Vec<_>>();
    assert_eq!(ids(&verdict.refused), ["sched-ext", "btf"]);
    assert_eq!(ids(&verdict.forced), ["kvm"]);
    let json = serde_json::to_value(&verdict).unwrap();
    assert_eq!(json["forced"][0]["severity"], "dangerous");
}

/// For the others, a service manager that tries again only makes work.
#[test]
fn what_may_pass_by_itself_is_known() {
    let host = FakeHost::new();
    host.file("/sys/kernel/sched_ext/state", "enabled\n");
    let found = check_in(host.root(), &|_| Ok(0));
    let stays: Vec<_> = found.iter().map(|it| (it.id, it.stays())).collect();
    assert_eq!(
        stays,
        [("btf", true), ("other-scheduler", false), ("kvm", false)]
    );
}
