#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: a scheduler for KVM hosts has to be tried on a real kernel with real KVM guests, on a machine that has
# neither sched_ext nor KVM.
# How: QEMU emulates, without KVM, a host that has AMD's virtualisation; the host boots the cached kernel with an
# initramfs made of busybox, KVM's modules and the caller's files, and executes `run`.
#
# Usage: boot.sh DIR [OUT]   DIR/run is executed in the emulated host, where DIR is /test; what it
#                            leaves in /out arrives in OUT. Knobs and exit codes: README.md.
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/common.sh"

cpus="${CORUN_TESTBED_CPUS:-2}"
threads="${CORUN_TESTBED_THREADS:-1}"
mem="${CORUN_TESTBED_MEM:-2048}"
cpu_model="${CORUN_TESTBED_CPU_MODEL:-max,la57=off}"
time_limit="${CORUN_TESTBED_TIMEOUT:-120}"
boot_limit="${CORUN_TESTBED_BOOT_TIMEOUT:-60}"
disk_mib="${CORUN_TESTBED_DISK_MIB:-1024}"
append="${CORUN_TESTBED_APPEND:-}"
punctual="${CORUN_TESTBED_PUNCTUAL:-0}"
counted="${CORUN_TESTBED_COUNTED:-0}"
busybox="$testbed_cache/tools/usr/bin/busybox"
most_retries=2
qemu_pid=""

usage() {
	say "error: $*"
	echo "usage: $0 DIR [OUT]     (DIR/run: an executable file)" >&2
	exit "$exit_usage"
}

# Ends QEMU if it still runs. Sets $qemu_status.
stop_qemu() {
	qemu_status=0
	if [ "$qemu_pid" ]; then
		kill -KILL "$qemu_pid" 2>/dev/null || true
		wait "$qemu_pid" 2>/dev/null || qemu_status=$?
		qemu_pid=""
	fi
}

# shellcheck disable=SC2317  # called by the trap
clean_up() {
	stop_qemu
	rm -rf "$work"
}

# Packs directory $1 as a cpio archive onto standard output; all files become root's.
pack() { (cd "$1" && find . | "$busybox" cpio -o -H newc -R 0:0 2>/dev/null); }

# The initramfs: what every test needs, then the test's own files; the kernel unpacks both.
make_initramfs() {
	local base="$work/base"
	mkdir -p "$base"/{bin,proc,sys,dev,tmp,run,root,out,testbed} "$work/files"
	cp "$busybox" "$base/bin/"
	ln -s busybox "$base/bin/sh"
	cp "$testbed_dir/host-init" "$base/init"
	cp "$testbed_dir/lib.sh" "$base/testbed/"
	cp -r "$testbed_kernel/modules" "$base/modules"
	ln -s "$(realpath "$1")" "$work/files/test"
	{
		pack "$base"
		# -L: the directory behind the link, under the name /test.
		(cd "$work/files" && find -L test | "$busybox" cpio -o -L -H newc -R 0:0 2>/dev/null)
	} >"$work/initramfs"
}

# A starved emulator calibrates its clock wrongly; if this machine is a VM, it knows the right value.
clock_argument() {
	if [ "$counted" = 1 ]; then
		echo tsc_early_khz=1000000
		return
	fi
	awk -F ': ' '/^flags/ && / hypervisor/ { vm = 1 } /^cpu MHz/ { mhz = $2 }
		END { if (vm && mhz) printf "tsc_early_khz=%d", mhz * 1000 }' /proc/cpuinfo
}

# Arguments that this kernel is to be booted with.
kernel_arguments() { cat "$testbed_kernel/append" 2>/dev/null || true; }

start_qemu() {
	local -a smp=("$cpus")
	local -a accel=(-accel "tcg,thread=multi")
	[ "$threads" = 1 ] || smp=("$cpus,cores=$((cpus / threads)),threads=$threads")
	# An instruction is a nanosecond, also while idling: the same on any machine, however busy.
	[ "$counted" = 0 ] || accel=(-accel "tcg,thread=single" -icount "shift=0,sleep=off")
	rm -f "$work/disk" "$work/console"
	truncate -s "${disk_mib}M" "$work/disk"
	: >"$work/console"
	# setpriv: should this script be killed, QEMU ends with it.
	setpriv --pdeathsig KILL "$testbed_cache/qemu/qemu-system-x86_64" "${accel[@]}" -cpu "$cpu_model" \
		-smp "${smp[@]}" -m "$mem" -display none -monitor none -nic none -no-reboot \
		-chardev "stdio,id=console,signal=off,logfile=$work/console" -serial chardev:console \
		-drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
		-kernel "$testbed_kernel/vmlinuz" -initrd "$work/initramfs" \
		-append "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable $(clock_argument) $(kernel_arguments) $append" \
		</dev/null 9>&- &
	qemu_pid=$!
}

