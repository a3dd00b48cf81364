// SPDX-License-Identifier: GPL-2.0-only
//! The virtual machine: KVM's objects, and a thread per vCPU.

use crate::image::{self, Program};
use crate::memory::GuestMemory;
use anyhow::{Context, Result, bail};
use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, KVM_MP_STATE_RUNNABLE, Msrs, kvm_dtable, kvm_mp_state,
    kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A running virtual machine. It ends with the process.
pub struct Machine {
    memory: Arc<GuestMemory>,
    vcpus: usize,
    failures: Receiver<anyhow::Error>,
}

/// What each vCPU's thread needs.
struct Parts {
    vm: VmFd,
    cpuid: CpuId,
    program: Program,
    /// Kept mapped as long as the VM may use it.
    _memory: Arc<GuestMemory>,
}

impl Machine {
    /// Creates the machine and starts its vCPUs.
    pub fn start(program: Program) -> Result<Self> {
        let mut memory = GuestMemory::new(image::SIZE).context("cannot map the guest's memory")?;
        for (at, bytes) in image::pieces(&program) {
            memory.write(at, &bytes);
        }
        let memory = Arc::new(memory);
        let parts = Arc::new(create_vm(program, Arc::clone(&memory))?);

        let (report, failures) = channel();
        for index in 0..program.vcpus {
            let (parts, report) = (Arc::clone(&parts), report.clone());
            thread::Builder::new()
                // As QEMU names them.
                .name(format!("CPU {index}/KVM"))
                .spawn(move || run_and_report(&parts, index, &report))
                .with_context(|| format!("cannot start the thread of vCPU {index}"))?;
        }
        Ok(Self {
            memory,
            vcpus: program.vcpus,
            failures,
        })
    }

    /// What each vCPU has counted so far.
    pub fn iterations(&self) -> Vec<u64> {
        (0..self.vcpus)
            .map(|index| self.memory.read_u64(image::block(index)))
            .collect()
    }

    /// What KVM has told each vCPU's guest as steal so far, ns; it writes when it lets the guest run.
    pub fn steal(&self) -> Vec<u64> {
        (0..self.vcpus)
            .map(|index| self.memory.read_u64(image::steal(index)))
            .collect()
    }

    /// Fails if a vCPU has ended: guests never end by themselves.
    pub fn check(&self) -> Result<()> {
        self.failures.try_recv().map_or(Ok(()), Err)
    }
}

fn create_vm(program: Program, memory: Arc<GuestMemory>) -> Result<Parts> {
    let kvm = Kvm::new()
        .context("cannot use /dev/kvm: is KVM's module loaded, and may this user open it?")?;
    let vm = kvm.create_vm().context("KVM cannot create a VM")?;
    // Intel processors need three unused pages below 4 GiB.
    vm.set_tss_address(0xfffb_d000)
        .context("KVM refuses the TSS address")?;
    vm.create_irq_chip()
        .context("KVM cannot create interrupt controllers")?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: 0,
        memory_size: image::SIZE as u64,
        userspace_addr: memory.host_address(),
        flags: 0,
    };
    // SAFETY: the region is a mapping of this size that lives as long as the VM: `Parts` holds both.
    unsafe { vm.set_user_memory_region(region) }.context("KVM refuses the guest's memory")?;
    let cpuid = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .context("KVM does not tell which processor features it supports")?;
    Ok(Parts {
        vm,
        cpuid,
        program,
        _memory: memory,
    })
}

fn run_and_report(parts: &Parts, index: usize, report: &Sender<anyhow::Error>) {
    if let Err(error) = create_vcpu(parts, index).and_then(run) {
        // A closed channel means that the process is ending.
        let _ = report.send(error.context(format!("vCPU {index}")));
    }
}

/// Runs until something unexpected happens.
fn run(mut vcpu: VcpuFd) -> Result<()> {
    let stopped = loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(..) | VcpuExit::Intr) => {}
            Ok(other) => break format!("{other:?}"),
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
            Err(error) => return Err(error).context("KVM cannot run it"),
        }
    };
    let regs = vcpu.get_regs().context("KVM does not tell its registers")?;
    bail!("the guest stopped: {stopped}; {regs:x?}")
}

