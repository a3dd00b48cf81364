# shellcheck shell=sh disable=SC2086  # lists of names are split
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: does a recording show what happened, and can it be read however it ended?
# How: VMs are recorded under the kernel's own scheduler; what their vCPUs ran is compared with the kernel's own
# accounts; and the file is cut, and written to a disk that is full.

# A guest that halts and wakes its sibling, one that sleeps, one that spins for a lock.
various() {
	names="barrier timer lock"
	start_vm barrier barrier --work 100000
	start_vm timer timer --work 50000 --sleep-us 2000
	start_vm lock lock --work 20000
	sleep 1
}

# accounts FILE: pCPU time of each VM so far: a line with its name and ns, into FILE.
accounts() {
	for vm in $names; do echo "$vm $(vm_cpu_ns $vm)"; done >"$1"
}

# told FILE KEY: from what `corun record --json` printed, KEY of each VM, after its name.
told() {
	tr -d '",' <"$1" | awk -v key="$2:" '
		/^    \{/ { value = 0 }
		$1 == key { value = $2 }
		$1 == "name:" { name = $2 }
		/^    \}/ { print name, value }'
}

# Did each VM run for as long as the kernel says, which was asked before, during and after the recording?
as_the_kernel_says() {
	{
		for file in before begun ending after; do sed "s/^/$file /" /tmp/$file; done
		told /tmp/record.json run_ns | sed 's/^/told /'
	} | awk '
		{ time[$1, $2] = $3; vms[$2] }
		END {
			for (vm in vms) {
				least = time["ending", vm] - time["begun", vm]
				most = time["after", vm] - time["before", vm]
				printf "%s: %d ms, at least %d, at most %d\n", vm, time["told", vm] / 1e6, least / 1e6, most / 1e6
				if (!(time["told", vm] >= least && time["told", vm] <= most)) wrong = 1
			}
			exit wrong
		}'
}

# True if KEY of VM is above 0.
some() { told /tmp/record.json "$2" | awk -v vm="$1" '$1 == vm && $2 > 0 { some = 1 } END { exit !some }'; }

# A number of the whole recording.
whole() { tr -d '",' </tmp/record.json | awk -v key="  $1:" 'index($0, key) == 1 { print $2 }'; }

# Cut in the middle, a recording is read up to there, and the command says so.
cut_is_readable() {
	head -c "$(($(wc -c </tmp/host.corun) / 2))" /tmp/host.corun >/tmp/cut.corun
	corun record --from /tmp/cut.corun --anonymise -o /tmp/nameless.corun --json >/tmp/cut.json 2>/tmp/cut.txt &&
		grep -q "cut short" /tmp/cut.txt && grep -q '"name": "vm3"' /tmp/cut.json
}

# On a full disk the command fails, says so, and the file can be read.
full_is_readable() {
	mkdir -p /tmp/small
	mount -t tmpfs -o size=64k tmpfs /tmp/small
	corun record --for 20s -o /tmp/small/host.corun >/tmp/full.txt 2>&1
	full=$?
	corun record --from /tmp/small/host.corun --anonymise -o /tmp/full.corun --json >/tmp/full.json 2>>/tmp/full.txt
	read=$?
	umount /tmp/small
	[ $full = 1 ] && [ $read = 0 ] && grep -q "can be read" /tmp/full.txt && grep -q '"name": "vm1"' /tmp/full.json
}

# Records a host under corun's balance.
policy_is_named() {
	corun record --for 1s -o /tmp/under.corun -q && stop_vms >/dev/null && stop_corun &&
		corun compare /tmp/under.corun --policies balance --quiet >/tmp/under.txt 2>&1 &&
		grep -q "^Replay under balance (the recorded host's own scheduler)" /tmp/under.txt
}

phase_record() {
	begin "record"
	various
	accounts /tmp/before
	corun record -o /tmp/host.corun --json >/tmp/record.json 2>/tmp/record.txt &
	recording_pid=$!
	# 64 KiB are written about once a second.
	tries=0
	until [ "$(wc -c </tmp/host.corun 2>/dev/null || echo 0)" -gt 100 ] || [ $tries -ge 200 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	accounts /tmp/begun
	sleep 3
	accounts /tmp/ending
	kill -TERM $recording_pid
	wait $recording_pid
	recorded=$?
	accounts /tmp/after
	cat /tmp/record.txt
	verdict "record: ends on SIGTERM" "exit code $recorded" [ "$recorded" = 0 ]
	verdict "record: nothing is lost" "$(whole lost) of $(whole events) events" [ "$(whole lost)" = 0 ]
	verdict "record: everything is told" "missing: $(grep -c 'not recorded:' /tmp/record.txt)" \
		sh -c '! grep -q "not recorded:" /tmp/record.txt'
	verdict "record: vCPUs ran as long as the kernel says" "schedstat" as_the_kernel_says
	verdict "record: wake-ups by siblings" "barrier" some barrier siblings
	verdict "record: wake-ups by timers" "timer" some timer timers
	verdict "record: halts and interrupts" "exits of timer" some timer halt
	verdict "record: a cut file is readable" "half of it" cut_is_readable
	verdict "record: a full disk leaves a readable file" "64 KiB" full_is_readable
	start_corun balance
	verdict "record: a recording names corun's policy" "balance" policy_is_named
	cp /tmp/record.json /tmp/record.txt /tmp/full.txt /tmp/under.txt /out/
}
