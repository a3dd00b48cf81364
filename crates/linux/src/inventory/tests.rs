// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use std::fs;
use std::path::PathBuf;

/// A host made of files.
pub(crate) struct FakeHost {
    root: tempfile::TempDir,
}

impl FakeHost {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let file: PathBuf = self.root().join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// An open file of a process, as its link says.
    pub(crate) fn open(&self, tgid: u32, number: u32, link: &str) {
        let fds = self.root().join(format!("proc/{tgid}/fd"));
        fs::create_dir_all(&fds).unwrap();
        std::os::unix::fs::symlink(link, fds.join(number.to_string())).unwrap();
    }

    /// A process with threads: (number, name); the first is the process itself.
    pub(crate) fn process(
        &self,
        tgid: u32,
        line: &str,
        cgroup: &str,
        start: u64,
        names: &[(u32, &str)],
    ) {
        let stat = |tid: u32, name: &str| {
            format!(
                "{tid} ({name}) S 1 1 1 0 -1 0 1 0 0 0 5 6 0 0 20 0 3 0 {start} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 17 0"
            )
        };
        let at = format!("proc/{tgid}");
        self.file(&format!("{at}/cmdline"), &line.replace(' ', "\0"));
        self.file(&format!("{at}/cgroup"), &format!("0::{cgroup}\n"));
        self.file(&format!("{at}/stat"), &stat(tgid, names[0].1));
        for (tid, name) in names {
            self.file(&format!("{at}/task/{tid}/comm"), &format!("{name}\n"));
            self.file(&format!("{at}/task/{tid}/stat"), &stat(*tid, name));
            self.file(&format!("{at}/task/{tid}/schedstat"), "0 0 0\n");
        }
    }
}

const UUID: &str = "5b1f8c0e-52a1-4c3d-9d3e-0a1b2c3d4e5f";

