#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Commands that the book gives and that a plain test cannot afford.

Problem: the book's commands are run by a test (crates/cli/tests/command/book), but some take long, and some need root and
a KVM host; of these, that test checks the arguments only.
How: they are taken from the pages themselves, by the word behind the fence of their block (crates/cli/tests/command/book
says which there are). `run slow` runs those that take long; `list host`, `list running` and `list guest` give
those for a host to the end-to-end test (testbed/e2e), which runs them in the emulated host.

Usage: book.py list KIND        a line for each command: its page and line, a tab, the command
       book.py run slow CORUN   runs them with the program CORUN; the last line is `N passed, M failed`
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What the repository's own checks run is not run again here.
ELSEWHERE = re.compile(r"(cargo|make) ")
# Checking everything that can be checked takes some ten minutes, with shorter runs a few; `make claims` does that
# before each release. Here: the claims of one table.
SHORTER = {
    "corun reproduce": "corun reproduce 'balance.table1.*' --quick",
    "corun reproduce --quick": "corun reproduce 'balance.table1.*' --quick",
}


def commands(kind):
    """(where, command) of every block of this kind, lines that go on joined, comments left out."""
    pages = sorted(ROOT.glob("docs/*.md")) + [ROOT / "ARCHITECTURE.md", ROOT / "README.md"]
    for page in pages:
        inside, held = None, ""
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                inside = None if inside is not None else line[3:]
            elif inside == f"sh {kind}":
                text = re.sub(r"(^|\s+)#.*", "", line).strip()
                held += text.removesuffix("\\")
                if held and not text.endswith("\\"):
                    yield f"{page.relative_to(ROOT)}:{number}", held
                    held = ""


def run(corun):
    """Each command once, in an empty directory with what a clone has."""
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name in ("experiments", "docs", "testbed", "packaging"):
            (folder / name).symlink_to(ROOT / name)
        for place in (folder / "bin", folder / "target/release"):
            place.mkdir(parents=True)
            (place / "corun").symlink_to(Path(corun).resolve())
        for where, command in commands("slow"):
            if ELSEWHERE.match(command):
                continue
            began = time.monotonic()
            shorter = SHORTER.get(command.removeprefix("target/release/"), command)
            script = f'export PATH="$PWD/bin:$PATH"; {shorter}'
            done = subprocess.run(["bash", "-euc", script], cwd=folder, capture_output=True, text=True, check=False)
            good = done.returncode == 0 and done.stdout.strip() != ""
            passed, failed = passed + good, failed + (not good)
            print(f"{'pass' if good else 'FAIL'}  {where:<28} {time.monotonic() - began:6.1f} s  {command}")
            if not good:
                print(f"exit status {done.returncode}\n{done.stderr}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or passed == 0


def main():
    if sys.argv[1:2] == ["list"] and len(sys.argv) == 3:
        for where, command in commands(sys.argv[2]):
            print(f"{where}\t{command}")
    elif sys.argv[1:3] == ["run", "slow"] and len(sys.argv) == 4:
        sys.exit(run(sys.argv[3]))
    else:
        sys.exit(__doc__)


main()
