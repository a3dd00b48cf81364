# SPDX-License-Identifier: GPL-2.0-only
"""Measures `corun guest` in an emulated VM whose two vCPUs lose their CPUs half of the time.

Problem: on a development machine no two VMs share a pCPU as on an overcommitted host.
How: QEMU emulates a guest; each vCPU thread is tied to a CPU that a real-time thread takes for 360 ms,
gives back for 360 ms, and so on, the two CPUs by turns. Emulated, instructions take some twenty times
their time and heartbeats and migrations more, so that the paper's slices of 11 ms, heartbeats of 300 us
and a fast disk's requests of a tenth of a millisecond are all 33 times as long. Three ways by turns: nothing shared, shared, shared with `corun guest`.
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time

TURN_MS = 360
LATENCY_NS = 3_000_000
HEARTBEAT_MS = 10
OPTIONS = ["--heartbeat", f"{HEARTBEAT_MS}ms", "--own-permille", "500"]
# The shortest absence that heartbeats notice: a silence of two of them.
LEAST_ABSENCE = 2 * HEARTBEAT_MS * 1_000_000
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/guest.md")
# The two CPUs that vCPUs are tied to, and that competitors take.
CPUS = sorted(os.sched_getaffinity(0))[:2]
WAYS = ["alone", "vanilla", "corun"]
BOOT_LIMIT = 90
LIMIT = 60
OUTCOME_LIMIT = 120
SUSPENDED = 12
# What robust.sh tries, for people.
WHAT = {
    "ended": "SIGTERM while a thread is moved",
    "killed": "SIGKILL while a thread is moved, then `corun guest restore`",
    "storm": "threads that come and go",
    "regrouped": "`--cgroup`: a thread that comes and goes",
    "one_vcpu": "a vCPU unplugged, and plugged in again",
    "clock": "the clock an hour back, then a day on",
    "suspended": f"the VM stopped for {SUSPENDED} s",
}


class Guest:
    """The emulated VM, and a line to talk to it."""

    def __init__(self, args):
        path = os.path.join(args.out, "control.sock")
        if os.path.exists(path):
            os.unlink(path)
        self.console = open(os.path.join(args.out, "console.log"), "wb")
        self.process = subprocess.Popen(self.command(args, path), stdin=subprocess.DEVNULL,
                                        stdout=self.console, stderr=subprocess.STDOUT,
                                        start_new_session=True)
        go_first(self.process.pid)
        self.line = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + BOOT_LIMIT
        while True:
            try:
                self.line.connect(path)
                break
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise SystemExit("the emulator did not start: see console.log")
                time.sleep(0.05)
        self.rest = b""
        if self.hear(BOOT_LIMIT) != "ready":
            raise SystemExit("the guest did not come up: see console.log")
        self.place()

    @staticmethod
    def command(args, path):
        append = "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable " + clock()
        # setpriv: should this script be killed, QEMU ends with it.
        return ["setpriv", "--pdeathsig", "KILL", args.qemu, "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m", "512",
                "-name", "guest=bench,debug-threads=on", "-display", "none", "-monitor", "none",
                "-nic", "none", "-no-reboot", "-serial", "stdio",
                "-chardev", f"socket,id=control,path={path},server=on,wait=off",
                "-serial", "chardev:control", "-object", "iothread,id=disk",
                "-blockdev", "driver=null-co,node-name=null,size=1073741824,read-zeroes=on,"
                f"latency-ns={LATENCY_NS}",
                "-device", "virtio-blk-pci,drive=null,iothread=disk",
                "-kernel", args.kernel, "-initrd", args.initramfs, "-append", append]

    def threads(self):
        folder = f"/proc/{self.process.pid}/task"
        for tid in map(int, os.listdir(folder)):
            with open(f"{folder}/{tid}/comm", encoding="utf-8") as file:
                yield tid, file.read().strip()

    def place(self):
        """vCPUs on a CPU each; QEMU's other threads, which are its guest's timers and its disk, before
        competitors, wherever they like."""
        vcpus = 0
        for tid, name in self.threads():
            number = re.fullmatch(r"CPU (\d+)/TCG", name)
            if number:
                os.sched_setaffinity(tid, {CPUS[int(number[1])]})
                vcpus += 1
            else:
                os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(2))
        if vcpus != 2:
            raise SystemExit(f"{vcpus} vCPU threads instead of two")

    def vcpus(self):
        return [tid for tid, name in self.threads() if name.startswith("CPU ")]

    def waited(self):
        """How long vCPU threads were ready but did not run, ns, by the host's own account."""
        total = 0
        for tid in self.vcpus():
            with open(f"/proc/{self.process.pid}/task/{tid}/schedstat", encoding="utf-8") as file:
                total += int(file.read().split()[1])
        return total

    def say(self, words):
        self.line.sendall((words + "\n").encode())

    def hear(self, limit):
        deadline = time.monotonic() + limit
        while b"\n" not in self.rest:
            self.line.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                got = self.line.recv(65536)
            except socket.timeout:
                got = b""
            if not got:
                raise SystemExit(f"the guest said nothing for {limit} s: see console.log")
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode().strip()

    def ask(self, words):
        self.say(words)
        return json.loads(self.hear(LIMIT))

    def suspend(self, seconds):
        """Stands still as a whole, its clock goes on."""
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self):
        self.say("end")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Trace:
    """The host's own account of when vCPU threads did not run although they wanted to: its switches."""

    FOLDER = "/sys/kernel/tracing/instances/corun-bench-guest"
    SWITCH = re.compile(r" (\d+\.\d+): sched_switch: .*prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+) ")

    def __init__(self, tids):
        self.tids = tids
        try:
            os.mkdir(self.FOLDER)
        except FileExistsError:
            pass
        except OSError:
            self.tids = []  # no tracing here
            return
        self.write("trace_clock", "mono")
        self.write("buffer_size_kb", "8192")
        either = " || ".join(f"prev_pid == {tid} || next_pid == {tid}" for tid in tids)
        self.write("events/sched/sched_switch/filter", either)
        self.write("events/sched/sched_switch/enable", "1")

    def write(self, name, text):
        with open(f"{self.FOLDER}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def absences(self):
        """Of all vCPUs together, as long as can be heard. None: it could not be traced."""
        if not self.tids:
            return None
        self.write("events/sched/sched_switch/enable", "0")
        left, lengths = {}, []
        with open(f"{self.FOLDER}/trace", encoding="utf-8") as file:
            for line in file:
                found = self.SWITCH.search(line)
                if not found:
                    continue
                at, before, after = float(found[1]), int(found[2]), int(found[4])
                if before in self.tids and found[3].startswith("R"):
                    left[before] = at
                if after in self.tids and after in left:
                    length = int((at - left.pop(after)) * 1e9)
                    if length > LEAST_ABSENCE:
                        lengths.append(length)
        os.rmdir(self.FOLDER)
        return lengths


class Competitors:
    """Other VMs' vCPUs."""

    def __init__(self, args):
        cpus = [str(cpu) for cpu in CPUS]
        self.process = subprocess.Popen([args.load, "outside", str(args.turn), *cpus],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def report(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def go_first(pid):
    """Before this machine's other work: sessions have weights of their own where the kernel groups them
    (autogroup), processes elsewhere."""
    os.setpriority(os.PRIO_PROCESS, pid, -20)
    try:
        with open(f"/proc/{pid}/autogroup", "w", encoding="utf-8") as file:
            file.write("-20")
    except OSError:
        pass


def clock():
    """A starved emulator measures its clock wrongly; inside a VM the machine knows the right value."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    mhz = re.search(r"^cpu MHz\s*: ([\d.]+)", text, re.M)
    inside = re.search(r"^flags.* hypervisor", text, re.M)
    return f"tsc_early_khz={int(float(mhz[1]) * 1000)}" if mhz and inside else ""


def measure(guest, args, way):
    competitors = None if way == "alone" else Competitors(args)
    trace = Trace(guest.vcpus()) if way == "corun" else None
    try:
        before = competitors.report() if competitors else None
        waited = guest.waited()
        options = args.options.split() if way == "corun" else []
        result = guest.ask(" ".join(["measure", str(args.seconds), str(args.readers), *options]))
        if competitors:
            after = competitors.report()
            result["turns"] = [a["turns"] - b["turns"] for a, b in zip(after, before)]
            result["taken_ns"] = [a["taken_ns"] - b["taken_ns"] for a, b in zip(after, before)]
        result["waited_ns"] = guest.waited() - waited
        if trace:
            result["absences_ns"] = trace.absences()
    finally:
        if competitors:
            competitors.end()
    if result["load"] is None:
        raise SystemExit("the load failed: see console.log")
    return result


def reads(result):
    return sum(result["load"]["reads"]) / result["load"]["seconds"]


def rounds(result):
    return sum(result["load"]["rounds"]) / result["load"]["seconds"]


def spread(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def table(results, args):
    lines = ["| way | reads/s, median (range) | of alone | of vanilla | computing, of vanilla |",
             "|---|---|---|---|---|"]
    medians = {way: statistics.median(map(reads, results[way])) for way in WAYS}
    work = {way: statistics.median(map(rounds, results[way])) for way in WAYS}
    for way in WAYS:
        lines.append(f"| {way} | {spread(list(map(reads, results[way])))} | "
                     f"{medians[way] / medians['alone']:.2f} | {medians[way] / medians['vanilla']:.2f} | "
                     f"{work[way] / work['vanilla']:.2f} |")
    return lines + accuracy(results["corun"], args)


def accuracy(runs, args):
    """The guest's view of its vCPUs beside the host's trace of their threads, and the price."""
    lines = ["", "| run | absences a second: heard / turns of others | mean absence, ms: heard / in the host's trace | "
             "moves (least) | push, soon, pull | own use, % of a vCPU |",
             "|---|---|---|---|---|---|"]
    for number, run in enumerate(runs, 1):
        status = run["status"]
        if status is None:
            lines.append(f"| {number} | no status |")
            continue
        heard = sum(vcpu["descheduled"] for vcpu in status["vcpus"])
        away = sum(vcpu["away_ns"] for vcpu in status["vcpus"])
        traced = run["absences_ns"]
        if traced is None:
            mean = "not traced"
        else:
            mean = f"{sum(traced) / max(len(traced), 1) / 1e6:.1f}"
        moves = status["moves"]
        made = sum(moves[why] for why in ("push", "pull", "soon", "spread"))
        least = status["running_ns"] / 1e6 / args.turn * args.readers
        lines.append(f"| {number} | {heard / status['running_ns'] * 1e9:.2f} / {1000 / args.turn:.2f} | "
                     f"{away / max(heard, 1) / 1e6:.1f} / {mean} | "
                     f"{made} ({least:.0f}) | {moves['push']}, {moves['soon']}, {moves['pull']} | "
                     f"{status['own_permille'] / 10:.1f} |")
    return lines


def robust(guest, args):
    """What becomes of the daemon and of the masks it has set: robust.sh in the guest."""
    competitors, lines = Competitors(args), ["| what | outcome | as it should be |", "|---|---|---|"]
    try:
        guest.say("outcomes")
        while True:
            line = guest.hear(OUTCOME_LIMIT)
            if line == "suspend":
                guest.suspend(SUSPENDED)
                guest.say("go on")
                continue
            outcome = json.loads(line)
            if outcome["what"] == "end":
                return lines
            right = "yes" if outcome["right"] else "**no**"
            lines.append(f"| {WHAT[outcome['what']]} | {outcome['outcome']} | {right} |")
            print(lines[-1], file=sys.stderr, flush=True)
    finally:
        competitors.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("qemu", "kernel", "initramfs", "load", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--runs", type=int, default=5, help="of each way, by turns")
    parser.add_argument("--seconds", type=int, default=12, help="that a run counts for")
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--turn", type=int, default=TURN_MS, help="of a competitor, ms")
    parser.add_argument("--options", default=" ".join(OPTIONS), help="for corun guest run")
    parser.add_argument("--only", choices=["measure", "robust"], help="robust: what goes wrong while threads are moved")
    parser.add_argument("--write", action="store_true", help="also write docs/guest.md")
    args = parser.parse_args()
    # Before anything else: the emulator is placed while it starts.
    guest = Guest(args)
    try:
        if args.only != "robust":
            lines = table(measure_all(guest, args), args)
            show("measured", lines, args)
        if args.only != "measure":
            show("robust", robust(guest, args), args)
    finally:
        guest.end()


def measure_all(guest, args):
    results = {way: [] for way in WAYS}
    try:
        for run in range(args.runs):
            for way in WAYS:
                result = measure(guest, args, way)
                results[way].append(result)
                print(f"run {run + 1}, {way}: {reads(result):.0f} reads/s", file=sys.stderr, flush=True)
    finally:
        with open(os.path.join(args.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return results


def show(name, lines, args):
    """Prints a table, keeps it, and puts it where the page has room for it."""
    text = "\n".join(lines) + "\n"
    print(text)
    with open(os.path.join(args.out, f"{name}.md"), "w", encoding="utf-8") as file:
        file.write(text)
    if args.write:
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        begin, end = f"<!-- {name}: written by make bench-guest WRITE=1 -->\n", f"<!-- {name}: end -->\n"
        head, rest = page.split(begin)
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(head + begin + "\n" + text + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