fn only(host: &FakeHost) -> Machine {
    let found = machines(host.root());
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn libvirts_domain_with_all_its_threads() {
    let host = FakeHost::new();
    let line = format!("qemu-system-x86_64 -name guest=web1,debug-threads=on -uuid {UUID}");
    let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb1.scope/libvirt/emulator";
    let names = [
        (70, "qemu-system-x86"),
        (72, "IO iothread1"),
        (75, "CPU 1/KVM"),
        (74, "CPU 0/KVM"),
        (76, "vhost-70"),
    ];
    host.process(70, &line, scope, 900, &names);
    host.process(9, "bash", "/user.slice", 5, &[(9, "bash")]);
    let vm = only(&host);
    assert_eq!(vm.identity.name, "web1");
    assert_eq!(vm.identity.uuid.as_deref(), Some(UUID));
    assert_eq!(vm.identity.manager, Manager::Libvirt);
    assert_eq!((vm.tgid, vm.start), (70, 900));
    let roles: Vec<_> = vm.threads.iter().map(|t| (t.tid, t.role)).collect();
    let wanted = [
        (74, Role::Vcpu(0)),
        (75, Role::Vcpu(1)),
        (72, Role::Io),
        (76, Role::Vhost),
        (70, Role::Emulator),
    ];
    assert_eq!(roles, wanted);
}

#[test]
fn managers_are_told_by_what_they_leave() {
    let vcpu = [(5, "kvm"), (6, "CPU 0/KVM")];
    let pve = format!(
        "/usr/bin/kvm -id 100 -name vm100,debug-threads=on -smbios type=1,uuid={}",
        UUID.to_uppercase()
    );
    let host = FakeHost::new();
    host.process(5, &pve, "/qemu.slice/100.scope", 1, &vcpu);
    // Without Proxmox' file, `-id` might be anything.
    assert_eq!(only(&host).identity.manager, Manager::None);
    let conf = "name: mail\ncores: 2\n[before-update]\nname: old\n";
    host.file("/etc/pve/qemu-server/100.conf", conf);
    let identity = only(&host).identity;
    assert_eq!(
        (identity.name.as_str(), identity.manager),
        ("mail", Manager::Proxmox)
    );
    assert_eq!(identity.id.as_deref(), Some("100"));
    assert_eq!(identity.uuid.as_deref(), Some(UUID));

    let host = FakeHost::new();
    let pod = "/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope";
    host.process(5, "qemu-kvm -name guest=shop_db0", pod, 1, &vcpu);
    let identity = only(&host).identity;
    assert_eq!(identity.manager, Manager::Kubevirt);
    assert_eq!(identity.id.as_deref(), Some("shop/db0"));

    let host = FakeHost::new();
    host.process(5, "qemu -name guest=instance-0000001f", "/x", 1, &vcpu);
    assert_eq!(only(&host).identity.manager, Manager::None);
    host.file("/run/libvirt/qemu/instance-0000001f.xml", "<domstatus/>");
    assert_eq!(only(&host).identity.manager, Manager::Openstack);
}

#[test]
fn other_vmms() {
    let host = FakeHost::new();
    let names = [(5, "firecracker"), (6, "fc_api"), (7, "fc_vcpu 0")];
    host.process(5, "firecracker --id=fc-7 --api-sock s", "/f", 1, &names);
    assert_eq!(only(&host).identity.name, "fc-7");
    let host = FakeHost::new();
    let names = [(5, "cloud-hyperviso"), (6, "vcpu0"), (7, "_disk0_q0")];
    host.process(5, "cloud-hypervisor --cpus boot=1", "/c", 1, &names);
    let vm = only(&host);
    assert_eq!(vm.identity.name, "pid-5");
    assert_eq!(vm.vcpus().count(), 1);
    assert!(vm.threads.iter().any(|thread| thread.role == Role::Io));
}

#[test]
fn what_vanishes_while_one_looks_is_left_out() {
    let host = FakeHost::new();
    host.process(5, "qemu", "/q", 1, &[(5, "qemu"), (6, "CPU 0/KVM")]);
    fs::remove_file(host.root().join("proc/5/stat")).unwrap();
    assert!(machines(host.root()).is_empty());
    // A name that would lead elsewhere.
    host.process(7, "qemu -name ../x", "/q", 1, &[(7, "q"), (8, "CPU 0/KVM")]);
    assert_eq!(only(&host).identity.manager, Manager::None);
    assert!(machines(Path::new("/nowhere")).is_empty());
}

/// On a line of its own, journald takes `<0>` for the priority of a message.
#[test]
fn a_name_is_one_line_and_no_more_than_that() {
    let host = FakeHost::new();
    let vcpu = [(5, "q"), (6, "CPU 0/KVM")];
    host.process(5, "qemu -name a\n<0>panic\x1b[2J\u{9b}m", "/q", 1, &vcpu);
    let identity = only(&host).identity;
    assert_eq!(identity.name, "a\u{fffd}<0>panic\u{fffd}[2J\u{fffd}m");
    let pod = "/kubepods.slice/x.scope";
    host.process(
        5,
        &format!("qemu -name a\t_{}", "x".repeat(9000)),
        pod,
        1,
        &vcpu,
    );
    let identity = only(&host).identity;
    assert_eq!(
        (
            identity.name.len(),
            identity.id.unwrap().starts_with("a\u{fffd}/x")
        ),
        (514, true)
    );
}

#[test]
fn names_as_vmms_have_them() {
    let name = |line: &str| {
        let words: Vec<_> = line.split(' ').map(str::to_string).collect();
        identity::name(&words)
    };
    let qemu = "qemu-system-x86_64 -M pc -name guest=web1,debug-threads=on -m 1G";
    assert_eq!(name(qemu).unwrap(), "web1");
    let reversed = "qemu -name debug-threads=on,guest=a";
    assert_eq!(name(reversed).unwrap(), "a");
    assert_eq!(
        name("kvm -id 100 -name vm100,debug-threads=on").unwrap(),
        "vm100"
    );
    // QEMU doubles commas that do not end a part.
    assert_eq!(
        name("qemu -name guest=c,,d,debug-threads=on").unwrap(),
        "c,d"
    );
    assert_eq!(name("qemu -name guest=c,,,process=x").unwrap(), "c,");
    assert_eq!(name("qemu -name guest="), None);
    assert_eq!(name("qemu -name"), None);
}

/// A user that wants VMs on one pCPU gives sixty threads such names.
#[test]
fn names_alone_make_no_vm() {
    let host = FakeHost::new();
    let names = [(5, "x"), (6, "CPU 0/KVM")];
    let proof = || machine(host.root(), 5).map(|vm| vm.proof);
    host.process(5, "x", "/user.slice/user-1000.slice/s.scope", 1, &names);
    assert_eq!(proof(), Some(Proof::Kvm), "names are all there is");
    host.file("/sys/module/kvm/parameters/halt_poll_ns", "200000\n");
    // Its files are not ours to look at.
    assert_eq!(proof(), None);
    let user = |uid: u32| {
        let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        host.file("/proc/5/status", &status);
    };
    user(1000);
    assert_eq!(proof(), None);
    user(0);
    assert_eq!(proof(), Some(Proof::Names));
    user(64055);
    host.file("/proc/5/cgroup", "0::/machine.slice/machine-x.scope\n");
    assert_eq!(proof(), Some(Proof::Names));
    host.open(5, 3, "/dev/kvm");
    assert_eq!(proof(), None, "now one may look, and there is none");
    host.open(5, 12, "anon_inode:kvm-vcpu:0");
    assert_eq!(proof(), Some(Proof::Kvm));
}

/// Anybody who may use /dev/kvm can start a hundred thousand threads beside a vCPU, with any names.
#[test]
fn of_too_many_threads_only_some_are_looked_at() {
    let host = FakeHost::new();
    let names: Vec<_> = (5..MOST_THREADS as u32 + 105)
        .map(|tid| (tid, "CPU 0/KVM"))
        .collect();
    host.process(5, "qemu -name big", "/a.scope", 1, &names);
    assert_eq!(only(&host).threads.len(), MOST_THREADS);
}

#[test]
fn what_is_left_out_is_told() {
    let host = FakeHost::new();
    host.process(
        5,
        "qemu -name web",
        "/a.scope",
        1,
        &[(5, "qemu"), (6, "CPU 0/KVM")],
    );
    let mut found = machines(host.root());
    assert!(left_out(found.iter()).is_empty());
    found[0].beyond = 41_808;
    let many = vec![found[0].clone(); MOST_MACHINES];
    let [threads] = &left_out(found.iter())[..] else {
        panic!("of threads only");
    };
    assert!(
        threads.contains("41808 threads") && threads.contains("\"web\""),
        "{threads}"
    );
    assert_eq!(left_out(many.iter()).len(), 2);
    assert!(left_out(many.iter())[0].contains("1024 VMs"));
}
