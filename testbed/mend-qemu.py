#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Makes a fault of QEMU's harmless in our copy of it.

Problem: whenever an emulated pCPU restores floating-point registers, QEMU (seen in 11.1.3) clears a bit of the
*first* pCPU's `hflags2`, from the thread of whichever pCPU it is and without an atomic operation
(`cpu_set_fpus()`, `cpu_clear_ignne()`). What the first pCPU writes there at that moment is lost; in the middle of
VMRUN or of a VM exit that is whether nested paging is on. Guests end by a triple fault then, or the emulated host does.
How: `cpu_clear_ignne()` returns at once. It stands for a signal of the 387's on PCs of the eighties (IGNNE#), which no
64-bit kernel uses.

Usage: mend-qemu.py FILE      prints what it did; a QEMU without this function, or with another beginning, is left as it is
"""

import re
import subprocess
import sys

FUNCTION = "cpu_clear_ignne"
ENDBR64, RET = bytes.fromhex("f30f1efa"), bytes.fromhex("c3")


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments], check=True, capture_output=True, text=True).stdout


def place_in_file(file):
    """Where the function begins in the file, or None."""
    symbol = re.search(rf"^ *\d+: ([0-9a-f]+) .* FUNC .* {FUNCTION}$", readelf("--dyn-syms", file), re.MULTILINE)
    if not symbol:
        return None
    address = int(symbol[1], 16)
    for line in readelf("--program-headers", file).splitlines():
        if line.split()[:1] == ["LOAD"]:
            offset, start, _, size = (int(field, 16) for field in line.split()[1:5])
            if start <= address < start + size:
                return offset + address - start
    return None


def main(file):
    place = place_in_file(file)
    if place is None:
        return f"{FUNCTION}() is not in this QEMU: nothing to mend"
    with open(file, "r+b") as binary:
        binary.seek(place)
        if binary.read(len(ENDBR64)) != ENDBR64:
            return f"{FUNCTION}() begins otherwise than expected: left as it is"
        if binary.read(1) == RET:
            return f"{FUNCTION}() is mended already"
        binary.seek(place + len(ENDBR64))
        binary.write(RET)
    return f"{FUNCTION}() returns at once now"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(main(sys.argv[1]))
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"mend-qemu.py: {sys.argv[1]} cannot be mended: {error}")
