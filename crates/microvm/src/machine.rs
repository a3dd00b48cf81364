// SPDX-License-Identifier: GPL-2.0-only
//! The virtual machine: KVM's objects, and a thread per vCPU.

use crate::MachineError;
use crate::guest::{FAULT_PORT, FAULT_WORDS};
use crate::image;
use crate::memory::GuestMemory;
use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, KVM_MP_STATE_RUNNABLE, Msrs, kvm_dtable, kvm_mp_state,
    kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// A vCPU that writes to this guest address has done its work and ends. Neither the address nor what follows it up to
/// the next large page is memory: a write there leaves the guest, as for any device.
pub const END: u64 = 0x20_0000;

/// Where a vCPU begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// As a kernel does, in ring 0.
    Kernel,
    /// As programs do, in ring 3.
    User,
}

/// How a vCPU begins: its registers.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the processor's names
pub struct Start {
    /// Privileges.
    pub ring: Ring,
    pub rip: u64,
    pub rsp: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// Where KVM is to write the vCPU's steal time, if its guest wants to know: `struct kvm_steal_time`.
    pub steal: Option<u64>,
}

/// What a machine is made of.
pub struct Setup {
    /// Guest addresses, and the memory that begins there. The first has the tables of [`image`].
    pub memory: Vec<(u64, GuestMemory)>,
    /// Its vCPUs.
    pub vcpus: Vec<Start>,
}

/// A running virtual machine. It ends with the process, or when its vCPUs do.
pub struct Machine {
    parts: Arc<Parts>,
    running: usize,
    ends: Receiver<Result<(), MachineError>>,
}

/// What each vCPU's thread needs.
struct Parts {
    vm: VmFd,
    cpuid: CpuId,
    setup: Setup,
}

