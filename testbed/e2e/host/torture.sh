# shellcheck shell=sh disable=SC2154,SC2086  # set by run and corun.sh; lists of names are split
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: what a host survives has to be tried, and counted: how often, with what, with what outcome.
# How: phases of the end-to-end test, each a fault or a load repeated, beside guests that must live on.
# tally() writes what docs/torture.md lists; verdicts go to /out as elsewhere.

# tally VERDICTS FAULT TIMES DETAIL: for the table; VERDICTS: those that belong to it, * standing for anything.
tally() { printf '%s\t%s\t%s\t%s\n' "$@" | tee -a /out/torture.tsv; }

# --- Guests that come and go --------------------------------------------------------------------

storm_guests="1 2 3 4 5 6 7 8"
storm_rounds=20

# in_order SEED: the guests in an order of its own.
in_order() {
	echo $storm_guests | tr ' ' '\n' | awk -v seed="$1" 'BEGIN { srand(seed) } { print rand(), $1 }' |
		sort | cut -d ' ' -f 2
}

# Eight guests started and killed without warning, each time in random order, again and again.
storm() {
	_round=0
	while [ $_round -lt $storm_rounds ]; do
		_round=$((_round + 1))
		for _n in $(in_order $_round); do start_vm "storm$_n" spin --progress 0; done
		for _n in $(in_order $((_round + 1000))); do
			kill -KILL "$(vm_pid "storm$_n")"
			stormed=$((stormed + 1))
		done
		for _n in $storm_guests; do wait "$(vm_pid "storm$_n")" 2>/dev/null; done
	done
	rm -f "$vms"/storm*
}

