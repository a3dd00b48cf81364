#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Formatting and lints of everything written here.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy -q --workspace --all-targets -- -D warnings
# The fuzz targets are not part of the workspace, and only running them takes a nightly compiler: here they must
# compile.
cargo check -q --locked --manifest-path fuzz/Cargo.toml --bins --target-dir target/fuzz
git ls-files -z '*.c' '*.h' | xargs -0 clang-format-19 --dry-run --Werror
# The builds of crates/dispatcher/build.rs: clang does not report some things that gcc warns about.
for build in '' -DUNTAPPED '-DUNTAPPED -DPLAIN'; do
	# shellcheck disable=SC2086 # two words become two flags
	cc -fsyntax-only -std=gnu11 -O3 -Wall -Wextra -Wno-unused-parameter -Werror $build dispatcher/corun.bpf.c
done
git ls-files -z '*.sh' .ci/run testbed/host-init testbed/e2e/host/run | xargs -0 shellcheck -x

# Each file states its licence, except for those that are written by programs or cannot have comments.
unlicensed=$(git ls-files ':!:*.lock' ':!:*.json' ':!:*.gz' ':!:*.png' ':!:*proptest-regressions*' ':!:LICENSE' |
	xargs grep -L 'SPDX-License-Identifier: GPL-2.0-only' || true)
if [[ -n $unlicensed ]]; then
	echo "No SPDX line in: $unlicensed" >&2
	exit 1
fi
echo "lint: clean"
