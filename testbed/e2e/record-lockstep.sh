#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: the recordings of decisions that tests replay belong to the dispatcher as it is now: whatever changes what it
# reads or does needs new ones.
# How: two boots of the testbed record them (run.sh, groups "recordings" and, on hardware threads, "vsmtio_record");
# their beginnings are kept.
#
# Usage: record-lockstep.sh [OUT]   OUT: out/recordings
set -euo pipefail
cd "$(dirname "$0")/../.."

out="${1:-out/recordings}"
testbed/e2e/run.sh "$out" recordings vsmtio_record
for recording in "$out"/lockstep-*.bin; do
	name="${recording##*/lockstep-}"
	scripts/cut-lockstep.py "$recording" "experiments/recordings/${name%.bin}.lockstep.gz"
done
