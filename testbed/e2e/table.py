# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts, a row each, as check.py prints them of a whole run and other scripts of their part."""


class Table:
    """Prints rows as they come, and counts them."""

    def __init__(self):
        self.failed = self.passed = self.uneven = 0

    def row(self, good, name, detail, measured=False):
        """`measured`: it hangs on how evenly the emulator runs, not only on what corun does."""
        self.passed += good
        self.failed += not good
        self.uneven += not good and measured
        print(f"{'pass' if good else 'FAIL'}  {name:<40} {detail}")
