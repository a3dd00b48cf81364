#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: does the kernel's own scheduler deliver the slices that `corun host --backend fair` asks for?
# How: on this machine, without emulation: threads that compute, named as vCPUs are, under one slice after the other;
# ftrace shows their turns. Nobody else's threads are touched, but if VMs run here, it refuses. Needs root (tracefs) and
# Linux 6.12; CORUN: the binary.
#
# Usage: stock.sh OUT
# Exit codes: 0 measured, 77 it cannot be measured here, else failed
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
corun="${CORUN:-$here/../target/release/corun}"
out="${1:?usage: stock.sh OUT}"
slices="3 10 30 90"

skip() {
	echo "stock.sh: $*" >&2
	exit 77
}

[ "$(id -u)" = 0 ] || skip "needs root for tracefs"
[ -x "$corun" ] || skip "no $corun: cargo build --release"
! grep -qsxE 'CPU [0-9]+/KVM|fc_vcpu [0-9]+|vcpu[0-9]+' /proc/[0-9]*/task/[0-9]*/comm || skip "VMs run here"

work="$(mktemp -d "${TMPDIR:-/tmp}/corun-stock.XXXXXX")"
tracing="$work/tracing"
pids=()
cleanup() {
	[ "${#pids[@]}" = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	[ ! -d "$tracing/events" ] || umount "$tracing"
	rm -rf "$work"
}
trap cleanup EXIT
mkdir -p "$tracing" "$out"
mount -t tracefs none "$tracing" 2>/dev/null || skip "no tracefs"
# An instance of its own: whatever else is traced here goes on.
instance="$tracing/instances/corun-$$"
mkdir "$instance"
drop_instance() {
	rmdir "$instance" 2>/dev/null || true
	cleanup
}
trap drop_instance EXIT

# A thread that computes, in a process whose command line names a VM, and which has a vCPU where there is KVM: otherwise
# corun would not take it for one.
cat >"$work/hog.py" <<'PYTHON'
import fcntl, os
with open("/proc/self/comm", "w") as comm: comm.write("CPU 0/KVM")
if os.path.exists("/sys/module/kvm"):
    kvm = os.open("/dev/kvm", os.O_RDWR)
    vm = fcntl.ioctl(kvm, 0xAE01, 0)  # KVM_CREATE_VM
    vcpu = fcntl.ioctl(vm, 0xAE41, 0)  # KVM_CREATE_VCPU
while True: pass
PYTHON

# Three per pCPU.
head="$work/head"
echo "# host: $(nproc) pCPUs, kernel $(uname -r), scheduler EEVDF, clock mono" >"$head"
for number in $(seq $((3 * $(nproc)))); do
	python3 "$work/hog.py" -name "guest=hog$number" &
	pids+=($!)
	printf '# process %s python3 -name guest=hog%s\n# thread %s CPU 0/KVM\n' $! "$number" $! >>"$head"
done
sleep 0.5

echo mono >"$instance/trace_clock"
echo 8192 >"$instance/buffer_size_kb"
echo 1 >"$instance/events/sched/sched_switch/enable"
for ms in $slices; do
	"$corun" host --backend fair --policy microsliced --set "slice=${ms}ms" --interval 0s \
		--state "$work/state.json" --for "$((ms / 15 + 6))s" &
	daemon=$!
	sleep 1
	echo >"$instance/trace"
	echo 1 >"$instance/tracing_on"
	sleep $((ms / 15 + 4))
	echo 0 >"$instance/tracing_on"
	{
		cat "$head"
		grep -v '^#' "$instance/trace"
	} >"$out/${ms}ms.trace"
	wait "$daemon"
done
echo 0 >"$instance/events/enable"
python3 "$here/e2e/slices.py" "$out"
