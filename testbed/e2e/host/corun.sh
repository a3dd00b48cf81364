# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: every phase of the end-to-end test starts and ends the daemon, measures VMs, and reports.
# How: functions for busybox sh, on top of the testbed's lib.sh.

log=/tmp/corun.log

# --- Results: tables for check.py, outside ---------------------------------------------------

# verdict NAME DETAIL COMMAND…: passed if the command succeeds.
verdict() {
	_name="$1" _detail="$2" _word=pass
	shift 2
	"$@" || _word=fail
	printf '%s\t%s\t%s\n' "$_word" "$_name" "$_detail" | tee -a /out/verdicts.tsv
}

# number NAME VALUE: one of several runs; check.py takes the median.
number() { printf '%s\t%s\n' "$1" "$2" | tee -a /out/numbers.tsv; }

# --- The daemon ------------------------------------------------------------------------------

# Linux 6.12 allows fewer nested calls than recording takes (docs/limits.md).
can_record() { case "$(uname -r)" in 6.12.*) return 1 ;; esac }

# start_corun POLICY [OPTION…]: returns once it is in charge; statistics every $interval. Where decisions cannot be
# recorded, everything except that is tested: `--record FILE`, if given, comes last.
interval=200ms
start_corun() {
	: >$log
	case "$*" in *" --record "*)
		# shellcheck disable=SC2046  # words without spaces, to be split
		can_record || set -- $(echo "$*" | sed 's/ --record .*//')
		;;
	esac
	corun host --policy "$@" --json --interval $interval >$log 2>&1 &
	corun_pid=$!
	_tries=0
	until [ "$(scheduler)" = corun ]; do
		kill -0 $corun_pid 2>/dev/null || fail "corun did not start: $(cat $log)"
		_tries=$((_tries + 1))
		# The verifier's work is ten seconds of emulation, and more on a slow machine.
		[ $_tries -lt 1200 ] || fail "corun is not in charge after 120 s: $(cat $log)"
		sleep 0.1
	done
}

# Ends the daemon as an administrator would. Sets corun_status, and exit_reason in the kernel's words. If it fails, the
# daemon's last words are in the console's log.
stop_corun() {
	kill -TERM "$corun_pid" 2>/dev/null
	wait "$corun_pid"
	corun_status=$?
	exit_reason="$(dmesg | sed -n 's/.*BPF scheduler "corun" disabled (\(.*\))$/\1/p' | tail -n 1)"
	[ "$corun_status" = 0 ] || cat $log
}

# Has it ended as it should? This reason is exit kind 64, SCX_EXIT_UNREG.
left_cleanly() {
	[ "$corun_status" = 0 ] && [ "$(scheduler)" = EEVDF ] &&
		[ "$exit_reason" = "unregistered from user space" ]
}

# wait_for_eevdf: true if the kernel's own scheduler is back within 2 s.
wait_for_eevdf() {
	for _try in 1 2 3 4 5 6 7 8 9 10; do
		[ "$(cat /sys/kernel/sched_ext/state)" = disabled ] && return 0
		sleep 0.2
	done
	return 1
}

# --- VMs -------------------------------------------------------------------------------------

# Are the processes of these VMs there?
all_there() {
	for _vm in "$@"; do kill -0 "$(vm_pid "$_vm")" 2>/dev/null || return 1; done
}

# True if every vCPU counts on, or does not although nothing keeps it from a pCPU. The emulation now and then breaks a
# guest (testbed/README.md), under any scheduler: it runs without counting, waits for ever, or ends. That is noted;
# whether it is always the emulation is not known.
all_alive() {
	for _vm in "$@"; do
		vm_alive "$_vm" && continue
		if starved "$_vm"; then
			echo "$_vm gets no pCPU: $(tail -n 2 /tmp/vms/"$_vm".log)"
			return 1
		fi
		echo "$_vm, process $(vm_pid "$_vm"): stands still though not starved," \
			"$(tail -n 1 /tmp/vms/"$_vm".log)" | tee -a /out/broken.txt
	done
}

# starved NAME: true if one of its vCPUs wants a pCPU for a second and gets none.
starved() {
	_first="$(vcpu_states "$1")"
	sleep 1
	# A line per vCPU: thread, state, pCPU time.
	{
		echo "$_first"
		vcpu_states "$1"
	} | awk '$2 == "R" && seen[$1] == $2 $3 { starved = 1 } { seen[$1] = $2 $3 }
		END { exit !starved }'
}

vcpu_states() {
	for _thread in /proc/"$(vm_pid "$1")"/task/*; do
		grep -q '^CPU [0-9]*/KVM$' "$_thread/comm" 2>/dev/null || continue
		echo "${_thread##*/} $(sed 's/.*) //' "$_thread/stat" | cut -d ' ' -f 1)" \
			"$(cut -d ' ' -f 1 "$_thread/schedstat")"
	done
}

# with_vms START COMMAND: starts VMs with START (which sets $names), runs COMMAND, ends them; tries again, twice at
# most, if one of them has ended meanwhile.
with_vms() {
	for _attempt in 1 2 3; do
		"$1"
		"$2"
		# shellcheck disable=SC2154,SC2086  # a list, set by START
		if all_there $names; then
			stop_vms >/dev/null
			return
		fi
		for _vm in $names; do
			kill -0 "$(vm_pid "$_vm")" 2>/dev/null ||
				echo "$_vm ended, attempt $_attempt: $(tail -n 1 /tmp/vms/"$_vm".log)" | tee -a /out/broken.txt
		done
		stop_vms >/dev/null
	done
}

signal_vms() {
	_signal="$1"
	shift
	for _vm in "$@"; do kill "-$_signal" "$(vm_pid "$_vm")"; done
}

# vm_cpu_ns NAME: pCPU time of all its vCPU threads, by the kernel's own accounts.
vm_cpu_ns() {
	for _thread in /proc/"$(vm_pid "$1")"/task/*; do
		grep -q '^CPU [0-9]*/KVM$' "$_thread/comm" && cut -d ' ' -f 1 "$_thread/schedstat"
	done | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# cpu_of SECONDS NAME…: pCPU time each VM gets within SECONDS, ns, in a line.
cpu_of() {
	_seconds="$1"
	shift
	_then="" _now=""
	for _vm in "$@"; do _then="$_then $(vm_cpu_ns "$_vm")"; done
	sleep "$_seconds"
	for _vm in "$@"; do _now="$_now $(vm_cpu_ns "$_vm")"; done
	echo "$_then $_now" | awk '{ n = NF / 2; for (i = 1; i <= n; i++) printf "%.0f ", $(i + n) - $i }'
}

# counters_at_rest: true if the dispatcher's books count none of the VMs' vCPUs as ready or running, and of the host's
# tasks, at the quietest of the last looks, only the daemon itself.
counters_at_rest() {
	_lines="$(grep '^{' $log | tail -n 5)"
	echo "$_lines" | sed 's/.*"stacked_samples":[0-9]*,"occupied":\([0-9]*\),.*"vms":\(.*\)/\1 \2/' | awk '
		{ if (least == "" || $1 < least) least = $1; last = $0 }
		END {
			gsub(/"(occupied|active_weight)":0[,}]/, "", last)
			exit least > 1 || last !~ /"name"/ || last ~ /"(occupied|active_weight)":/
		}' || {
		echo "not at rest: $_lines"
		return 1
	}
}
