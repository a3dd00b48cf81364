// SPDX-License-Identifier: GPL-2.0-only
//! `kvm_entry`, `kvm_exit`, `kvm_vcpu_wakeup`: what a vCPU thread did in KVM.

use super::{Event, comm, word};

/// `vcpu 0, rip 0x…`; the vCPU is missing in old kernels.
pub(super) fn entry(fields: &str) -> Event {
    Event::KvmEntry { vcpu: vcpu(fields) }
}

/// `vcpu 0 reason hlt rip 0x…`
pub(super) fn exit(fields: &str) -> Result<Event, &'static str> {
    let reason = word(fields, "reason ").ok_or("no reason")?;
    Ok(Event::KvmExit {
        vcpu: vcpu(fields),
        reason: comm(reason),
    })
}

/// `wait time 2239044 ns, polling valid`: it blocked; `poll time … ns`: it never blocked.
pub(super) fn wakeup(fields: &str) -> Result<Event, &'static str> {
    let time = word(fields, "time ").and_then(|ns| ns.parse().ok());
    let time: u64 = time.ok_or("no time")?;
    let polled = fields.starts_with("poll").then_some(time);
    Ok(Event::KvmWakeup { polled })
}

fn vcpu(fields: &str) -> Option<u32> {
    word(fields, "vcpu ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event() {
        assert_eq!(
            entry("vcpu 3, rip 0x52b9b0"),
            Event::KvmEntry { vcpu: Some(3) }
        );
        assert_eq!(entry("rip 0x1"), Event::KvmEntry { vcpu: None });
        let reason = "EXTERNAL_INTERRUPT".to_string();
        assert_eq!(
            exit("reason EXTERNAL_INTERRUPT rip 0x1 info 0 0"),
            Ok(Event::KvmExit { vcpu: None, reason })
        );
        let reason = "hlt".to_string();
        assert_eq!(
            exit("vcpu 1 reason hlt rip 0x1"),
            Ok(Event::KvmExit {
                vcpu: Some(1),
                reason
            })
        );
        assert_eq!(
            wakeup("wait time 2239044 ns, polling valid"),
            Ok(Event::KvmWakeup { polled: None })
        );
        assert_eq!(
            wakeup("poll time 999 ns, polling valid"),
            Ok(Event::KvmWakeup { polled: Some(999) })
        );
    }

    #[test]
    fn cut_lines() {
        assert!(exit("vcpu 1").is_err());
        assert!(wakeup("wait ti").is_err());
    }
}
