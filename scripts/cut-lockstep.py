#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Cuts a lockstep recording to its beginning, gzip'ed: what is committed of one made on the testbed.

Problem: a recording of some seconds has megabytes, and only its beginning can be replayed alone, since
each callback goes on from what earlier ones left of its task.
How: as many callbacks as fit, all marks of policies between them, and the trailer of the whole, so that
records the kernel lost stay known. The format is described in crates/dispatcher/src/lockstep/format.rs.

Usage: cut-lockstep.py RECORDING OUT.lockstep.gz [MOST_BYTES]
"""

import gzip
import struct
import sys
from pathlib import Path

MARK, TRAILER = 0xFFFFFFFE, 0xFFFFFFFF
MOST_CALLBACKS = 5000


def records(data, at):
    """Each record, its length in front, and its kind of callback."""
    while at + 8 <= len(data):
        length, op = struct.unpack_from("<II", data, at)
        yield op, data[at : at + 4 + length]
        at += 4 + length


def cut(data, callbacks):
    if data[:8] != b"CORUNLK1":
        raise SystemExit("not a lockstep recording: it begins otherwise than with CORUNLK1")
    begin = 16 + struct.unpack_from("<I", data, 12)[0]
    kept, trailer, count = [data[:begin]], b"", 0
    for op, record in records(data, begin):
        if op == TRAILER:
            trailer = record
        elif op == MARK and count < callbacks:
            kept.append(record)
        elif op != MARK and count < callbacks:
            kept.append(record)
            count += 1
    if not trailer:
        raise SystemExit("the recording has no trailer: it was cut short")
    return b"".join([*kept, trailer]), count


def main():
    source, target, most = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 145_000
    data = Path(source).read_bytes()
    callbacks = MOST_CALLBACKS
    while True:
        whole, count = cut(data, callbacks)
        packed = gzip.compress(whole, 9, mtime=0)
        if len(packed) <= most:
            break
        callbacks = callbacks * 9 // 10
    target.write_bytes(packed)
    print(f"{target}: {count} callbacks, {len(packed)} bytes")


if __name__ == "__main__":
    main()
