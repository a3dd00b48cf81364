#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Fuzzes everything that reads input from outside, each target for SECONDS (default 60), from the
# committed scenarios, programs and recordings. Ends with 1 if any target found something.
#
#   scripts/fuzz.sh [SECONDS [TARGET…]]
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
	echo "fuzz.sh: found '$seconds', expected a number of seconds" >&2
	exit 2
fi
targets=("${@:2}")
((${#targets[@]})) || targets=(scenario program rtapp recording lockstep)

if ! cargo +nightly --version >/dev/null 2>&1; then
	echo "fuzz.sh: needs a nightly compiler: rustup toolchain install nightly --profile minimal" >&2
	exit 1
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
	echo "fuzz.sh: needs cargo-fuzz: cargo install cargo-fuzz --locked" >&2
	exit 1
fi

if ! command -v clang-19 >/dev/null; then
	echo "fuzz.sh: needs clang-19: scripts/install.sh build" >&2
	exit 1
fi

# The dispatcher's C code is watched, too: its memory, and which branches it takes.
export CC=clang-19 CFLAGS="-fsanitize=address,fuzzer-no-link -g"

# What each target starts from.
seed() {
	local corpus=fuzz/corpus/$1 file
	mkdir -p "$corpus"
	case $1 in
	scenario)
		while IFS= read -r -d '' file; do
			cp "$file" "$corpus/${file//\//_}"
		done < <(git ls-files -z 'experiments/*.toml')
		;;
	program)
		# The programs of the page of workloads, one file each.
		awk -v to="$corpus/preset" '
			/^```text$/ { inside = 1; file = to (++count); next }
			/^```$/ { inside = 0 }
			inside { print > file }' docs/workloads.md
		;;
	rtapp)
		# The example of the page of scenarios.
		awk '
			/^```json$/ { inside = 1; next }
			/^```$/ { inside = 0 }
			inside' docs/scenario.md >"$corpus/example"
		;;
	recording)
		while IFS= read -r -d '' file; do
			# The beginning is enough, and quickly read; a gzip file is of use only as a whole.
			{ gzip -dc "$file" || true; } | head -n 400 >"$corpus/$(basename "$file" .gz)"
		done < <(git ls-files -z 'experiments/recordings/*.ftrace.gz')
		;;
	lockstep)
		{ gzip -dc experiments/recordings/balance.lockstep.gz || true; } |
			head -c 60000 >"$corpus/balance"
		;;
	*)
		echo "fuzz.sh: unknown target '$1': expected scenario, program, rtapp, recording or lockstep" >&2
		exit 2
		;;
	esac
}

found=()
for target in "${targets[@]}"; do
	seed "$target"
	dictionary=()
	[[ -f fuzz/dictionaries/$target.dict ]] && dictionary=("-dict=fuzz/dictionaries/$target.dict")
	# A target that does not build has found nothing: everything ends.
	cargo +nightly fuzz build "$target"
	echo "== $target, $seconds s"
	cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -timeout=10 \
		-rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 "${dictionary[@]}" ||
		found+=("$target")
done
if ((${#found[@]})); then
	echo "fuzz: found something: ${found[*]} (see fuzz/artifacts)" >&2
	exit 1
fi
echo "fuzz: nothing found in ${#targets[@]} targets, $seconds s each"
