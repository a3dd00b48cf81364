# shellcheck shell=sh disable=SC2154  # set by run and corun.sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: nobody switches a scheduler on again once it has hurt the host. Does the host always end on a working
# scheduler, with its guests alive, whatever happens to the daemon?
# How: phases of the end-to-end test, one per fault. What is measured goes to /out as elsewhere.

state=/var/lib/corun

# What the daemon said at its end: the value of a field.
last_exit() { sed -n "s/^  \"$1\": \(.*\)$/\1/p" $state/last-exit.json | sed 's/,$//' | tr -d '"'; }

# Where the dispatcher keeps the VMs, for placements.
find_slots() { slots="$(corun status --json | sed -n 's/.*"slot": \([0-9]*\),/\1/p')"; }

# How these VMs are placed, according to the dispatcher's own table: numbers of enum placement_mode.
placements() {
	for _slot in $slots; do
		bpftool --json map lookup name vm_confs key $((_slot % 256)) $((_slot / 256)) 0 0 |
			sed -n 's/.*"id":[1-9][0-9]*,"placement":\([0-9]*\).*/\1/p'
	done | sort -u | tr '\n' ' '
}

now_ms() { awk '{ printf "%.0f", 1000 * $1 }' /proc/uptime; }

# wait_until MS COMMAND…: true once the command succeeds; $waited is the time it took, ms.
wait_until() {
	_limit="$1" _began="$(now_ms)"
	shift
	until "$@"; do
		waited=$(($(now_ms) - _began))
		[ "$waited" -lt "$_limit" ] || return 1
		sleep 0.02
	done
	waited=$(($(now_ms) - _began))
}

kernel_is_back() { [ "$(cat /sys/kernel/sched_ext/state)" = disabled ]; }
daemon_is_gone() { ! kill -0 "$corun_pid" 2>/dev/null; }
placed() { [ "$(placements)" = "$1 " ]; }

# knows COUNT: the daemon knows this many VMs.
knows() { [ "$(corun status --json | grep -c '"under_policy"')" = "$1" ]; }

# There may be fewer: the emulator breaks guests.
knows_at_most() { [ "$(corun status --json | grep -c '"under_policy"')" -le "$1" ]; }

lapsed() { corun status --json | grep -q "\"lapses\": $1,"; }
canary_says() { corun status | grep -q "$1"; }
finds() { corun preflight --json >/tmp/preflight.json; grep -q "\"id\": \"$1\"" /tmp/preflight.json; }

not_found() { ! finds "$1"; }

# What speaks against taking over is found, refused, and overridden only by its name.
phase_preflight() {
	begin "preflight"
	corun preflight
	verdict "preflight: nothing in the way" "$(uname -r)" corun preflight
	rmmod kvm-amd kvm
	verdict "preflight: that KVM is not there is found" "modules removed" finds kvm
	corun host --for 1s >/tmp/refused.txt 2>&1
	verdict "preflight: and refused" "exit $?" grep -q "force kvm" /tmp/refused.txt
	verdict "preflight: kernel's scheduler stays" "$(scheduler)" kernel_is_back
	corun host --policy fair --for 1s --force kvm >/tmp/forced.txt 2>&1
	verdict "preflight: forced by name" "exit $?" grep -q '"kvm"' $state/last-exit.json
	for module in kvm kvm-amd; do insmod "/modules/$module.ko"; done
}

