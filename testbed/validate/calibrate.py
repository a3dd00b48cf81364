# SPDX-License-Identifier: GPL-2.0-only
"""What scheduling costs in the testbed, from recordings of its calibration runs; all in us.

Each cost is the median over all its occurrences in one boot:

- switch: from the old vCPU's last kvm_exit before a switch to the new one's kvm_entry after it;
- tick: from kvm_exit to kvm_entry around a tick without a switch;
- timer: twice the mean lateness of the timer that ends slices (the simulator draws evenly from 0);
- ipi: from waking a real-time vCPU to its switch, on a pCPU that a hog has;
- idle_wake: the same on an idle pCPU, less the IPI;
- interrupt, send (ping) and interrupt, slack (timer): what a guest's round takes beside its work.
"""

import re
import statistics

import trace

EXPIRES = re.compile(r"hrtimer=(\S+) function=hrtick(?:\S*) (?:expires|now)=(\d+)")


def median(values, what):
    if len(values) < 30:
        raise trace.Broken(f"calibration: only {len(values)} occurrences of {what}")
    return statistics.median(values)


def calibrate(out, ping_work, timer_work, timer_sleep):
    """All costs of one boot, from the recordings in `out`; works and sleep as the guests have them."""
    switch, tick, timer = of_hogs(out / "cal-hogs.txt")
    ipi = wake_to_run(out / "cal-busy.txt", "ping")
    idle = wake_to_run(out / "cal-idle.txt", "ping")
    first, send = ping_rounds(out / "cal-idle.txt")
    on, off = timer_rounds(out / "cal-timer.txt")
    # Sleeps are armed before the vCPU halts: what they seem too short is part of the round's work.
    short = min(0.0, off - timer_sleep)
    return {
        "switch": switch,
        "tick": tick,
        "timer": timer,
        "ipi": ipi,
        "idle_wake": max(0.0, idle - ipi),
        "ping_interrupt": max(0.0, first - ping_work - switch),
        "ping_send": send,
        "timer_interrupt": max(0.0, on - timer_work - switch + short),
        "timer_slack": max(0.0, off - timer_sleep),
    }


def of_hogs(path):
    vm_of, found = trace.events(path)
    exits, switches, ticks, lateness, due = {}, [], [], [], {}
    switched, ticked = {}, {}
    for now, cpu, thread, name, text in found:
        if name == "kvm_exit" and thread in vm_of:
            exits[cpu], switched[cpu], ticked[cpu] = now, 0, False
        elif name == "sched_switch":
            switched[cpu] = switched.get(cpu, 0) + 1
        elif name == "hrtimer_expire_entry":
            ticked[cpu] = ticked.get(cpu, False) or "tick_nohz_handler" in text
        elif name == "kvm_entry" and thread in vm_of and cpu in exits:
            took = 1e6 * (now - exits.pop(cpu))
            if switched[cpu] == 1:
                switches.append(took)
            elif switched[cpu] == 0 and ticked[cpu]:
                ticks.append(took)
        if name.startswith("hrtimer_") and (match := EXPIRES.search(text)):
            if name == "hrtimer_start":
                due[match[1]] = int(match[2])
            elif match[1] in due:
                lateness.append((int(match[2]) - due.pop(match[1])) / 1e3)
    median(lateness, "a slice timer that fires")
    return (
        median(switches, "a switch between vCPUs"),
        median(ticks, "a tick without a switch"),
        2 * max(0.0, statistics.fmean(lateness)),
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
    on = median([1e6 * (turn[2] - turn[0]) for turn in turns], "a timer's round")
    return on, median([1e6 * (turn[3] - turn[2]) for turn in turns], "a timer's sleep")
