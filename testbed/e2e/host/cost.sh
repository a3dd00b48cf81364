# shellcheck shell=sh disable=SC2034,SC2154  # interval: for start_corun; the rest is set by run and corun.sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: what does a host pay for corun's scheduler, and for its daemon?
# How: the same microbenchmarks under the kernel's own scheduler, under the minimal sched_ext scheduler
# (testbed/strain/minimal.bpf.c), under the minimal one that heeds weights (weighted.bpf.c), and under corun without a
# policy, in turn; then what each of their callbacks costs, and what the daemon needs on a host with 500 vCPUs.
# ../cost.py makes tables of it.

link=/sys/fs/bpf/compared

# start_other NAME: a scheduler written for the comparison (testbed/strain).
start_other() {
	bpftool struct_ops register "$1.bpf.o" $link >/dev/null || fail "the $1 scheduler does not load"
	[ "$(scheduler)" = "$1" ] || fail "the $1 scheduler is not in charge, but $(scheduler)"
}
stop_other() {
	rm -r $link
	wait_for_eevdf || fail "the scheduler that was compared stays"
}
start_minimal() { start_other minimal; }
stop_minimal() { stop_other; }
start_weighted() { start_other weighted; }
stop_weighted() { stop_other; }
start_kernel() { :; }
stop_kernel() { :; }

# Starts it as the service does: without output.
start_plain() {
	interval=0s
	start_corun fair
	interval=200ms
}
stop_plain() {
	stop_corun
	verdict "cost: corun leaves cleanly" "$exit_reason" left_cleanly
}

# microbenchmarks RUN SCHEDULER: prints a line each: pCPUs, run, scheduler, name, ns.
microbenchmarks() {
	{
		pipe
		wakes
		messages
	} | sed "s/^/$(nproc)	$1	$2	/" | tee -a /out/cost.tsv
}

# compare_costs RUN…: the schedulers in turn; in run "count" what their callbacks cost, since counting has a cost, too.
compare_costs() {
	mkdir -p /out/cost
	for run in "$@"; do
		begin "cost, run $run"
		for under in kernel minimal weighted plain; do
			[ "$run $under" != "count kernel" ] || continue
			start_$under
			[ "$run" = count ] || microbenchmarks "$run" $under
			[ "$run" != count ] || count_callbacks $under
			stop_$under
		done
	done
}

# On a pCPU whose instructions are counted (run.sh), where runs hardly differ, and on two, which the emulator runs as
# well as it can.
phase_cost() { compare_costs 1 2 count; }
phase_parallel() { compare_costs 1 2 3 4 5; }

count_callbacks() {
	echo 1 >/proc/sys/kernel/bpf_stats_enabled
	for _name in pipe wakes messages; do
		bpftool --json prog show >"/out/cost/$1.$_name-begin"
		$_name
		bpftool --json prog show >"/out/cost/$1.$_name-end"
	done
	echo 0 >/proc/sys/kernel/bpf_stats_enabled
}

# Long enough that the daemon's work five times a second, and the books' once a second, have their due weight.
pipe() { corun-strain pipe 30000; }
wakes() { corun-strain wakes 4000; }
messages() { corun-strain messages 2 1000; }

# CPU time of all of the daemon's threads so far, ns.
daemon_ns() { cat /proc/"$corun_pid"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'; }

# daemon_kb FIELD: a figure of its memory.
daemon_kb() { awk -v field="$1:" '$1 == field { print $2 }' /proc/"$corun_pid"/status; }

crowd_s=10

# More vCPUs than most hosts have, which sleep nearly all of the time: all that the daemon does is its own work.
phase_crowd() {
	begin "500 vCPUs"
	_n=0
	while [ $_n -lt 63 ]; do
		start_vm "crowd$_n" timer --vcpus 8 --work 1000 --sleep-us 4000000 --progress 0
		_n=$((_n + 1))
	done
	sleep 5
	interval=0s
	for _policy in fair balance jupiter aql; do
		start_corun $_policy
		# The daemon looks more closely at VMs that are new to it.
		sleep 8
		verdict "500 vCPUs: all found, $_policy" "63 VMs of 8" knows 63
		sleep 1
		_ns="$(daemon_ns)" _then="$(now_ms)"
		sleep $crowd_s
		_ns=$(($(daemon_ns) - _ns)) _then=$(($(now_ms) - _then))
		echo "$_policy	$(echo "$_ns $_then" | awk '{ printf "%.4f", $1 / $2 / 10000 }')	$(daemon_kb VmRSS)	$(daemon_kb RssAnon)" |
			tee -a /out/crowd.tsv
		stop_corun
		verdict "500 vCPUs: $_policy leaves cleanly" "$exit_reason" left_cleanly
	done
	interval=200ms
	stop_vms >/dev/null
}