# A daemon that hangs: VMs go to fair order in bounded time, and back under the policy afterwards.
phase_hang() {
	begin "SIGSTOP"
	mix
	start_corun balance
	sleep 1
	find_slots
	verdict "hang: under the policy before" "placements $(placements)" placed 2
	kill -STOP "$corun_pid"
	wait_until 15000 placed 0
	# The lease is 5 s and looked at every second; bpftool takes its time here.
	verdict "hang: fair order" "after $waited ms" placed 0
	verdict "hang: the dispatcher stays in charge" "$(scheduler)" [ "$(scheduler)" = corun ]
	verdict "hang: guests live" "without a daemon" all_alive first second third
	kill -CONT "$corun_pid"
	wait_until 5000 placed 2
	verdict "hang: under the policy again" "after $waited ms" placed 2
	verdict "hang: it is counted" "corun status" lapsed 1
	stop_corun
	verdict "hang: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# A promise that cannot be kept: the host is handed back, and the daemon says why.
phase_guard() {
	begin "a broken promise"
	start_corun fair --max-ready 10 --window 1s
	sleep 2
	names="x y z"
	for vm in $names; do start_vm "$vm" spin; done
	wait_until 8000 kernel_is_back
	verdict "guard: handed back" "$waited ms after three VMs started (window 1 s)" kernel_is_back
	wait "$corun_pid"
	corun_status=$?
	verdict "guard: says so" "exit $corun_status" [ "$corun_status" = 3 ]
	verdict "guard: and why" "$(last_exit why)" grep -q '"end": "rolled-back"' $state/last-exit.json
	verdict "guard: guests live on" "under $(scheduler)" all_alive x y z
	stop_vms >/dev/null
}

# Killed again and again: refused, until somebody insists.
phase_loop() {
	begin "crash loop"
	rm -rf $state
	start_vm a timer
	for _time in 1 2 3; do
		start_corun fair
		kill -KILL "$corun_pid"
		wait "$corun_pid" 2>/dev/null
		wait_until 3000 kernel_is_back
		number "back after SIGKILL, ms" "$waited"
	done
	corun host --for 1s >/tmp/refused.txt 2>&1
	_status=$?
	verdict "loop: the fourth start is refused" "exit $_status" grep -q "force crash-loop" /tmp/refused.txt
	verdict "loop: so that the service does not try again" "exit $_status" [ $_status = 4 ]
	verdict "loop: kernel's scheduler stays" "$(scheduler)" kernel_is_back
	corun host --policy fair --for 1s --force crash-loop >/tmp/forced.txt 2>&1
	verdict "loop: forced by name" "exit $?" grep -q "crash-loop" $state/last-exit.json
	verdict "loop: a run that went well is the end of it" "corun preflight" not_found crash-loop
	verdict "loop: guests live on" "under $(scheduler)" all_alive a
	stop_vms >/dev/null
	rm -rf $state
}

# Only the named VM under the policy.
phase_canary() {
	begin "canary"
	mix
	start_corun balance --only second
	sleep 1.5
	find_slots
	verdict "canary: one under balance, two free" "placements $(placements)" [ "$(placements)" = "0 2 " ]
	corun status
	verdict "canary: it says so" "corun status" canary_says "1 of 3 VMs"
	stop_corun
	verdict "canary: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# An observing daemon changes nothing, and agrees with the daemon about times.
phase_watch() {
	begin "watch"
	mix
	corun host --policy jupiter --observe --for 2s --json >/tmp/observe.json 2>/tmp/observe.txt
	verdict "observe: decides" "exit $?" grep -q '"plan"' /tmp/observe.json
	verdict "observe: and loads nothing" "$(scheduler)" kernel_is_back
	corun top -b -d 1 -n 2 | tee /tmp/top.txt
	verdict "top: three VMs under the kernel's own" "corun top -b" [ "$(grep -cE '^(first|second|third)' /tmp/top.txt)" = 6 ]
	start_corun cosched-relaxed
	sleep 1
	corun top --json -d 2 --sum >/tmp/top.json
	corun top -b -d 1 --vcpus
	corun metrics >/out/metrics.prom
	verdict "metrics: six vCPUs" "corun_vcpu_delay_seconds_total" \
		[ "$(grep -c '^corun_vcpu_delay_seconds_total{' /out/metrics.prom)" = 6 ]
	verdict "metrics: co-stop is told" "corun_vcpu_costop_seconds_total" grep -q '^corun_vcpu_costop' /out/metrics.prom
	stop_corun
	verdict "watch: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}

# pCPUs that go and come: the kernel takes the host back, and corun can start again at once.
phase_hotplug() {
	begin "hot-unplug"
	mix
	for _time in 1 2 3; do
		for _online in 0 1; do
			start_corun balance
			sleep 0.5
			echo $_online >/sys/devices/system/cpu/cpu1/online
			wait_until 5000 daemon_is_gone
			wait "$corun_pid"
			verdict "hot-plug $_time: pCPU 1 to $_online, handed back" "$(last_exit end)" \
				grep -q '"end": "pcpus-changed"' $state/last-exit.json
			verdict "hot-plug $_time: kernel's scheduler" "$(scheduler)" wait_for_eevdf
		done
	done
	tally "hot-plug*" "pCPU unplugged, plugged in" 6 "the host handed back each time"
	verdict "hot-plug: guests live on" "under $(scheduler)" all_alive first second third
	stop_vms >/dev/null
}

phase_rt() {
	begin "real-time hog"
	mix
	start_corun balance
	# Of 8 s, all except what the kernel keeps for others, a twentieth, and what it loses to the emulator.
	_ran="$(corun-strain hog 8 | cut -f 2)"
	verdict "real-time hog: it ran" "${_ran:-0} ns of 8 s" [ "${_ran:-0}" -gt 6000000000 ]
	verdict "real-time hog: corun stays" "$(scheduler)" [ "$(scheduler)" = corun ]
	verdict "real-time hog: guests live" "8 s of SCHED_FIFO" all_alive first second third
	stop_corun
	tally "real-time hog: *" "real-time hog of a pCPU" 1 "for 8 s"
	verdict "real-time hog: leaves cleanly" "$exit_reason" left_cleanly
	stop_vms >/dev/null
}
