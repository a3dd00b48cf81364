#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: that corun works on a real kernel, with real KVM guests, has to be shown, not said.
# How: builds static binaries, boots the emulated host once with host/run, and judges what comes out
# with check.py; the recorded decisions are replayed through the native build.
#
# Usage: run.sh [OUT]     OUT: out/e2e; exit codes: 0 all passed, 77 packages cannot be had, else failed
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/../common.sh"

e2e_dir="$(cd "$(dirname "$0")" && pwd)"
repository="$testbed_dir/.."
target=x86_64-unknown-linux-gnu
out="${1:-$repository/out/e2e}"

# The command, without shared libraries, as bin/corun.
stage_corun() {
	local release="${CARGO_TARGET_DIR:-$repository/target}/$target/release"
	(cd "$repository" && RUSTFLAGS="-C target-feature=+crt-static" \
		cargo build --quiet --release --locked --target "$target" -p corun)
	cp "$release/corun" "$1/bin/"
}

# Replays natively what the kernel decided; prints a verdict for check.py.
lockstep() {
	local said word=pass
	said="$("$work/test/bin/corun" lockstep "$out/lockstep.bin" 2>&1)" || word=fail
	echo "$word:lockstep:$(tr '\n' ' ' <<<"$said")"
}

main() {
	work="$(mktemp -d "${TMPDIR:-/tmp}/corun-e2e.XXXXXX")"
	trap 'rm -rf "$work"' EXIT
	stage_microvm "$work/test"
	stage_corun "$work/test"
	cp "$e2e_dir"/host/* "$work/test/"
	rm -rf "$out"
	CORUN_TESTBED_TIMEOUT="${CORUN_TESTBED_TIMEOUT:-360}" "$testbed_dir/boot.sh" "$work/test" "$out"
	python3 "$e2e_dir/check.py" "$out" "$(lockstep)"
}

main