# How far the emulated host has come: the last phase it has announced.
phase() { sed -n 's/.*testbed: phase \([a-z-]*\).*/\1/p' "$work/console" | tail -n 1; }

# All timers of the emulated host fire in QEMU's main thread, which otherwise waits, for milliseconds now and then,
# behind the threads that emulate busy pCPUs. It needs hardly any time.
make_punctual() {
	[ "$punctual" = 1 ] || return 0
	chrt --fifo --pid 1 "$qemu_pid" 2>/dev/null ||
		say "timers may be late: QEMU's main thread cannot have a real-time priority (not root?)"
}

# Waits for the emulated host's end; false if its time is up.
wait_for_end() {
	local began=$SECONDS limit="$boot_limit"
	while kill -0 "$qemu_pid" 2>/dev/null; do
		if [ "$limit" = "$boot_limit" ] && [ "$(phase)" ]; then
			limit="$time_limit"
			make_punctual
		fi
		if [ $((SECONDS - began)) -ge "$limit" ]; then return 1; fi
		sleep 0.1
	done
}

# Unpacks what the host left on its disk and sets $status; false if it did not come that far.
take_results() {
	rm -rf "$work/out"
	mkdir "$work/out"
	tar -x -f "$work/disk" -C "$work/out" --no-same-owner 2>/dev/null || true
	[ -s "$work/out/.status" ] || return 1
	status="$(cat "$work/out/.status")"
	rm "$work/out/.status"
}

# One boot. Sets $status, and $again if the boot hung: that of the host itself, or that of Linux guests while the
# kernel's own scheduler was in charge. Whatever happens later is a result, never tried again.
attempt() {
	local ended=yes reached
	again=""
	start_qemu
	wait_for_end || ended=""
	stop_qemu
	reached="$(phase)"
	if [ "$ended" ] && take_results; then
		if [ "$status" = "$exit_again" ] && [ "$reached" = guests-booting ]; then again=yes; fi
	elif [ "$ended" ]; then
		[ "$qemu_status" = 0 ] || die "QEMU failed with status $qemu_status"
		say "the emulated host died without a result (phase: ${reached:-boot})"
		status="$exit_died"
		if [ "$reached" = guests-booting ]; then again=yes; fi
	else
		say "the emulated host was stopped, its time was up (phase: ${reached:-boot})"
		status="$exit_timeout"
		case "$reached" in "" | guests-booting) again=yes ;; esac
	fi
}

main() {
	[ $# = 1 ] || [ $# = 2 ] || usage "one or two directories are needed, $# given"
	[ -x "$1/run" ] || usage "$1/run is not an executable file"
	out="${2:-}"
	"$testbed_dir/fetch.sh"

	exec 9>"$testbed_cache/boot.lock"
	if ! flock --nonblock 9; then
		say "another testbed runs on this machine, waiting for its end"
		flock 9
	fi
	work="$(mktemp -d "${TMPDIR:-/tmp}/corun-testbed.XXXXXX")"
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	make_initramfs "$1"

	local retries=0
	attempt
	while [ "$again" ] && [ "$retries" -lt "$most_retries" ]; do
		retries=$((retries + 1))
		say "the boot hung; retry $retries of $most_retries"
		attempt
	done
	if [ "$again" ]; then status="$exit_no_boot"; fi
	if [ "$out" ]; then
		mkdir -p "$out"
		if [ -d "$work/out" ]; then cp -r "$work/out/." "$out/"; fi
		cp "$work/console" "$out/console.log"
	fi
	say "kernel $(cat "$testbed_kernel/version"), $cpus pCPUs, retries $retries, exit $status"
	exit "$status"
}

main "$@"
