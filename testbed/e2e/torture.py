# SPDX-License-Identifier: GPL-2.0-only
"""The table of faults that docs/torture.md has: how often each, and what became of its verdicts.

Reads torture.tsv (host/torture.sh: pattern of verdicts, fault, times, detail) and verdicts.tsv, of all boots.
"""

from fnmatch import fnmatchcase


def show(out):
    """Prints it, if there is one."""
    file = out / "torture.tsv"
    if not file.exists():
        return
    verdicts = [line.split("\t")[:2] for line in (out / "verdicts.tsv").read_text().splitlines()]
    print("\n| fault | times | | verdicts passed |")
    print("|---|---|---|---|")
    for line in file.read_text().splitlines():
        pattern, fault, times, detail = line.split("\t")
        words = [word for word, name in verdicts if fnmatchcase(name, pattern)]
        print(f"| {fault} | {times} | {detail.strip()} | {words.count('pass')} of {len(words)} |")
    print()
