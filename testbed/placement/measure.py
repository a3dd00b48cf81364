#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Measures where a kernel puts threads, for testbed/placement/measured.toml.

Problem: the simulator's CFS and EEVDF are written from the kernel's sources; whether they do what those do only a
kernel can tell, and those of the papers' hosts (Linux 2.6.33 to 5.3) run nothing of the testbed's.
How: QEMU boots the kernel with load.c as its init, counting instructions (-icount) on one emulated CPU after the
other: the machine's clock is the number of instructions executed, so that a busy or slow computer changes nothing.
(Runs are not the same to the last digit: what is read of the real time, when it boots, shifts them.) A CPU of N is N
times as slow as its clock says; costs of the kernel weigh as much more. Prints TOML.

Usage: measure.py KERNEL [--name VERSION] [--cpu MODEL] [--begins MS[,MS…]] [SCENARIO…]
    KERNEL: a bzImage with what kernel.config lists; Debian's kernels have it
    --cpu: QEMU's CPU model; kernels of 2010 want an old one (Conroe)
    --begins: milliseconds within which threads begin; one run for each [200]
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "corun/testbed"
TESTBED = pathlib.Path(os.environ.get("CORUN_TESTBED_CACHE", CACHE))
QEMU = TESTBED / "qemu/qemu-system-x86_64"
BUSYBOX = TESTBED / "tools/usr/bin/busybox"
LIMIT = 900  # seconds for a run
SECONDS, WARM_UP = 3, 1
GROUP = re.compile(r"^GROUP (\S+) run (\S+) ready (\S+) turns (\S+) migrations (\S+) rounds (\S+) stacked (\S+)", re.M)


def initramfs(into):
    """Builds load.c and packs it as the machine's only program."""
    root = into / "root"
    for name in ("proc", "dev", "cg"):
        (root / name).mkdir(parents=True)
    subprocess.run(
        ["cc", "-O1", "-Wall", "-static", "-o", root / "init", HERE / "load.c", "-lpthread"], check=True
    )
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    archive = into / "initramfs"
    with archive.open("wb") as file:
        command = [BUSYBOX, "cpio", "-o", "-H", "newc", "-R", "0:0"]
        quiet = subprocess.DEVNULL
        subprocess.run(command, cwd=root, input=names.encode(), stdout=file, stderr=quiet, check=True)
    return archive


def boot(arguments, archive, scenario, begins):
    """Has the kernel do it once; what it printed of each group."""
    environment = {f"G{n + 1}": group for n, group in enumerate(scenario["groups"])}
    environment |= {"DUR": SECONDS, "WARM": WARM_UP, "STAGGER": begins, "CG": int(scenario["cgroups"])}
    append = ["console=ttyS0", "quiet", "panic=-1", "mitigations=off", "nopti"]
    append += [f"{key}={value}" for key, value in environment.items()]
    cpu = arguments.cpu + (",topoext=on" if arguments.cpu.startswith("max") else "")
    command = [QEMU, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", cpu]
    command += ["-smp", scenario["smp"], "-m", "1024", "-display", "none", "-monitor", "none", "-nic", "none"]
    command += ["-no-reboot", "-serial", "stdio", "-kernel", arguments.kernel, "-initrd", archive]
    command += ["-append", " ".join(append)]
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=quiet, capture_output=True, text=True, errors="replace", timeout=LIMIT)
    except subprocess.TimeoutExpired:
        sys.exit(f"measure.py: the kernel was not done after {LIMIT} s (does it say anything on ttyS0?)")
    groups = GROUP.findall(done.stdout)
    if len(groups) != len(scenario["groups"]) or "ERROR" in done.stdout:
        sys.exit(f"measure.py: the kernel did not say what it did:\n{done.stdout[-2000:]}{done.stderr[-500:]}")
    return [[float(word) for word in group[1:]] for group in groups]


def milliseconds(text):
    """The argument of --begins."""
    times = text.split(",")
    if not all(time.isdecimal() for time in times):
        raise argparse.ArgumentTypeError(f"{text!r}: milliseconds are expected, with commas between several")
    return [int(time) for time in times]


def main():
    """Measures the scenarios that are asked for."""
    parser = argparse.ArgumentParser(description="Measures where a kernel puts threads.")
    parser.add_argument("kernel", type=pathlib.Path)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--name", default="")
    parser.add_argument("--cpu", default="max,la57=off")
    parser.add_argument("--begins", type=milliseconds, default=[200])
    arguments = parser.parse_intermixed_args()
    if not arguments.kernel.is_file():
        sys.exit(f"measure.py: no kernel {str(arguments.kernel)!r}; it takes a bzImage")
    if not QEMU.exists():
        sys.exit(f"measure.py: {QEMU} is not there; testbed/fetch.sh fetches it")
    known = tomllib.loads((HERE / "scenarios.toml").read_text())["scenario"]
    names = arguments.scenarios or list(known)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"measure.py: no scenario {unknown[0]}; there are {', '.join(known)}")
    with tempfile.TemporaryDirectory() as directory:
        archive = initramfs(pathlib.Path(directory))
        for name in names:
            for begins in arguments.begins:
                groups = boot(arguments, archive, known[name], begins)
                print(f'[[measured]]\nkernel = "{arguments.name or arguments.kernel.name}"\nscenario = "{name}"')
                print(f"begins_ms = {begins}")
                for key, column in (("run", 0), ("ready", 1), ("rounds_per_s", 4), ("migrations_per_s", 3), ("stacked", 5)):
                    values = ", ".join(f"{group[column]:g}" for group in groups)
                    print(f"{key} = [{values}]")
                print(flush=True)


main()
