#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Judges what the end-to-end test brought out of the emulated host; prints a table.

Usage: check.py DIR [pass|fail:NAME:DETAIL]…
Exit status: 0 all passed, 75 what failed were times and shares only, which an emulator whose threads
have to wait for cores makes uneven, 1 else

From each ftrace recording: the share of pCPU time in which a pCPU had two or more vCPUs of one VM
queued or running (stacking), and how long a pCPU idled although a vCPU was queued there.
"""

import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import contract
import cost
import cycles
import policies
import slices
import steal
import torture
import vsmtio
from table import Table

EVENT = re.compile(r"\[(\d+)\] \S+ +(\d+\.\d+): (sched_\w+): (.*)")
SWITCH = re.compile(r"prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+)")
WAKEUP = re.compile(r"pid=(\d+) .*target_cpu=(\d+)")
MIGRATE = re.compile(r"pid=(\d+) .*dest_cpu=(\d+)")
# What shells, timeout, xargs and the like say about a missing command.
NO_COMMAND = re.compile(r": not found\s*$|: (can't execute|applet not found|No such applet)")

# From queueing on an idle pCPU to running there takes a kick: some 0.05 ms, emulated. The emulator's threads may have
# to wait for a core themselves; a vCPU that was forgotten would wait for longer, or often.
IDLE_LONG = 0.010
IDLE_LONG_SHARE = 0.01
IDLE_LONGEST = 0.100


class Trace:
    """Follows vCPUs through a recording."""

    def __init__(self, path):
        self.vm_of = {}  # vCPU thread → process
        self.cpu_of = {}  # vCPU ready or running → pCPU
        self.idle = {}  # pCPU → does it idle?
        self.now = None
        self.began = None
        self.stacks = []  # lengths of stacked stretches, s
        self.stacked_since = {}
        self.leaving = 0  # stretches that ended when a sibling was switched out, asleep
        self.idle_lost = []  # lengths of stretches idle with someone queued, s
        self.lost_since = {}
        self.idle_beside = 0.0  # time × pCPUs idle while a vCPU waits somewhere
        self.running = {}  # pCPU → task
        self.overrun = False
        self.cpus = set()
        process = None
        for line in open(path, encoding="utf-8", errors="replace"):
            if line.startswith("# process "):
                process = line.split()[2]
            elif line.startswith("# thread ") and re.search(r"CPU \d+/KVM$", line):
                self.vm_of[line.split()[2]] = process
            elif re.match(r"# (commit )?overrun: [1-9]|# dropped events: [1-9]", line):
                self.overrun = True
            elif line[0] != "#":
                match = EVENT.search(line)
                if match:
                    self.event(*match.groups())
        self.settle(final=True)

    def event(self, cpu, time, name, text):
        before, self.now = self.now, float(time)
        if before is not None and len(self.cpu_of) > self.vcpus_running():
            self.idle_beside += (self.now - before) * sum(self.idle.values())
        if self.began is None:
            self.began = self.now
        self.cpus.add(cpu)
        if name == "sched_switch" and (match := SWITCH.search(text)):
            self.switch(cpu, *match.groups())
        elif name == "sched_wakeup" and (match := WAKEUP.search(text)):
            self.put(match[1], str(int(match[2])).zfill(3))
        elif name == "sched_migrate_task" and (match := MIGRATE.search(text)):
            if match[1] in self.cpu_of:
                self.put(match[1], str(int(match[2])).zfill(3))
        self.settle()

    def switch(self, cpu, before, state, after):
        if before in self.vm_of:
            if state.startswith("R"):
                self.put(before, cpu)
            else:
                # Asleep and out of the queue, but on the pCPU until this very moment.
                self.cpu_of.pop(before, None)
                self.leaving += cpu in self.stacked_since
        self.put(after, cpu)
        self.idle[cpu] = after == "0"
        self.running[cpu] = after

    def vcpus_running(self):
        return sum(task in self.vm_of for task in self.running.values())

    def put(self, task, cpu):
        if task in self.vm_of:
            self.cpu_of[task] = cpu

    def settle(self, final=False):
        """Opens and closes stretches according to how things stand now."""
        here = defaultdict(int)
        for task, cpu in self.cpu_of.items():
            here[cpu, self.vm_of[task]] += 1
        queued = {cpu for cpu, _ in here}
        stacked = {cpu for (cpu, _), count in here.items() if count > 1}
        lost = {cpu for cpu in queued if self.idle.get(cpu)}
        for cpu in self.cpus:
            stretch(self.stacked_since, self.stacks, cpu, cpu in stacked and not final, self.now)
            stretch(self.lost_since, self.idle_lost, cpu, cpu in lost and not final, self.now)

    @property
    def idle_share(self):
        return self.idle_beside / ((self.now - self.began) * len(self.cpus))

    @property
    def share(self):
        return sum(self.stacks) / ((self.now - self.began) * len(self.cpus))


def stretch(since, lengths, key, open_now, now):
    if open_now:
        since.setdefault(key, now)
    elif key in since:
        lengths.append(now - since.pop(key))


def ms(seconds):
    return f"{1000 * seconds:.2f} ms"


def judge_traces(out, table):
    shares = defaultdict(list)
    for path in sorted(out.glob("trace-*.txt")):
        trace = Trace(path)
        mix, scheduler, _ = path.stem.removeprefix("trace-").split("-")
        if mix == "mix":
            shares[scheduler].append(trace.share)
        longest = max(trace.stacks, default=0)
        lost = max(trace.idle_lost, default=0)
        print(
            f"      {path.stem}: stacked {100 * trace.share:.3f} % of pCPU time, "
            f"{len(trace.stacks)} times, longest {ms(longest)}; "
            f"{trace.leaving} of them a sibling on its way out; "
            f"idle beside a queued vCPU {ms(sum(trace.idle_lost))}, longest {ms(lost)}; "
            f"idle while a vCPU waits anywhere {100 * trace.idle_share:.2f} %"
            + ("; events were lost" if trace.overrun else "")
        )
        if scheduler != "eevdf":
            long = sum(length > IDLE_LONG for length in trace.idle_lost)
            good = lost < IDLE_LONGEST and long <= IDLE_LONG_SHARE * len(trace.idle_lost)
            detail = f"{long} of {len(trace.idle_lost)} kicks took > {ms(IDLE_LONG)}"
            table.row(good, f"{path.stem}: no vCPU forgotten", detail, measured=True)
        wanted = 6 if mix == "mix" else 4
        table.row(len(trace.vm_of) == wanted, f"{path.stem}: all vCPUs recorded", f"{wanted}")
    for name, limit in (("eevdf", None), ("balance", 0.005)) if shares else ():
        values = shares[name]
        median = statistics.median(values) if values else float("nan")
        each = ", ".join(f"{100 * value:.3f}" for value in values)
        good = len(values) >= 3 and (median < limit if limit else median > 0.005)
        wanted = f"< {100 * limit} %" if limit else "there is something to gain: > 0.5 %"
        # The kernel's own scheduler stacks by chance; balance never may.
        detail = f"median {100 * median:.3f} % of {each} ({wanted})"
        table.row(good, f"stacking under {name}", detail, measured=not limit)


def judge_commands(out, table):
    """A shell goes on without a command that is not there: what it was to do would count as done."""
    file = out / "console.log"
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    missing = [line.strip() for line in lines if NO_COMMAND.search(line)]
    if file.exists():
        table.row(not missing, "every command is there", missing[0] if missing else f"{len(lines)} lines of console")


def judge_numbers(out, table):
    numbers = defaultdict(list)
    file = out / "numbers.tsv"
    for line in file.read_text().splitlines() if file.exists() else ():
        name, value = line.split("\t")
        numbers[name].append(float(value))
    for name, values in numbers.items():
        median = statistics.median(values)
        each = f"median {median:.3f} of {values}"
        if name.startswith("fairness"):
            detail = f"furthest from the mean: {100 * median:.1f} % (<= 10 %)"
            table.row(median <= 0.10, name, detail, measured=True)
        elif name == "weights corun":
            # 1.0 was the bug that this looks for; 2.4 was a daemon that took a tenth of the host.
            good = 2.5 <= median <= 3.5 and len(values) >= 3
            table.row(good, name, f"{each} (2.5 to 3.5)", measured=True)
        elif name.startswith("beside"):
            spread = f"{min(values):.1f} to {max(values):.1f}"
            detail = f"median {median:.1f} iterations per second, {spread}, {len(values)} runs (>= 5)"
            table.row(len(values) >= 5, name, detail)
        else:
            print(f"      {name}: {each}")


def main():
    out = Path(sys.argv[1])
    table = Table()
    verdicts = out / "verdicts.tsv"
    for line in verdicts.read_text().splitlines() if verdicts.exists() else ():
        word, name, detail = line.split("\t")
        table.row(word == "pass", name, detail)
    judge_commands(out, table)
    torture.show(out)
    judge_numbers(out, table)
    judge_traces(out, table)
    contract.judge(out, table)
    cost.judge(out, table)
    cycles.judge(out, table)
    policies.judge(out, table)
    steal.judge(out, table)
    vsmtio.judge(out, table)
    for directory in sorted(out.glob("slices-*")):
        slices.judge(directory, table)
    for line in sys.argv[2:]:
        word, name, detail = line.split(":", 2)
        table.row(word == "pass", name, detail)
    print(f"{table.passed} passed, {table.failed} failed")
    sys.exit(0 if not table.failed else 75 if table.failed == table.uneven else 1)


if __name__ == "__main__":
    main()
