# shellcheck shell=sh
# shellcheck disable=SC2154,SC2086  # variables of lib.sh, corun.sh and run; lists of names are split
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: are pCPUs held for vCPUs that do I/O, and let go in time? Does a vCPU that was lent one give way at once?
# How: one core of two hardware threads, a guest that does I/O beside two that compute, under one scheduler after the
# other. The dispatcher counts the holds; vsmtio.py, outside, reads how long wake-ups wait off recordings.

# A guest that does I/O now and then beside two that compute, on cores of two hardware threads.
beside_io() {
	names="io a b"
	start_vm io timer --work 2000 --sleep-us 1000
	for vm in a b; do start_vm $vm spin; done
	sleep 2
}

# told_of VM KEY: a figure of a VM in the daemon's last interval.
told_of() {
	grep '"vms"' $log | tail -n 1 | tr '{' '\n' | grep "\"name\":\"$1\"" | sed "s/.*\"$2\":\([0-9.e-]*\).*/\1/"
}

# Progress and switches of each guest within 4 s, and a recording of its wake-ups; under vsmtio also what was held.
measure_beside_io() {
	measure_beside
	number "vsmtio $under switches/s" "$(vcpu_switches 2)"
	tell_holds
	trace_start 8192 sched/sched_switch sched/sched_waking
	sleep 2
	trace_stop "/out/vsmtio/$under-$run.trace"
}

# What the dispatcher has counted of holds, a line for vsmtio.py; for this run's daemon, both kinds together.
tell_holds() {
	case $under in vsmtio | giving-way) ;; *) return 0 ;; esac
	corun status --json >/tmp/status.json
	{
		printf '%s\t%s' "$under" "$run"
		for key in begun woke expired gave_way under_way held_s longest_s latest_s; do
			printf '\t%s' "$(sed -n "s/.*\"$key\": *\([0-9.e-]*\).*/\1/p" /tmp/status.json | head -n 1)"
		done
		echo
	} >>/out/vsmtio/holds.tsv
	[ "$under" = vsmtio ] || return 0
	# While there are VMs: without any there is nothing to print.
	corun policy | tee /tmp/policy.txt
	number "vsmtio held share" "$(told_of io held_share)"
	number "vsmtio kept/s" "$(told_of io kept_per_s)"
	verdict "vsmtio $run: pCPUs are held, and let go" "share $(told_of io held_share)" held_for io
}

# Has the kernel's watchdog found a task that was ready for too long?
watchdog_quiet() { ! dmesg | grep -E "runnable task stall|watchdog failed to check in"; }

# Is something held for a VM, but not all the time?
held_for() { told_of "$1" held_share | awk '{ exit !($1 > 0.01 && $1 < 0.999) }'; }

# Switches of all vCPU threads per second, over this many seconds, as the kernel counts them.
vcpu_switches() {
	before="$(switches_of $names)"
	sleep "$1"
	echo "$before $(switches_of $names) $1" | awk '{ printf "%.1f", ($2 - $1) / $3 }'
}

switches_of() {
	for vm in "$@"; do cat /proc/"$(vm_pid "$vm")"/task/*/status; done |
		awk '/ctxt_switches/ { sum += $2 } END { print sum }'
}

# The kernel's own scheduler, fair and vSMT-IO in turn, the latter as in the paper and giving way.
phase_vsmtio() {
	mkdir -p /out/vsmtio
	for run in 1 2 3 4 5; do
		begin "vsmtio, run $run"
		under=eevdf
		with_vms beside_io measure_beside_io
		start_corun fair
		under=fair
		with_vms beside_io measure_beside_io
		verdict "vsmtio $run: switched" "$(in_charge)" switch_to vsmtio
		under=vsmtio
		with_vms beside_io measure_beside_io
		verdict "vsmtio $run: says what this host hides" "no instructions, no cycles" says_what_is_hidden
		verdict "vsmtio $run: says whom it takes for what" "classes and timeouts" grep -q "taken for I/O-bound.*timeouts are" /tmp/policy.txt
		verdict "vsmtio $run: what no host can do is refused" "guests=true" guests_are_refused
		verdict "vsmtio $run: told to give way" "$(in_charge)" \
			corun policy vsmtio --set timeout=3ms --set give_way=true
		under=giving-way
		with_vms beside_io measure_beside_io
		stop_corun
		verdict "vsmtio $run: leaves cleanly" "$exit_reason" left_cleanly
	done
	phase_vsmtio_record
	polling_is_put_back
	verdict "vsmtio: the watchdog never tripped" "ready tasks" watchdog_quiet
}

says_what_is_hidden() {
	grep -q "instructions executed.*stay at 3.00 ms" /tmp/policy.txt && grep -q "no symbiosis, fair order" /tmp/policy.txt
}

guests_are_refused() {
	corun policy vsmtio --set guests=true >/tmp/policy.txt 2>&1
	[ $? = 2 ] && grep -q "guests of vsmtio is for simulations only" /tmp/policy.txt
}

# What the policy decides with both kinds of retention, for the native build to decide again (../run.sh).
phase_vsmtio_record() {
	begin "vsmtio, on record"
	beside_io
	start_corun vsmtio --set timeout=3ms --set give_way=false --record /out/lockstep-vsmtio.bin
	sleep 2
	verdict "vsmtio on record: told to give way" "$(in_charge)" \
		corun policy vsmtio --set timeout=3ms --set give_way=true
	sleep 2
	stop_corun
	verdict "vsmtio on record: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# Does KVM poll for this long, ns?
polls_for() { [ "$(cat /sys/module/kvm/parameters/halt_poll_ns)" = "$1" ]; }

# KVM's halt polling is changed as long as corun is in charge, and put back however that ends.
polling_is_put_back() {
	begin "vsmtio, KVM's halt polling"
	stock="$(cat /sys/module/kvm/parameters/halt_poll_ns)"
	start_corun vsmtio --halt-poll off
	verdict "halt polling: off while in charge" "$stock ns before" polls_for 0
	corun status
	stop_corun
	verdict "halt polling: put back at the end" "$stock ns" polls_for "$stock"
	start_corun vsmtio --halt-poll 50us
	kill -KILL "$corun_pid"
	wait "$corun_pid" 2>/dev/null
	verdict "halt polling: killed, the kernel's scheduler is back" "$(scheduler)" wait_for_eevdf
	verdict "halt polling: killed, it stays" "50000 ns" polls_for 50000
	start_corun fair
	verdict "halt polling: the next start puts it back" "$stock ns" polls_for "$stock"
	stop_corun
	verdict "halt polling: and leaves cleanly" "$exit_reason" left_cleanly
}
