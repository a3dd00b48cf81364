# SPDX-License-Identifier: GPL-2.0-only
"""What scheduling costs in the testbed, from recordings of its calibration runs; all in us.

Each cost is the median over all its occurrences in one boot:

- switch: from a switch between vCPUs to the new one's kvm_entry;
- tick: from kvm_exit to kvm_entry around a tick without a switch;
- preemption: from the vCPU's kvm_exit to the switch, during which it still counts as running;
- late: how late the timer that ends a slice comes, on average; timer: twice that (the simulator draws
  evenly from 0);
- ipi: from waking a real-time vCPU to its switch, on a pCPU that a hog has;
- idle_wake: the same on an idle pCPU, less the IPI;
- interrupt, send (ping) and interrupt, slack (timer): what a guest's round takes beside its work, on a
  pCPU that a hog has used in between, as everywhere in the scenarios;
- slowdown: how many times longer a guest's code takes when two VMs share each pCPU and are recorded
  than alone and unrecorded, their switches and ticks apart (the emulator translates code and
  addresses anew, ftrace's own work takes what looks like guest time, and the machine's speed drifts);
- spread: by what share the same work takes more or less time (evenly between).
"""

import re
import statistics

import trace

# The emulated host's ticks per second (CONFIG_HZ) and pCPUs.
HOST_HZ, PCPUS = 250, 2
EXPIRES = re.compile(r"hrtimer=(\S+) function=hrtick(?:\S*) (?:expires|now)=(\d+)")


def median(values, what):
    if len(values) < 30:
        raise trace.Broken(f"calibration: only {len(values)} occurrences of {what}")
    return statistics.median(values)


def calibrate(out, speed, ping_work, timer_work, timer_sleep):
    """All costs of one boot, from the recordings in `out`; works and sleep as the guests have them.

    `speed`: what guests computed per second and pCPU alone (spin_per_s) and two per pCPU, without
    and with a recording (shared_per_s, traced_per_s).
    """
    switch, leaving, tick, late, switches = of_hogs(out / "cal-hogs.txt")
    computing = 1 - 1e-6 * (switches * (switch + leaving) + HOST_HZ * tick)
    ipi = wake_to_run(out / "cal-busy.txt", "ping")
    idle = wake_to_run(out / "cal-idle.txt", "ping")
    slowdown = computing * speed["spin_per_s"] / speed["traced_per_s"]
    first, send = ping_rounds(out / "cal-busy.txt")
    on, off, spread = timer_rounds(out / "cal-timer.txt")
    # Sleeps are armed before the vCPU halts: that by which they seem too short is part of the round's work.
    short = min(0.0, off - timer_sleep)
    return {
        "switch": switch,
        "tick": tick,
        "preemption": leaving,
        "timer": 2 * max(0.0, late),
        "late": late,
        "ipi": ipi,
        "idle_wake": max(0.0, idle - ipi),
        "ping_interrupt": max(0.0, first - slowdown * ping_work - switch),
        "ping_send": send,
        "timer_interrupt": max(0.0, on - slowdown * timer_work - switch + short),
        "timer_slack": max(0.0, off - timer_sleep),
        "slowdown": slowdown,
        "spread": spread,
    }


def of_hogs(path):
    """Times of a switch, of leaving for one and of a tick; how late timers are; switches per second and pCPU."""
    vm_of, found = trace.events(path)
    exits, leaving, switches, ticks, lateness, due = {}, [], [], [], [], {}
    switched, switched_at, ticked = {}, {}, {}
    for now, cpu, thread, name, text in found:
        if name == "kvm_exit" and thread in vm_of:
            exits[cpu], switched[cpu], ticked[cpu] = now, 0, False
        elif name == "sched_switch":
            switched[cpu] = switched.get(cpu, 0) + 1
            switched_at[cpu] = now
        elif name == "hrtimer_expire_entry":
            ticked[cpu] = ticked.get(cpu, False) or "tick_nohz_handler" in text
        elif name == "kvm_entry" and thread in vm_of and cpu in exits:
            out = exits.pop(cpu)
            if switched[cpu] == 1:
                leaving.append(1e6 * (switched_at[cpu] - out))
                switches.append(1e6 * (now - switched_at[cpu]))
            elif switched[cpu] == 0 and ticked[cpu]:
                ticks.append(1e6 * (now - out))
        if name.startswith("hrtimer_") and (match := EXPIRES.search(text)):
            if name == "hrtimer_start":
                due[match[1]] = int(match[2])
            elif match[1] in due:
                lateness.append((int(match[2]) - due.pop(match[1])) / 1e3)
    median(lateness, "a slice timer that fires")
    return (
        median(switches, "a switch between vCPUs"),
        statistics.median(leaving),
        median(ticks, "a tick without a switch"),
        statistics.fmean(lateness),
        len(switches) / (found[-1][0] - found[0][0]) / PCPUS,
    )


def wake_to_run(path, vm):
    return 1e6 * median(trace.Trace(path).delays[vm], f"a wake-up of {vm}")


def rounds(path, vm):
    """(switched in, next wake-up it makes, switched out, next waking of itself) of each vCPU's turn."""
    vm_of, found = trace.events(path)
    mine = {thread for thread, (name, _) in vm_of.items() if name == vm}
    turns, began, woke = [], {}, {}
    left = {}
    for now, _, thread, name, text in found:
        if name == "sched_switch" and (match := trace.SWITCH.search(text)):
            before, state, after = int(match[1]), match[2], int(match[3])
            if before in mine and before in began:
                if state.startswith("S"):
                    turns.append([began[before], woke.get(before), now, None])
                    left[before] = turns[-1]
                del began[before]
            if after in mine:
                began[after] = now
                woke.pop(after, None)
        elif name == "sched_waking" and (match := trace.WAKE.search(text)):
            woken = int(match[1])
            if thread in mine:
                woke.setdefault(thread, now)
            if woken in left:
                left.pop(woken)[3] = now
    return turns


def ping_rounds(path):
    turns = [turn for turn in rounds(path, "ping") if turn[1]]
    first = median([1e6 * (turn[1] - turn[0]) for turn in turns], "a ping")
    return first, median([1e6 * (turn[2] - turn[1]) for turn in turns], "a ping")


def timer_rounds(path):
    turns = [turn for turn in rounds(path, "timer") if turn[3]]
    rounds_on = sorted(1e6 * (turn[2] - turn[0]) for turn in turns)
    on = median(rounds_on, "a timer's round")
    low, high = (rounds_on[int(share * len(rounds_on))] for share in (0.1, 0.9))
    # Evenly between 1 - s and 1 + s, the middle four fifths are 1.6 s wide.
    return on, median([1e6 * (turn[3] - turn[2]) for turn in turns], "a timer's sleep"), min(0.9, (high - low) / on / 1.6)
