# SPDX-License-Identifier: GPL-2.0-only
"""What a recording shows, the same way for the testbed's and the simulator's.

Problem: a simulator and a kernel are comparable only if the same code measures both.
How: follows the vCPUs through the text of ftrace: `sched_waking` and `sched_wakeup` make one ready,
`sched_switch` gives it a pCPU or takes it, `sched_migrate_task` changes its runqueue.
"""

import re
from collections import defaultdict

EVENT = re.compile(r"^ *(.*)-(\d+) +\[(\d+)\] +\S+ +(\d+\.\d+): ([a-z_]+): (.*)")
SWITCH = re.compile(r"prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+)")
WAKE = re.compile(r"pid=(\d+) .*target_cpu=(\d+)")
MIGRATE = re.compile(r"pid=(\d+) .*dest_cpu=(\d+)")
NAME = re.compile(r"guest=([^,\s]+)")


class Broken(Exception):
    """The recording cannot be used."""


def events(path, wanted=None):
    """Heads and events of a recording: (vms, list of (time, pCPU, thread, name, text))."""
    vm_of, found, process = {}, [], None
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line[0] != "#":
                match = EVENT.match(line)
                if match and (wanted is None or match[5] in wanted):
                    found.append((float(match[4]), int(match[3]), int(match[2]), match[5], match[6]))
            elif line.startswith("# process "):
                name = NAME.search(line)
                process = name[1] if name else None
            elif line.startswith("# thread ") and process:
                thread = re.match(r"# thread (\d+) CPU (\d+)/KVM$", line.rstrip())
                if thread:
                    vm_of[int(thread[1])] = (process, int(thread[2]))
            elif re.match(r"# (commit )?overrun: [1-9]|# dropped events: [1-9]", line):
                raise Broken(f"{path}: events were lost")
    if not found:
        raise Broken(f"{path}: no events")
    found.sort(key=lambda event: event[0])
    return vm_of, found


def percentile(values, share):
    """The value that this share of them is below; NaN if there are none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


class Account:
    """One vCPU's times, s."""

    def __init__(self):
        self.state, self.since = None, None
        self.spent = defaultdict(float)
        self.woken_at = None

    def enter(self, state, now, begin):
        if self.state is not None:
            self.spent[self.state] += max(0.0, now - max(self.since, begin))
        self.state, self.since = state, now


class Trace:
    """Measures a recording from `skip` seconds after its first event on."""

    def __init__(self, path, skip=0.0):
        self.vm_of, found = events(path, {"sched_switch", "sched_waking", "sched_wakeup", "sched_migrate_task"})
        self.begin, self.end = found[0][0] + skip, found[-1][0]
        self.accounts = {thread: Account() for thread in self.vm_of}
        self.queue_of = {}
        self.delays = defaultdict(list)
        self.switches = 0
        self.stacked = 0.0
        self.pcpus = 1 + max(cpu for _, cpu, *_ in found)
        before = None
        for now, cpu, _, name, text in found:
            if before is not None and now > self.begin:
                self.stacked += (now - max(before, self.begin)) * self.stacks()
            before = now
            self.event(now, cpu, name, text)
        for account in self.accounts.values():
            account.enter(None, self.end, self.begin)
        self.length = self.end - self.begin

    def event(self, now, cpu, name, text):
        if name == "sched_switch" and (match := SWITCH.search(text)):
            self.switch(now, cpu, int(match[1]), match[2], int(match[3]))
        elif name == "sched_waking" and (match := WAKE.search(text)):
            account = self.accounts.get(int(match[1]))
            if account and account.state in (None, "wait"):
                account.woken_at = now
                account.enter("ready", now, self.begin)
        elif name == "sched_wakeup" and (match := WAKE.search(text)):
            if int(match[1]) in self.accounts:
                self.queue_of[int(match[1])] = int(match[2])
        elif name == "sched_migrate_task" and (match := MIGRATE.search(text)):
            if int(match[1]) in self.queue_of:
                self.queue_of[int(match[1])] = int(match[2])

    def switch(self, now, cpu, before, state, after):
        if account := self.accounts.get(before):
            stays = state.startswith("R")
            account.enter("ready" if stays else "wait", now, self.begin)
            if stays:
                self.queue_of[before] = cpu
            else:
                self.queue_of.pop(before, None)
        if account := self.accounts.get(after):
            account.enter("run", now, self.begin)
            self.queue_of[after] = cpu
            if now >= self.begin:
                self.switches += 1
                if account.woken_at is not None and account.woken_at >= self.begin:
                    self.delays[self.vm_of[after][0]].append(now - account.woken_at)
            account.woken_at = None

    def stacks(self):
        """pCPUs with two or more vCPUs of one VM ready or running."""
        here = [(cpu, self.vm_of[thread][0]) for thread, cpu in self.queue_of.items()]
        return len({cpu for cpu, vm in here if here.count((cpu, vm)) > 1})

    def share(self, vm, state):
        """Share of the time of a VM's vCPUs spent so; None if there is no such VM."""
        spent = [a.spent for t, a in self.accounts.items() if self.vm_of[t][0] == vm]
        whole = sum(sum(s.values()) for s in spent)
        return sum(s[state] for s in spent) / whole if whole > 0 else None

    def delay(self, vm, share):
        """A percentile of the time from waking to running, us; None with fewer than 100 wake-ups."""
        delays = self.delays[vm]
        return 1e6 * percentile(delays, share) if len(delays) >= 100 else None

    def metric(self, row):
        """The number of a row of the table that a recording can tell."""
        kind, _, vm = row.partition(":")
        if kind == "switches":
            return self.switches / self.length
        if kind == "stacking":
            return self.stacked / (self.length * self.pcpus)
        if kind == "ready":
            return self.share(vm, "ready")
        return self.delay(vm, {"wake_p50": 0.5, "wake_p90": 0.9, "wake_p99": 0.99}[kind])