fn create_vcpu(parts: &Parts, index: usize) -> Result<VcpuFd> {
    let vcpu = parts
        .vm
        .create_vcpu(index as u64)
        .context("KVM cannot create it")?;
    vcpu.set_cpuid2(&cpuid_of(&parts.cpuid, index))
        .context("KVM refuses its CPUID")?;
    let mut sregs = vcpu
        .get_sregs()
        .context("KVM does not tell its registers")?;
    enter_long_mode(&mut sregs);
    vcpu.set_sregs(&sregs)
        .context("KVM refuses its special registers")?;
    let regs = kvm_regs {
        rip: image::entry(parts.program.mode) as u64,
        rsp: image::stack(index) as u64,
        rsi: image::block(index) as u64,
        rdi: image::SHARED as u64,
        rflags: 0b10, // interrupts off; bit 1 is always set
        ..Default::default()
    };
    vcpu.set_regs(&regs).context("KVM refuses its registers")?;
    tell_steal(&vcpu, index)?;
    // All but the first would wait for a start-up IPI.
    vcpu.set_mp_state(kvm_mp_state {
        mp_state: KVM_MP_STATE_RUNNABLE,
    })
    .context("KVM refuses to make it runnable")?;
    Ok(vcpu)
}

/// Has KVM write the vCPU's steal time to the guest's memory, where it can: a guest's kernel asks for that
/// with this MSR. Hosts without CONFIG_SCHED_INFO do not count it: then it stays 0.
fn tell_steal(vcpu: &VcpuFd, index: usize) -> Result<()> {
    const MSR_KVM_STEAL_TIME: u32 = 0x4b56_4d03;
    const ENABLED: u64 = 1;
    let wanted = kvm_msr_entry {
        index: MSR_KVM_STEAL_TIME,
        data: image::steal(index) as u64 | ENABLED,
        ..Default::default()
    };
    let wanted = Msrs::from_entries(&[wanted]).context("an MSR is not accepted")?;
    vcpu.set_msrs(&wanted)
        .context("KVM cannot be asked to count steal")?;
    Ok(())
}

/// The host's features with the vCPU's own APIC id, which is its index.
fn cpuid_of(supported: &CpuId, index: usize) -> CpuId {
    let mut cpuid = supported.clone();
    let id = u32::try_from(index).unwrap_or(u32::MAX);
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            1 => {
                entry.ebx = entry.ebx & 0x00ff_ffff | id << 24;
                entry.ecx |= 1 << 21; // x2APIC
            }
            0xb | 0x1f => entry.edx = id,
            _ => {}
        }
    }
    cpuid
}

/// 64-bit mode with the image's tables, and the local APIC in x2APIC mode.
fn enter_long_mode(sregs: &mut kvm_sregs) {
    let segment = |selector, type_, s, l| kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        type_,
        present: 1,
        s,
        l,
        db: 1 - l,
        g: 1,
        ..Default::default()
    };
    let data = segment(image::DATA_SELECTOR, 3, 1, 0);
    sregs.cs = segment(image::CODE_SELECTOR, 11, 1, 1);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    // A busy 64-bit TSS, which Intel processors insist on; never used.
    sregs.tr = kvm_segment {
        limit: 0x67,
        db: 0,
        g: 0,
        ..segment(0, 11, 0, 0)
    };
    let table = |base, bytes| kvm_dtable {
        base,
        limit: bytes - 1,
        ..Default::default()
    };
    sregs.gdt = table(image::GDT as u64, size_of_val(&image::DESCRIPTORS) as u16);
    sregs.idt = table(image::IDT as u64, (image::GATES * 16) as u16);
    sregs.cr3 = image::PAGE_TABLES as u64;
    sregs.cr4 = 1 << 5; // physical address extension
    sregs.cr0 = 1 << 31 | 1 << 4 | 1; // paging, extension type, protection
    sregs.efer = 1 << 10 | 1 << 8; // long mode active and enabled
    sregs.apic_base |= 1 << 11 | 1 << 10; // enabled, x2APIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm_bindings::kvm_cpuid_entry2;

    #[test]
    fn every_vcpu_reads_its_own_apic_id() {
        let leaf = |function| kvm_cpuid_entry2 {
            function,
            ..Default::default()
        };
        let supported = CpuId::from_entries(&[leaf(0), leaf(1), leaf(0xb)]).unwrap();
        let cpuid = cpuid_of(&supported, 3);
        let entries = cpuid.as_slice();
        assert_eq!(
            (entries[1].ebx >> 24, entries[2].edx, entries[0].edx),
            (3, 3, 0)
        );
    }

    #[test]
    fn the_code_segment_is_64_bit() {
        let mut sregs = kvm_sregs::default();
        enter_long_mode(&mut sregs);
        assert_eq!((sregs.cs.l, sregs.cs.db, sregs.ss.l), (1, 0, 0));
        assert_eq!((sregs.gdt.limit, sregs.idt.limit), (23, 0x40f));
    }
}
