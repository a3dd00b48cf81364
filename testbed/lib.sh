# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: every test in the emulated host starts guests, watches them and records what the
# scheduler does.
# How: small functions for busybox sh; a test's `run` begins with `. /testbed/lib.sh`.

tracing=/sys/kernel/tracing
vms=/tmp/vms

fail() {
	echo "FAIL: $*"
	exit 1
}

# --- Guests ---------------------------------------------------------------------------------

# start_vm NAME MODE [OPTION…]: a micro VM in the background, with any options of corun-microvm.
start_vm() {
	_name="$1" _mode="$2"
	shift 2
	mkdir -p "$vms"
	# The name as on QEMU's command line, so that whatever looks for VMs finds it.
	corun-microvm -name "guest=$_name,debug-threads=on" --mode "$_mode" --seconds 0 \
		--progress 100 "$@" >"$vms/$_name.log" 2>&1 &
	echo $! >"$vms/$_name.pid"
}

vm_pid() { cat "$vms/$1.pid"; }

# vm_iterations NAME: what each vCPU has counted so far, separated by spaces.
vm_iterations() {
	sed -n 's/.*"iterations":\[\([0-9,]*\)\].*/\1/p' "$vms/$1.log" | tail -n 1 | tr ',' ' '
}

# vm_alive NAME [SECONDS]: true if every vCPU counts on within SECONDS (1).
vm_alive() {
	kill -0 "$(vm_pid "$1")" 2>/dev/null || return 1
	_before="$(vm_iterations "$1")"
	sleep "${2:-1}"
	_after="$(vm_iterations "$1")"
	[ -n "$_after" ] || return 1
	# The output is a new line every 100 ms: equal counts mean that a vCPU stood still.
	echo "${_before:-0}" "/" "$_after" | awk '{
		for (n = 1; $n != "/"; n++) before[n] = $n
		for (i = n + 1; i <= NF; i++) if ($i <= before[i - n]) exit 1
	}'
}

# stop_vms: ends all micro VMs and prints the last line of each, with its totals.
stop_vms() {
	for _file in "$vms"/*.pid; do
		[ -e "$_file" ] || continue
		_pid="$(cat "$_file")"
		kill -TERM "$_pid" 2>/dev/null
		wait "$_pid" 2>/dev/null
		tail -n 1 "${_file%.pid}.log"
		rm -f "$_file"
	done
}

# Linux guests boot slowly and, under emulation, not always. A test that starts them says so, while
# the kernel's own scheduler runs: if the emulated host hangs or dies before guests_up, or the test
# gives up with guests_hang, boot.sh tries again.
guests_booting() {
	[ "$(scheduler)" = EEVDF ] || fail "guests_booting under $(scheduler): a hang would be ours"
	echo "testbed: phase guests-booting"
}
guests_up() { echo "testbed: phase guests-up"; }
guests_hang() {
	echo "testbed: guests hang while booting: $*"
	exit 75
}

# --- Scheduler ------------------------------------------------------------------------------

# The scheduler in charge: EEVDF, or the name of the sched_ext scheduler.
scheduler() {
	if [ "$(cat /sys/kernel/sched_ext/state)" = enabled ]; then
		cat /sys/kernel/sched_ext/root/ops
	else
		echo EEVDF
	fi
}

# --- Recordings -----------------------------------------------------------------------------

# trace_start [KIB [EVENT…]]: records these events, or those of scheduling and KVM; KIB per CPU (32768).
trace_start() {
	_kib="${1:-32768}"
	[ $# = 0 ] || shift
	[ $# != 0 ] || set -- sched/sched_switch sched/sched_waking sched/sched_wakeup \
		sched/sched_migrate_task sched/sched_process_fork kvm/kvm_entry kvm/kvm_exit \
		kvm/kvm_vcpu_wakeup kvm/kvm_halt_poll_ns kvm/kvm_apic_ipi kvm/kvm_apic_accept_irq \
		irq/irq_handler_entry
	echo 0 >$tracing/tracing_on
	echo nop >$tracing/current_tracer
	echo "$_kib" >$tracing/buffer_size_kb
	echo mono >$tracing/trace_clock
	echo >$tracing/set_event
	for _event in "$@"; do
		echo 1 >$tracing/events/"$_event"/enable || fail "there is no trace event $_event"
	done
	echo >$tracing/trace
	echo 1 >$tracing/tracing_on
}

# trace_stop FILE [POLICY]: the recording as text, in the format `corun` reads, with corun's policy if that is in charge.
# VMs must still run, because the head of the file lists them.
trace_stop() {
	echo 0 >$tracing/tracing_on
	{
		echo "# host: $(nproc) pCPUs, kernel $(uname -r), scheduler $(scheduler)${2:+ $2}, clock mono"
		trace_vms
		for _cpu in "$tracing"/per_cpu/cpu*; do
			grep -E '^(overrun|commit overrun|dropped events):' "$_cpu/stats" | sed 's/^/# /'
		done
		cat $tracing/trace
	} >"$1"
	echo >$tracing/trace
}

# The processes that have vCPU threads, with all their threads.
trace_vms() {
	for _process in /proc/[0-9]*; do
		cat "$_process"/task/*/comm 2>/dev/null | grep -q '^CPU [0-9]*/KVM$' || continue
		echo "# process ${_process#/proc/} $(tr '\0' ' ' <"$_process/cmdline" | sed 's, *$,,')"
		for _thread in "$_process"/task/*; do
			echo "# thread ${_thread##*/} $(cat "$_thread/comm")"
		done
	done
}
