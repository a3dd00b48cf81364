// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's events, one parser each, whatever tool printed them.
//!
//! Tools print an event's fields in one of two ways: the kernel's own (`prev_comm=… prev_pid=…`)
//! or a shorter one by trace-cmd's and perf's plugins (`comm:pid [prio] S ==> …`). A parser tries
//! both. Fields are found by name, so that kernels may add others.

mod kvm;
mod switch;
mod task;
mod wake;

pub(crate) use switch::{Left, left_bits};

use corun_model::harmless;

/// The largest thread id Linux hands out.
pub(crate) const MAX_TID: u32 = 1 << 22;

/// A task as an event names it. Thread id 0 is the idle task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskRef {
    pub tid: u32,
    pub comm: String,
}

/// In which context an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// In an interrupt (hard, soft or NMI).
    Interrupt,
    /// In an interrupt that a timer caused.
    Timer,
    /// On behalf of the running task.
    Task,
    /// The recording does not say.
    Unknown,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The pCPU goes from `prev` to `next`.
    Switch {
        prev: TaskRef,
        left: Left,
        next: TaskRef,
    },
    /// The task is about to be woken. Its target pCPU is not decided yet.
    Waking { task: TaskRef, cpu: Option<u32> },
    /// The task is on the runqueue of `cpu`.
    Wakeup { task: TaskRef, cpu: Option<u32> },
    /// The same for a task that was just created.
    WakeupNew { task: TaskRef, cpu: Option<u32> },
    /// The task goes from one pCPU's runqueue to another's.
    Migrate { task: TaskRef, from: u32, to: u32 },
    /// `parent` created `child`.
    Fork { parent: u32, child: TaskRef },
    /// The kernel has freed the task.
    Free { tid: u32 },
    /// The running task entered guest mode.
    KvmEntry { vcpu: Option<u32> },
    /// The running task left guest mode.
    KvmExit { vcpu: Option<u32>, reason: String },
    /// The running task's halt is over; `polled` is its length in ns if it never blocked.
    KvmWakeup { polled: Option<u64> },
    /// The running vCPU sent an interrupt to a sibling.
    KvmIpi,
    /// An interrupt handler began (`true`) or ended (`false`).
    Irq(bool),
    /// Events of this pCPU were lost just before.
    Lost,
    /// A task's name, and its process if that is given. The task need not be the running one.
    Named { task: TaskRef, tgid: Option<u32> },
    /// How often a vCPU left its guest for one reason; it need not be running.
    KvmExits {
        vcpu: Option<u32>,
        reason: String,
        count: u64,
    },
    /// Nothing: the recording begins or ends.
    Mark,
    /// Some other event: it only proves that the task was running.
    Other,
}

/// Reads an event's fields. `Err` says what is wrong with them.
pub(crate) fn parse(name: &str, fields: &str) -> Result<Event, &'static str> {
    match name {
        "sched_switch" => switch::parse(fields),
        "sched_waking" => wake::parse(fields).map(|(task, cpu)| Event::Waking { task, cpu }),
        "sched_wakeup" => wake::parse(fields).map(|(task, cpu)| Event::Wakeup { task, cpu }),
        "sched_wakeup_new" => wake::parse(fields).map(|(task, cpu)| Event::WakeupNew { task, cpu }),
        "sched_migrate_task" => task::migrate(fields),
        "sched_process_fork" => task::fork(fields),
        "sched_process_free" => task::free(fields),
        "kvm_entry" => Ok(kvm::entry(fields)),
        "kvm_exit" => kvm::exit(fields),
        "kvm_vcpu_wakeup" => kvm::wakeup(fields),
        "kvm_apic_ipi" => Ok(Event::KvmIpi),
        "irq_handler_entry" => Ok(Event::Irq(true)),
        "irq_handler_exit" => Ok(Event::Irq(false)),
        // `sched_process_exit` only announces the exit: the task leaves with its last switch.
        // `kvm_halt_poll_ns` says how long the next poll may last: `kvm_vcpu_wakeup` shows what came
        // of it.
        _ => Ok(Event::Other),
    }
}

