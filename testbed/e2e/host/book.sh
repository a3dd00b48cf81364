# shellcheck shell=sh disable=SC2086,SC2154  # a list; what corun.sh sets
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: do the commands that the book gives to administrators of a host work on one?
# How: scripts/book.py takes them from its pages (files book-KIND here: place, a tab, the command); each is run exactly
# as written, beside a VM named as in the book, and ended after a while unless it ends by itself.

tab="$(printf '\t')"

# Provides what the commands name: sudo, the build, a VM, a service, a folder.
book_furnish() {
	mkdir -p /tmp/book/bin /tmp/book/target/release /var/lib/prometheus/node-exporter \
		/sys/fs/cgroup/system.slice/postgresql.service
	printf '#!/bin/sh\nexec "$@"\n' >/tmp/book/bin/sudo
	chmod +x /tmp/book/bin/sudo
	ln -s "$(command -v corun)" /tmp/book/target/release/corun
	PATH="/tmp/book/bin:$PATH"
	names="web1 db"
	start_vm web1 timer --work 20000 --sleep-us 2000
	start_vm db ping --work 20000
	sleep 1
}

# runs_as_said COMMAND: it prints something, or fills the file that it names last, and ends well, by itself or on
# SIGTERM after twelve seconds (143: it leaves that to the kernel). What it printed is in /tmp/book.txt.
runs_as_said() {
	cd /tmp/book || return 1
	sh -c "exec $1" >/tmp/book.txt 2>&1 &
	_pid=$! _tries=0
	while kill -0 $_pid 2>/dev/null && [ $_tries -lt 120 ]; do
		_tries=$((_tries + 1))
		sleep 0.1
	done
	_ended=0
	kill -TERM $_pid 2>/dev/null && _ended=143
	wait $_pid
	_status=$?
	cd /test || return 1
	if [ $_status != 0 ] && [ $_status != $_ended ] || ! { [ -s /tmp/book.txt ] || [ -s "${1##* }" ]; }; then
		echo "exit status $_status:"
		cat /tmp/book.txt
		return 1
	fi
}

book_commands() {
	while IFS="$tab" read -r where command; do
		verdict "book: $where" "$command" runs_as_said "$command" </dev/null
	done <"book-$1"
}

phase_book() {
	begin "book"
	book_furnish
	book_commands host
	verdict "book: back on the kernel's scheduler" "$(scheduler)" wait_for_eevdf
	# Other commands need a running daemon.
	start_corun balance
	book_commands running
	stop_corun
	verdict "book: leaves cleanly" "$exit_reason" left_cleanly
	corun guest run >/tmp/guest.txt 2>&1 &
	guest_pid=$!
	sleep 3
	book_commands guest
	kill -TERM $guest_pid
	wait $guest_pid
	verdict "book: the guest's daemon ends" "on SIGTERM" [ $? = 0 ]
	verdict "book: guests live" "under $(scheduler)" all_alive $names
	stop_vms >/dev/null
}
