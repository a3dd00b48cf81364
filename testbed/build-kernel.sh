#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: corun serves Linux 6.12, too, the oldest with sched_ext, whose verifier and names differ; Debian's
# own 6.12 is built without sched_ext.
# How: Debian stable's source and cloud configuration of it, with sched_ext, and of its modules only those that
# the testbed loads; compiled in the cache, which takes half an hour on two cores and 4 GB. No root.
#
# Usage: build-kernel.sh [DIR]   DIR: the cache's kernel-6.12; then: CORUN_TESTBED_KERNEL=DIR testbed/e2e/run.sh
#        exit 0: built, or was there; 77: cannot be had here; 1: error
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=testbed/apt.sh
. "$(dirname "$0")/apt.sh"

suite=trixie
series=6.12
apt_dir="$testbed_cache/apt-$suite"
kernel="${1:-$testbed_cache/kernel-$series}"
work="$kernel.new"
tree="$work/linux-source-$series"

check_tools() {
	local tool
	for tool in make gcc flex bison bc pahole xz objcopy; do
		command -v "$tool" >/dev/null ||
			skip "$tool is missing (apt-get install build-essential flex bison bc dwarves xz-utils libelf-dev libssl-dev)"
	done
}

fetch_source() {
	local deb
	configure_apt
	say "fetching the source of Linux $series"
	mkdir -p "$work/debs" "$work/root"
	(cd "$work/debs" && private_apt apt-get --quiet=2 download "linux-source-$series" "linux-config-$series") ||
		skip "the source of Linux $series cannot be had"
	for deb in "$work/debs/"*.deb; do dpkg-deb --extract "$deb" "$work/root"; done
	tar --extract --xz --file "$work/root/usr/src/linux-source-$series.tar.xz" --directory "$work"
	xz --decompress --stdout "$work/root/usr/src/linux-config-$series/config.amd64_none_cloud-amd64.xz" >"$tree/.config"
	rm -rf "$work/debs" "$work/root" "$apt_dir"
}

# Drivers that no emulated host has, and signatures for which there are no keys, are left out. Core scheduling is built
# in: cloud kernels lack it, and what corun does about it (e2e's "cores") is tested with this kernel.
configure() {
	cd "$tree"
	scripts/config --enable SCHED_CLASS_EXT --enable SCHED_CORE --set-str LOCALVERSION -ext --disable LOCALVERSION_AUTO \
		--disable MODULE_SIG --set-str SYSTEM_TRUSTED_KEYS "" --disable SECURITY_LOCKDOWN_LSM --disable INTEGRITY \
		--disable DRM --disable XEN --disable HYPERV --disable KVM_INTEL --disable USB_SUPPORT
	printf 'Module Size Used by\n' >"$work/lsmod"
	printf '%s 1 0\n' "${testbed_modules[@]//-/_}" >>"$work/lsmod"
	# New questions get their default answers.
	{ yes '' || true; } | make --silent LSMOD="$work/lsmod" localmodconfig >"$work/log" 2>&1
	grep -q '^CONFIG_SCHED_CLASS_EXT=y' .config || die "Linux $series takes no sched_ext: see $work/log"
}

compile() {
	local module
	say "compiling Linux $series, $(nproc) at a time (log: $work/log)"
	make --silent --jobs "$(nproc)" bzImage modules >>"$work/log" 2>&1 || die "it does not compile: see $work/log"
	mkdir -p "$work/kept/modules"
	cp arch/x86/boot/bzImage "$work/kept/vmlinuz"
	cp .config "$work/kept/config"
	# Otherwise corun's preflight refuses this kernel (rcu-starves, docs/safety.md).
	echo rcutree.kthread_prio=1 >"$work/kept/append"
	for module in "${testbed_modules[@]}"; do
		find . -name "$module.ko" -exec objcopy --strip-debug {} "$work/kept/modules/$module.ko" \;
		[ -e "$work/kept/modules/$module.ko" ] || die "no module $module was built"
	done
	make --silent kernelrelease >"$work/kept/version"
}

main() {
	if [ -e "$kernel/version" ]; then return; fi
	check_tools
	rm -rf "$work"
	fetch_source
	(configure)
	(cd "$tree" && compile)
	rm -rf "$kernel"
	mv "$work/kept" "$kernel"
	rm -rf "$work"
	say "have kernel $(cat "$kernel/version"): CORUN_TESTBED_KERNEL=$kernel"
}

main