/// The text after `key` up to `until`, or to the end of the fields if `until` is empty.
fn between<'a>(fields: &'a str, key: &str, until: &str) -> Option<&'a str> {
    let rest = after(fields, key)?;
    if until.is_empty() {
        return Some(rest.trim_end());
    }
    rest.split_once(until).map(|(value, _)| value)
}

/// The text after `key`, which stands at the beginning or after a space.
fn after<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    if let Some(rest) = fields.strip_prefix(key) {
        return Some(rest);
    }
    fields
        .match_indices(key)
        .find(|(at, _)| {
            fields
                .get(..*at)
                .is_some_and(|before| before.ends_with(' '))
        })
        .and_then(|(at, _)| fields.get(at + key.len()..))
}

/// The word after `key`.
fn word<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    after(fields, key)?.split([' ', ',']).next()
}

/// A thread id; perf writes them as signed numbers.
pub(crate) fn tid(text: &str) -> Result<u32, &'static str> {
    match text.trim().parse() {
        Ok(tid) if tid <= MAX_TID => Ok(tid),
        Ok(_) => Err("thread id out of range (at most 4194304)"),
        Err(_) if is_large(text) => Err("thread id out of range (at most 4194304)"),
        Err(_) => Err("a thread id is not a number"),
    }
}

/// Is a text that could not be read a number, but one too large for any type?
fn is_large(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A pCPU number.
pub(crate) fn cpu(text: &str) -> Result<u32, &'static str> {
    match text.trim().parse() {
        Ok(cpu) if cpu < corun_model::Topology::MAX_PCPUS => Ok(cpu),
        Ok(_) => Err("pCPU number out of range (at most 511)"),
        Err(_) if is_large(text) => Err("pCPU number out of range (at most 511)"),
        Err(_) => Err("a pCPU number is not a number"),
    }
}

/// A thread name, cut to a length no kernel exceeds. Recordings are from other people's hosts, where programs choose
/// their names: no terminal that shows them is to obey them.
pub(crate) fn comm(text: &str) -> String {
    text.chars().map(harmless).take(64).collect()
}

/// `comm:pid [prio]` as trace-cmd's plugins print it, and what follows the pid.
fn plugin_task(text: &str) -> Result<(TaskRef, &str), &'static str> {
    let (name, rest) = text.rsplit_once(':').ok_or("no comm:pid")?;
    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let task = TaskRef {
        tid: tid(number)?,
        comm: comm(name.trim_start()),
    };
    Ok((task, rest))
}

/// The task in `comm=… pid=…`, up to the field after the pid.
fn named_task(fields: &str) -> Result<TaskRef, &'static str> {
    let name = between(fields, "comm=", " pid=").ok_or("no comm= or pid=")?;
    let number = word(fields, "pid=").ok_or("no pid=")?;
    Ok(TaskRef {
        tid: tid(number)?,
        comm: comm(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_events_only_prove_presence() {
        assert_eq!(parse("tlb_flush", "pages:-1"), Ok(Event::Other));
        assert_eq!(
            parse("kvm_halt_poll_ns", "vcpu 0: halt_poll_ns 10000"),
            Ok(Event::Other)
        );
        assert_eq!(
            parse("irq_handler_entry", "irq=24 name=virtio0"),
            Ok(Event::Irq(true))
        );
    }

    #[test]
    fn names_are_harmless_to_terminals() {
        assert_eq!(comm("a\u{1b}]0;b\u{7}"), "a\u{fffd}]0;b\u{fffd}");
    }

    #[test]
    fn fields_are_found_whole() {
        assert_eq!(word("child_pid=3 pid=7", "pid="), Some("7"));
        assert_eq!(between("comm=a b pid=7", "comm=", " pid="), Some("a b"));
        assert_eq!(word("xpid=7", "pid="), None);
    }

    #[test]
    fn absurd_numbers_are_refused() {
        assert!(tid("4194305").is_err());
        assert_eq!(tid("99999999999999999999"), tid("4194305"));
        assert_eq!(tid(""), Err("a thread id is not a number"));
        assert!(tid("-1").is_err());
        assert!(cpu("512").is_err());
        assert!(cpu("99999999999999999999").is_err());
    }
}