# phase_storm POLICY…: under each; a guest that was there before must be there after.
phase_storm() {
	begin "boot storm: $*"
	start_vm stays timer
	start_corun fair
	for policy in "$@"; do
		stormed=0
		verdict "storm: $policy in force" "$(in_charge)" switch_to $policy
		storm
		tally "storm: *, $policy" "boot storm, $policy" "$stormed" "guests in $storm_rounds rounds"
		verdict "storm: corun stays, $policy" "$stormed guests" [ "$(scheduler)" = corun ]
		verdict "storm: the guest that stays lives, $policy" "under $(scheduler)" all_alive stays
	done
	verdict "storm: its books are empty of the dead" "corun status" knows_at_most 1
	number "resident memory of the daemon, kB" "$(daemon_kb VmRSS)"
	stop_corun
	verdict "storm: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# Processes whose threads are named like vCPUs but are not: 200 a minute.
phase_fakes() {
	begin "fake VMs"
	start_vm real timer
	start_corun balance
	_made=0
	_until=$(($(now_ms) + 60000))
	while [ "$(now_ms)" -lt $_until ]; do
		_fakes=""
		for _n in 1 2 3 4 5; do
			sh -c 'echo "CPU 0/KVM" >/proc/self/comm; while :; do sleep 0.05; done' &
			_fakes="$_fakes $!"
			_made=$((_made + 1))
		done
		sleep 0.2
		[ $((_made % 50)) != 0 ] || corun top -b -d 0.1 >/tmp/top.txt
		kill -KILL $_fakes
		wait $_fakes 2>/dev/null
	done
	tally "fakes: *" "fake VMs" "$_made" "in a minute"
	verdict "fakes: corun stays" "$_made in a minute" [ "$(scheduler)" = corun ]
	verdict "fakes: enough of them" "$_made (>= 200)" [ $_made -ge 200 ]
	verdict "fakes: the dispatcher takes none for a VM" "corun status" knows_at_most 1
	verdict "fakes: the real one lives" "under $(scheduler)" all_alive real
	stop_corun
	verdict "fakes: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# --- The daemon -----------------------------------------------------------------------------------

nonsense_requests=1200

# Malformed requests, and some that ask for what does not exist.
phase_nonsense() {
	begin "malformed requests"
	mix
	start_corun balance
	corun-strain nonsense /run/corun/host.sock $nonsense_requests >/tmp/nonsense.txt 2>&1
	_status=$?
	tr '\n' ' ' </tmp/nonsense.txt
	tally "nonsense: *" "malformed requests" "$nonsense_requests" "$(tr '\t\n' '  ' </tmp/nonsense.txt)"
	verdict "nonsense: none carried out, all answered" "$nonsense_requests requests" [ $_status = 0 ]
	verdict "nonsense: the policy is what it was" "corun policy" in_force balance
	verdict "nonsense: one daemon" "$corun_pid" kill -0 "$corun_pid"
	verdict "nonsense: guests live" "under $(scheduler)" all_alive first second third
	stop_corun
	verdict "nonsense: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

in_force() { corun policy | grep -q "^$1 "; }

# A daemon beyond its cgroup's memory, COUNT times: killed by the kernel, which takes the host back.
phase_oom() {
	begin "out of memory"
	echo +memory >/sys/fs/cgroup/cgroup.subtree_control || fail "no memory controller"
	mkdir -p /sys/fs/cgroup/daemon
	# Its priority counts within its cgroup only.
	echo 10000 >/sys/fs/cgroup/daemon/cpu.weight
	mix
	for _time in 1 2 3; do
		rm -rf $state
		echo max >/sys/fs/cgroup/daemon/memory.max
		start_corun_in daemon balance
		sleep 1
		_kills="$(oom_kills)"
		# Less than it uses: none of that can be swapped out.
		echo 1M >/sys/fs/cgroup/daemon/memory.max
		wait_until 10000 kernel_is_back
		_waited=$waited
		[ "$_waited" -le "${_longest:-0}" ] || _longest=$_waited
		verdict "oom $_time: kernel's scheduler back" "$_waited ms after the limit" kernel_is_back
		wait "$corun_pid" 2>/dev/null
		verdict "oom $_time: by the kernel's killer" "exit $?" [ "$(oom_kills)" -gt "$_kills" ]
		verdict "oom $_time: guests live on" "under $(scheduler)" all_alive first second third
	done
	tally "oom*" "daemon out of memory" 3 "back after at most $_longest ms"
	# Too little to begin with.
	rm -rf $state
	echo 3M >/sys/fs/cgroup/daemon/memory.max
	(in_group daemon corun host --policy fair --for 5s) >/tmp/oom.txt 2>&1
	verdict "oom: 3 MB are too few to begin" "exit $?" kernel_is_back
	echo max >/sys/fs/cgroup/daemon/memory.max
	start_corun fair
	stop_corun
	verdict "oom: the next one starts and leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

oom_kills() { awk '$1 == "oom_kill" { print $2 }' /sys/fs/cgroup/daemon/memory.events; }

# in_group GROUP COMMAND…: becomes COMMAND, in a cgroup from its first page on; for subshells.
in_group() {
	# 0: the process that writes it. Here $$ is the shell that all of them come from.
	echo 0 >/sys/fs/cgroup/"$1"/cgroup.procs
	shift
	exec "$@"
}

corun_is_in_charge() { [ "$(scheduler)" = corun ]; }

# start_corun_in GROUP POLICY
start_corun_in() {
	: >$log
	in_group "$1" corun host --policy "$2" --json --interval 200ms >$log 2>&1 &
	corun_pid=$!
	wait_until 90000 corun_is_in_charge || fail "corun is not in charge: $(cat $log)"
}

# --- Loads beside the guests ------------------------------------------------------------------------

# What strains a scheduler: switches, wake-ups, forks, and affinities, priorities and scheduling policies that change
# all the time.
stressors="--switch 2 --futex 2 --yield 2 --fork 2 --clone 2 --affinity 2 --nice 2 --schedpolicy 2 --timer 1 --cpu 2"

phase_stress() {
	begin "stress-ng"
	mix
	start_corun balance
	# shellcheck disable=SC2086  # options
	stress-ng $stressors --timeout 30s --metrics-brief --temp-path /tmp >/tmp/stress.txt 2>&1
	_status=$?
	cat /tmp/stress.txt
	tally "stress: *" "stress-ng" "$(echo "$stressors" | tr ' ' '\n' | grep -c '^--')" "kinds of stressors for 30 s"
	verdict "stress: it went through" "exit $_status" [ $_status = 0 ]
	verdict "stress: corun stays" "$(scheduler)" [ "$(scheduler)" = corun ]
	verdict "stress: guests live" "under $(scheduler)" all_alive first second third
	stop_corun
	verdict "stress: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# Programs of rt-tests, each a test of scheduling: messages between many threads; timers of threads that sleep; pairs
# that wake each other by mutexes, semaphores, message queues and signals; inversions of priorities. All but the last
# are ordinary tasks, and so the dispatcher's. A lost wake-up makes them hang.
rt_tests="hackbench -g 4 -l 200
hackbench -T -p -g 4 -l 200
cyclictest -q -t 4 -i 2000 -D 10
ptsematest -q -t 4 -D 5
svsematest -q -t 4 -D 5
svsematest -q -f -t 4 -D 5
pmqtest -q -t 4 -D 5
sigwaittest -q -t 4 -D 5
sigwaittest -q -f -t 4 -D 5
pi_stress -q -g 2 -D 10"

phase_rt_tests() {
	begin "rt-tests"
	mix
	mkdir -p /dev/shm /dev/mqueue
	start_corun balance
	while read -r _test; do
		# shellcheck disable=SC2086  # its words
		timeout 90 $_test >/tmp/rt-test.txt 2>&1 </dev/null
		_status=$?
		tail -n 8 /tmp/rt-test.txt
		verdict "rt-tests: $_test" "exit $_status" [ $_status = 0 ]
	done <<-END
		$rt_tests
	END
	tally "rt-tests: *" "rt-tests" "$(echo "$rt_tests" | wc -l)" "tests of scheduling, exits that are 0"
	verdict "rt-tests: corun stays" "$(scheduler)" [ "$(scheduler)" = corun ]
	verdict "rt-tests: guests live" "under $(scheduler)" all_alive first second third
	stop_corun
	verdict "rt-tests: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# --- What is done to VMs --------------------------------------------------------------------------

suspend_rounds=5

# phase_suspend POLICY…: VMs that are suspended and resumed, again and again, under each.
phase_suspend() {
	begin "suspended VMs: $*"
	mix
	start_corun fair
	under="$(in_charge)"
	for policy in "$@"; do
		suspended=0
		verdict "suspend: $policy in force" "$(in_charge)" switch_to "$policy"
		suspend_and_resume
		tally "suspend: *, $policy" "VM suspended and resumed, $policy" $suspended "times"
	done
	verdict "suspend: never unloaded" "$under" [ "$under" = "$(in_charge)" ]
	stop_corun
	verdict "suspend: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}
suspend_and_resume() {
	_round=0
	while [ $_round -lt $suspend_rounds ]; do
		for _vm in first second third; do
			signal_vms STOP $_vm
			sleep 0.1
			signal_vms CONT $_vm
			suspended=$((suspended + 1))
		done
		_round=$((_round + 1))
	done
	signal_vms STOP first
	verdict "suspend: others live meanwhile, $policy" "$(scheduler)" all_alive second third
	signal_vms CONT first
	verdict "suspend: it goes on, $policy" "$(scheduler)" all_alive first second third
}

# A value of enum gang_mode (dispatcher/types.h).
GANG_STRICT=2

# A plan that gives one VM nothing, written into the dispatcher's tables past the daemon: two VMs own all pCPUs in slots
# of a quarter of an hour, in which nobody else may run, and weigh 10000; the third weighs 1 and has no slot. Either the
# dispatcher serves it nevertheless, or the daemon sees a broken promise and hands the host back.
phase_starve() {
	begin "a plan that starves a VM"
	names="greedy hog victim"
	for vm in $names; do start_vm $vm spin; done
	sleep 1
	rm -rf $state
	# Under this policy the dispatcher heeds gangs.
	start_corun cosched-strict
	sleep 1
	make_plan greedy 10000 $GANG_STRICT 900000000000
	make_plan hog 10000 $GANG_STRICT 900000000000
	make_plan victim 1 0 0
	_began="$(now_ms)" victim_ns="$(vm_cpu_ns victim)"
	for vm in $names; do
		# shellcheck disable=SC2046  # words
		bpftool map update name vm_confs $(cat /tmp/$vm.plan) || fail "the plan of $vm is not taken"
	done
	# Whatever looks is starved of pCPUs, too.
	wait_until 20000 kernel_is_back
	victim_ns=$(($(vm_cpu_ns victim) - victim_ns)) _began=$(($(now_ms) - _began))
	verdict "starve: the victim ran" "$((victim_ns / 1000000)) of $_began ms" [ $victim_ns -gt 0 ]
	if kernel_is_back; then
		wait "$corun_pid"
		_outcome="handed back after $_began ms: $(last_exit end)"
		verdict "starve: the host was handed back for a promise" "$_outcome" \
			grep -q '"end": "rolled-back"' $state/last-exit.json
	else
		_outcome="served"
		verdict "starve: a policy restores it" "$(in_charge)" switch_to fair
		stop_corun
		verdict "starve: leaves cleanly" "$exit_reason" left_cleanly
	fi
	tally "starve: *" "plan that starves a VM" 1 "$_outcome; it ran for $((victim_ns / 1000000)) of $_began ms"
	verdict "starve: all live" "$names" all_alive $names
	stop_vms >/dev/null
}

# bytes WIDTH NUMBER: little-endian, as bpftool expects them.
bytes() {
	_left="$2" _n=0
	while [ $_n -lt "$1" ]; do
		printf '%d ' $((_left % 256))
		_left=$((_left / 256)) _n=$((_n + 1))
	done
}

# conf_bytes ID WEIGHT GANG SLOT PCPUS: a struct vm_conf (dispatcher/types.h) of a VM that may use the first PCPUS
# pCPUs, less than 63; everything else in it is zero. A test compares this with what the daemon writes
# (crates/dispatcher/tests/torture.rs).
conf_bytes() {
	for _number in "$1" 0 "$2" 0 "$3" 0; do bytes 4 "$_number"; done
	for _number in "$4" 0 0 0 0 0 0 0 0 0; do bytes 8 "$_number"; done
	for _number in $(((1 << $5) - 1)) 0 0 0 0 0 0 0; do bytes 8 "$_number"; done
}

# make_plan VM WEIGHT GANG SLOT: writes to /tmp/VM.plan bpftool's words for the VM's entry in the table.
make_plan() {
	_pid="$(vm_pid "$1")"
	_slot="$(corun status --json | awk -v pid="$_pid" '/"pid":/ { mine = $2 == pid "," } mine && /"slot":/ { print $2 + 0; exit }')"
	[ -n "$_slot" ] || fail "corun status knows no slot of $1"
	{
		echo key
		bytes 4 "$_slot"
		echo value
		conf_bytes "$_pid" "$2" "$3" "$4" "$(nproc)"
	} >"/tmp/$1.plan"
}