impl Machine {
    /// Creates the machine and starts its vCPUs. `prepare` is called in the thread of each vCPU, with its number,
    /// before that enters the guest.
    ///
    /// # Errors
    /// [`MachineError`]. What goes wrong in the threads, [`Machine::check`] reports.
    pub fn start(
        setup: Setup,
        prepare: impl Fn(usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self, MachineError> {
        let (report, ends) = channel();
        let prepare = Arc::new(prepare);
        let parts = Arc::new(create_vm(setup)?);
        let running = parts.setup.vcpus.len();
        for index in 0..running {
            let (parts, report) = (Arc::clone(&parts), report.clone());
            let prepare = Arc::clone(&prepare);
            let body = move || run_and_report(&parts, index, &*prepare, &report);
            thread::Builder::new()
                // As QEMU names them.
                .name(format!("CPU {index}/KVM"))
                .spawn(body)
                .map_err(|error| MachineError::Thread { vcpu: index, error })?;
        }
        Ok(Self {
            parts,
            running,
            ends,
        })
    }

    /// Its first piece of memory.
    pub fn memory(&self) -> &GuestMemory {
        &self.parts.setup.memory[0].1
    }

    /// Fails if a vCPU has ended that was not supposed to.
    ///
    /// # Errors
    /// [`MachineError`]: why it ended.
    pub fn check(&self) -> Result<(), MachineError> {
        match self.ends.try_recv() {
            Ok(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until all vCPUs have ended by themselves, for each at most `each`.
    ///
    /// # Errors
    /// [`MachineError`]: why one ended otherwise, or [`MachineError::Stuck`].
    pub fn ended(self, each: Duration) -> Result<(), MachineError> {
        for _ in 0..self.running {
            match self.ends.recv_timeout(each) {
                Ok(end) => end?,
                Err(RecvTimeoutError::Timeout) => return Err(MachineError::Stuck),
                // No vCPU is left that could report anything.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }
}

/// The frequency of the time-stamp counter that guests here read, kHz.
///
/// # Errors
/// [`MachineError`], also if /dev/kvm cannot be used at all.
pub fn tsc_khz() -> Result<u32, MachineError> {
    let kvm = Kvm::new().map_err(MachineError::unopened)?;
    let vm = create(&kvm)?;
    let vcpu = vm
        .create_vcpu(0)
        .map_err(MachineError::refused("cannot create a vCPU"))?;
    vcpu.get_tsc_khz().map_err(MachineError::refused(
        "does not tell how fast its time-stamp counter is",
    ))
}

fn create(kvm: &Kvm) -> Result<VmFd, MachineError> {
    kvm.create_vm()
        .map_err(MachineError::refused("cannot create a VM"))
}

fn create_vm(setup: Setup) -> Result<Parts, MachineError> {
    let kvm = Kvm::new().map_err(MachineError::unopened)?;
    let vm = create(&kvm)?;
    // Intel processors need three unused pages below 4 GiB.
    vm.set_tss_address(0xfffb_d000)
        .map_err(MachineError::refused("refuses the TSS address"))?;
    vm.create_irq_chip()
        .map_err(MachineError::refused("cannot create interrupt controllers"))?;
    for (slot, (at, memory)) in (0..).zip(&setup.memory) {
        let region = kvm_userspace_memory_region {
            slot,
            guest_phys_addr: *at,
            memory_size: memory.size() as u64,
            userspace_addr: memory.host_address(),
            flags: 0,
        };
        // SAFETY: the region is a mapping of this size that stays as long as the process does.
        unsafe { vm.set_user_memory_region(region) }
            .map_err(MachineError::refused("refuses the guest's memory"))?;
    }
    let cpuid = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .map_err(MachineError::refused(
            "does not tell which processor features it supports",
        ))?;
    Ok(Parts { vm, cpuid, setup })
}

fn run_and_report(
    parts: &Parts,
    index: usize,
    prepare: &dyn Fn(usize) -> io::Result<()>,
    report: &Sender<Result<(), MachineError>>,
) {
    let ended = create_vcpu(parts, index).and_then(|vcpu| {
        prepare(index).map_err(|error| MachineError::Thread { vcpu: index, error })?;
        run(vcpu, index, &parts.setup.memory[0].1)
    });
    // A closed channel means that nobody waits for this.
    let _ = report.send(ended);
}

/// Runs the vCPU until it ends.
fn run(mut vcpu: VcpuFd, index: usize, memory: &GuestMemory) -> Result<(), MachineError> {
    let stopped = loop {
        match vcpu.run() {
            Ok(VcpuExit::MmioWrite(END, _)) => return Ok(()),
            Ok(VcpuExit::IoOut(FAULT_PORT, _)) => break Some("an exception".into()),
            Ok(VcpuExit::IoOut(..) | VcpuExit::MmioWrite(..) | VcpuExit::Intr) => {}
            Ok(VcpuExit::FailEntry(reason, _)) => {
                return Err(MachineError::NotEntered {
                    vcpu: index,
                    reason,
                });
            }
            Ok(VcpuExit::InternalError) => break None,
            Ok(other) => break Some(format!("{other:?}")),
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
            Err(error) => return Err(MachineError::refused("cannot run a vCPU")(error)),
        }
    };
    let Some(stopped) = stopped else {
        return Err(MachineError::internal(index, vcpu.get_kvm_run()));
    };
    let untold = || MachineError::refused("does not tell registers");
    let regs = vcpu.get_regs().map_err(untold())?;
    let sregs = vcpu.get_sregs().map_err(untold())?;
    let on_stack = on_stack(memory, regs.rsp);
    let what = format!(
        "{stopped}; on the stack {on_stack:x?}; {regs:x?}; cr2 {:x}, cr3 {:x}, ss {:x}, cs {:x}",
        sregs.cr2, sregs.cr3, sregs.ss.selector, sregs.cs.selector
    );
    Err(MachineError::Stopped { vcpu: index, what })
}

/// What lies on the stack: after an exception, its number, its error code, and what the processor pushed (address, code
/// segment, flags, stack pointer, stack segment); less if there is no memory.
fn on_stack(memory: &GuestMemory, rsp: u64) -> Vec<u64> {
    let words = (0..FAULT_WORDS as u64).map(|word| rsp.checked_add(word * 8));
    let readable = |at: &usize| at.is_multiple_of(8) && *at < memory.size();
    let addresses = words.map_while(|at| usize::try_from(at?).ok().filter(readable));
    addresses.map(|at| memory.read_u64(at)).collect()
}

fn create_vcpu(parts: &Parts, index: usize) -> Result<VcpuFd, MachineError> {
    let refused = MachineError::refused;
    let start = &parts.setup.vcpus[index];
    let vcpu = parts
        .vm
        .create_vcpu(index as u64)
        .map_err(refused("cannot create a vCPU"))?;
    vcpu.set_cpuid2(&cpuid_of(&parts.cpuid, index))
        .map_err(refused("refuses a vCPU's CPUID"))?;
    let mut sregs = vcpu
        .get_sregs()
        .map_err(refused("does not tell registers"))?;
    enter_long_mode(&mut sregs, start.ring);
    vcpu.set_sregs(&sregs)
        .map_err(refused("refuses special registers"))?;
    let regs = kvm_regs {
        rip: start.rip,
        rsp: start.rsp,
        rsi: start.rsi,
        rdi: start.rdi,
        rflags: 0b10, // interrupts off; bit 1 is always set
        ..Default::default()
    };
    vcpu.set_regs(&regs).map_err(refused("refuses registers"))?;
    if let Some(at) = start.steal {
        tell_steal(&vcpu, at)?;
    }
    // All vCPUs but the first would wait for a start-up IPI.
    vcpu.set_mp_state(kvm_mp_state {
        mp_state: KVM_MP_STATE_RUNNABLE,
    })
    .map_err(refused("refuses to make a vCPU runnable"))?;
    Ok(vcpu)
}

/// Has KVM write the vCPU's steal time to the guest's memory, where it can: a guest's kernel asks for that with this
/// MSR. Hosts without CONFIG_SCHED_INFO do not count steal time: there it stays 0.
fn tell_steal(vcpu: &VcpuFd, at: u64) -> Result<(), MachineError> {
    const MSR_KVM_STEAL_TIME: u32 = 0x4b56_4d03;
    const ENABLED: u64 = 1;
    const WHAT: &str = "cannot be asked to count steal";
    let wanted = kvm_msr_entry {
        index: MSR_KVM_STEAL_TIME,
        data: at | ENABLED,
        ..Default::default()
    };
    let wanted = Msrs::from_entries(&[wanted]).map_err(|_| MachineError::Refused {
        what: WHAT,
        error: io::ErrorKind::OutOfMemory.into(),
    })?;
    vcpu.set_msrs(&wanted)
        .map_err(MachineError::refused(WHAT))?;
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
fn enter_long_mode(sregs: &mut kvm_sregs, ring: Ring) {
    let (code, data, dpl) = match ring {
        Ring::Kernel => (image::CODE_SELECTOR, image::DATA_SELECTOR, 0),
        Ring::User => (image::USER_CODE_SELECTOR, image::USER_DATA_SELECTOR, 3),
    };
    let segment = |selector, type_, dpl, s, l| kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        type_,
        present: 1,
        dpl,
        s,
        l,
        db: 1 - l,
        g: 1,
        ..Default::default()
    };
    let data = segment(data, 3, dpl, 1, 0);
    sregs.cs = segment(code, 11, dpl, 1, 1);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    // A busy 64-bit TSS, which Intel processors insist on; never used.
    sregs.tr = kvm_segment {
        limit: 0x67,
        db: 0,
        g: 0,
        ..segment(0, 11, 0, 0, 0)
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
        for (ring, level) in [(Ring::Kernel, 0), (Ring::User, 3)] {
            enter_long_mode(&mut sregs, ring);
            assert_eq!((sregs.cs.l, sregs.cs.db, sregs.ss.l), (1, 0, 0));
            assert_eq!((sregs.cs.dpl, sregs.ss.dpl), (level, level));
            assert_eq!(sregs.cs.selector & 3, u16::from(level));
            assert_eq!((sregs.gdt.limit, sregs.idt.limit), (39, 0xfcf));
        }
    }
}
