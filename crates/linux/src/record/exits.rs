// SPDX-License-Identifier: GPL-2.0-only
//! Guest exits by vCPU and reason, as the kernel's half counts them.
//!
//! Reasons are named as in the kernel's own trace (arch/x86/include/uapi/asm/vmx.h and svm.h).

use corun_recording::native::Entry;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::BTreeMap;

/// `struct exit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Exit {
    thread: u32,
    isa: u32,
    reason: u32,
    vcpu: u32,
}

/// `IPIS`: the count is of interrupts that the vCPU sent to siblings.
const IPIS: u32 = u32::MAX;
/// `KVM_ISA_VMX`, `KVM_ISA_SVM` (arch/x86/kvm/trace.h).
const VMX: u32 = 1;
const SVM: u32 = 2;

impl Exit {
    fn read(key: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let four = key.get(at..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*four))
        };
        Some(Self {
            thread: number(0)?,
            isa: number(4)?,
            reason: number(8)?,
            vcpu: number(12)?,
        })
    }

    fn name(&self) -> String {
        let table = match self.isa {
            IPIS => return "ipi".to_string(),
            VMX => &VMX_REASONS[..],
            SVM => &SVM_REASONS[..],
            _ => &[],
        };
        // Above these bits of a VMX reason are flags.
        let reason = if self.isa == VMX {
            self.reason & 0xffff
        } else {
            self.reason
        };
        let known = table.iter().find(|(number, _)| *number == reason);
        known.map_or_else(|| format!("reason-{reason}"), |(_, name)| name.to_string())
    }
}

/// Which counts have been written already.
#[derive(Default)]
pub(super) struct Exits {
    told: BTreeMap<Exit, u64>,
}

impl Exits {
    /// What has been counted since the last time.
    pub(super) fn since(&mut self, counts: &MapHandle) -> Vec<Entry> {
        let counted = counts.keys().filter_map(|key| {
            let count = counts.lookup(&key, MapFlags::ANY).ok().flatten()?;
            Some((Exit::read(&key)?, u64::from_ne_bytes(*count.first_chunk()?)))
        });
        self.news(counted.collect())
    }

    /// In the kernel, the counts that were unused for longest make room for others, and begin anew when they are used
    /// again: a count that had gone, or is less than before, counts as new.
    fn news(&mut self, counted: BTreeMap<Exit, u64>) -> Vec<Entry> {
        let before = std::mem::replace(&mut self.told, counted);
        let news = self.told.iter().filter_map(|(exit, &count)| {
            let told = before.get(exit).copied().filter(|told| *told <= count);
            let count = count - told.unwrap_or(0);
            (count > 0).then(|| Entry::Exits {
                thread: exit.thread,
                vcpu: (exit.isa != IPIS).then_some(exit.vcpu),
                reason: exit.name(),
                count,
            })
        });
        news.collect()
    }
}

const VMX_REASONS: [(u32, &str); 34] = [
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (36, "MWAIT_INSTRUCTION"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (46, "GDTR_IDTR"),
    (47, "LDTR_TR"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (52, "PREEMPTION_TIMER"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (62, "PML_FULL"),
    (74, "BUS_LOCK"),
];

const SVM_REASONS: [(u32, &str); 21] = [
    (0x60, "interrupt"),
    (0x61, "nmi"),
    (0x64, "vintr"),
    (0x6e, "rdtsc"),
    (0x6f, "rdpmc"),
    (0x72, "cpuid"),
    (0x76, "invd"),
    (0x77, "pause"),
    (0x78, "hlt"),
    (0x79, "invlpg"),
    (0x7b, "io"),
    (0x7c, "msr"),
    (0x7f, "shutdown"),
    (0x81, "hypercall"),
    (0x87, "rdtscp"),
    (0x89, "wbinvd"),
    (0x8a, "monitor"),
    (0x8b, "mwait"),
    (0x400, "npf"),
    (0x401, "avic_incomplete_ipi"),
    (0x402, "avic_unaccelerated_access"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_begin_anew_are_told_as_a_whole() {
        let exit = |thread| Exit {
            thread,
            isa: VMX,
            reason: 12,
            vcpu: 0,
        };
        let mut exits = Exits::default();
        let mut told = |counted: &[(u32, u64)]| -> Vec<(u32, u64)> {
            let counted = counted.iter().map(|&(thread, count)| (exit(thread), count));
            let news = exits.news(counted.collect()).into_iter();
            news.map(|entry| match entry {
                Entry::Exits { thread, count, .. } => (thread, count),
                other => panic!("{other:?}"),
            })
            .collect()
        };
        assert_eq!(told(&[(1, 5), (2, 7)]), [(1, 5), (2, 7)]);
        assert_eq!(told(&[(1, 8), (2, 7)]), [(1, 3)]);
        assert_eq!(told(&[(1, 2)]), [(1, 2)], "it began anew");
        assert_eq!(told(&[(1, 2), (2, 9)]), [(2, 9)], "it had gone");
    }

    #[test]
    fn reasons_by_name() {
        let name = |isa, reason| {
            Exit {
                thread: 1,
                isa,
                reason,
                vcpu: 0,
            }
            .name()
        };
        assert_eq!(name(VMX, 12), "HLT");
        assert_eq!(name(VMX, 0x8000_0028), "PAUSE_INSTRUCTION");
        assert_eq!(name(SVM, 0x78), "hlt");
        assert_eq!(name(SVM, 0x999), "reason-2457");
        assert_eq!(name(IPIS, 0), "ipi");
        assert_eq!(
            Exit::read(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]).map(|exit| exit.vcpu),
            Some(4)
        );
        assert_eq!(Exit::read(&[0; 15]), None);
    }
}
