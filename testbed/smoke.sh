#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: before a test on the testbed is believed, the testbed itself must be known to work.
# How: boots it once with smoke/run, which checks sched_ext, KVM, the micro VMs and ftrace from the inside; the files it
# leaves are checked here, on the outside.
#
# Usage: smoke.sh      exit codes as boot.sh's: 0 fine, 77 packages cannot be had
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/common.sh"

work="$(mktemp -d "${TMPDIR:-/tmp}/corun-smoke.XXXXXX")"
trap 'rm -rf "$work"' EXIT

stage_microvm "$work/test"
cp "$testbed_dir/smoke/run" "$work/test/"
"$testbed_dir/boot.sh" "$work/test" "$work/out"

[ "$(cat "$work/out/greeting")" = "from the inside" ] || die "the results did not arrive"
head -n 1 "$work/out/trace.txt" | grep -q '^# host: .* scheduler EEVDF, clock mono$' ||
	die "the recording's head is not as expected: $(head -n 1 "$work/out/trace.txt")"
say "smoke test passed; the recording has $(grep -vc '^#' "$work/out/trace.txt") events"
