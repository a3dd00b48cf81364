# shellcheck shell=bash disable=SC2034  # names used by the scripts that source this file
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: fetch.sh, boot.sh and the tests on top of them must agree on where things lie, on how they report, and on
# what "cannot be had here" means.
# How: these few names; sourced, never run.

# Where everything downloaded lives; safe to delete, fetch.sh brings it back.
testbed_cache="${CORUN_TESTBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corun/testbed}"
# What the emulated host boots: vmlinuz, version, and its modules/.
testbed_kernel="${CORUN_TESTBED_KERNEL:-$testbed_cache/kernel}"
# The modules that it loads, in this order.
testbed_modules=(irqbypass kvm kvm-amd virtio_blk)
testbed_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# Exit codes of boot.sh besides those of the test itself (see README.md).
readonly exit_skip=77 exit_usage=64 exit_again=75 exit_timeout=124 exit_died=125 exit_no_boot=126

say() { printf 'testbed: %s\n' "$*" >&2; }

die() {
	say "error: $*"
	exit 1
}

# The testbed's packages cannot be had on this machine: a skip, or an error where it is required.
skip() {
	if [ "${CORUN_TESTBED_REQUIRED:-0}" = 1 ]; then
		die "$* (and CORUN_TESTBED_REQUIRED=1 forbids skipping)"
	fi
	say "skipped: $*"
	exit "$exit_skip"
}

# Builds the micro VMM without shared libraries and puts it into DIR/bin/.
stage_microvm() {
	local into="$1/bin" target=x86_64-unknown-linux-gnu
	local repository="$testbed_dir/.."
	(cd "$repository" && RUSTFLAGS="-C target-feature=+crt-static" \
		cargo build --quiet --profile static --locked --target "$target" -p corun-microvm)
	mkdir -p "$into"
	cp "${CARGO_TARGET_DIR:-$repository/target}/$target/static/corun-microvm" "$into/"
}

# Puts the command into DIR/bin/, built as users build it except for what debuggers need, and the shared libraries that
# it links into DIR/lib/, where its loader looks once that is /lib and /lib64.
stage_corun() {
	local repository="$testbed_dir/.." program library
	program="${CARGO_TARGET_DIR:-$repository/target}/release/corun"
	(cd "$repository" && cargo build --quiet --release --locked -p corun)
	mkdir -p "$1/bin" "$1/lib"
	strip -o "$1/bin/corun" "$program"
	ldd "$program" | awk '$2 == "=>" { print $3 } $1 ~ "^/" { print $1 }' |
		while read -r library; do [ ! -e "$library" ] || cp -L "$library" "$1/lib/"; done
}

# stage_program DIR NAME ROOT PATH: installs a program of Debian's, found at PATH among what was unpacked in ROOT, as
# DIR/bin/NAME, with its loader and libraries in DIR/NAME/.
stage_program() {
	local into="$1/$2" name="$2" root="$3" libraries library
	libraries="$root/usr/lib/x86_64-linux-gnu"
	mkdir -p "$into" "$1/bin"
	cp -L "$root/$4" "$into/$name"
	cp -L "$root/usr/lib64/ld-linux-x86-64.so.2" "$into/"
	"$into/ld-linux-x86-64.so.2" --library-path "$libraries" --list "$into/$name" |
		awk '$2 == "=>" && $1 !~ /ld-linux/ { print $3 }' >"$into/libraries"
	while read -r library; do cp -L "$library" "$into/"; done <"$into/libraries"
	rm "$into/libraries"
	cat >"$1/bin/$name" <<-END
		#!/bin/sh
		exec /test/$name/ld-linux-x86-64.so.2 --library-path /test/$name /test/$name/$name "\$@"
	END
	chmod +x "$1/bin/$name"
}

stage_bpftool() { stage_program "$1" bpftool "$testbed_cache/bpftool" usr/sbin/bpftool; }

# Programs that only torture needs: `fetch.sh --stress` has fetched them, with what they link and no more.
stage_stress() {
	mkdir -p "$1/bin"
	cp -r "$testbed_cache/stress/." "$1/"
}
