# shellcheck shell=bash disable=SC2154  # root, out and functions: packaging/test.sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: a role is trusted with a fleet before anybody has seen it take a host back.
# How: runs it with ansible-playbook inside the clean root, where stand-ins answer for systemd and for what
# `corun` finds on the host: three hosts that do well, one that preflight refuses, one whose VMs wait longer.

role="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# stand_in NAME: a program, from standard input, that is found in place of the real one.
stand_in() {
	cat >"$root/usr/local/bin/$1"
	chmod +x "$root/usr/local/bin/$1"
}

# Requests to systemd are written down; a service is in the state that it was last put in.
stand_in_systemctl() {
	stand_in systemctl <<-'END'
		#!/bin/sh
		state=/tmp/services
		mkdir -p $state
		for word; do case $word in *.service) unit=$word ;; esac; done
		case $1 in
		start | restart) echo "$1 $unit" >>/tmp/asked; : >$state/$unit.active ;;
		stop) echo "$1 $unit" >>/tmp/asked; rm -f $state/$unit.active ;;
		enable) echo "$1 $unit" >>/tmp/asked; : >$state/$unit.enabled ;;
		disable) echo "$1 $unit" >>/tmp/asked; rm -f $state/$unit.enabled ;;
		is-enabled) [ -e $state/$unit.enabled ] && echo enabled || { echo disabled; exit 1; } ;;
		show)
			[ -e $state/$unit.active ] && active=active || active=inactive
			printf 'Id=%s\nLoadState=loaded\nActiveState=%s\nSubState=running\n' "$unit" "$active"
			;;
		esac
	END
}

# stand_in_corun PREFLIGHT BEFORE AFTER: preflight's exit code; the worst VM's ready time before and under corun.
stand_in_corun() {
	stand_in corun <<-END
		#!/bin/sh
		case \$1 in
		preflight)
			echo "\$*" >>/tmp/asked
			[ ! -e /tmp/services/corun.service.active ] || exit 1
			exit $1
			;;
		top)
			[ -e /tmp/services/corun.service.active ] && ready=$3 || ready=$2
			echo "[{\"name\": \"a\", \"ready\": 0.01}, {\"name\": \"b\", \"ready\": \$ready}]"
			;;
		status) echo '{}' ;;
		esac
	END
}

# play NAME [VARIABLE…]: the roll-out over three hosts, all of them this root, where nothing runs; its output in $out.
play() {
	rm -rf "$root/tmp/services"
	play_again "$@"
}

# play_again NAME [VARIABLE…]: the same with the services as they are.
play_again() {
	local name="$1" variable
	local -a extra=()
	shift
	for variable in "$@"; do extra+=(-e "$variable"); done
	rm -f "$root/tmp/asked"
	inside ansible-playbook -i first,second,third, -c local /tmp/ansible/site.yml \
		-e ansible_python_interpreter=/usr/bin/python3 -e ansible_become=false \
		-e corun_deb=/tmp/corun.deb -e corun_soak=1 "${extra[@]}" >"$out/ansible-$name.log" 2>&1
}

# asked PATTERN: was this asked of systemd? not_asked: was it not?
asked() { grep -q "$1" "$root/tmp/asked"; }
not_asked() { ! asked "$1" 2>/dev/null; }
# hosts_reached NAME COUNT: work began on this many hosts.
hosts_reached() { [ "$(grep -cE '^(first|second|third) +: ok=' "$out/ansible-$1.log")" = "$2" ]; }
fails() { ! "$@"; }

try_role() {
	verdict "ansible-lint is content" ansible-lint --offline --nocolor "$role/site.yml"
	mkdir -p "$root/tmp/ansible"
	cp -r "$role/site.yml" "$role/roles" "$root/tmp/ansible/"
	verdict "the role's syntax" inside ansible-playbook --syntax-check -i localhost, /tmp/ansible/site.yml
	stand_in_systemctl

	stand_in_corun 0 0.20 0.25
	verdict "role: rolled out over three hosts" play good
	verdict "role: one host after the other" test "$(grep -c '^PLAY \[Roll' "$out/ansible-good.log")" = 3
	verdict "role: in charge and enabled" test -e "$root/tmp/services/corun.service.enabled"
	verdict "role: so is the exporter" test -e "$root/tmp/services/corun-metrics.service.enabled" \
		-a -e "$root/tmp/services/corun-metrics.service.active"
	verdict "role: its options are in place" grep -q 'policy balance' "$root/etc/default/corun"

	verdict "role: rolled out again where it is in charge" play_again again \
		'{"corun_options": "--policy aql --force=kvm --force load"}'
	verdict "role: the host was handed back before" test "$(head -n 1 "$root/tmp/asked")" = "stop corun.service"
	verdict "role: preflight overlooks what the service does" asked '^preflight --force=kvm --force load$'
	verdict "role: in charge again" test -e "$root/tmp/services/corun.service.active"
	verdict "role: with the new options" grep -q 'policy aql' "$root/etc/default/corun"

	stand_in_corun 0 0.20 0.35
	verdict "role: a VM waits longer, and the roll-out fails" fails play worse
	verdict "role: the host is taken back" asked '^stop corun.service'
	verdict "role: and stays so" test ! -e "$root/tmp/services/corun.service.enabled"
	verdict "role: no other host was touched" hosts_reached worse 1

	stand_in_corun 1 0.20 0.20
	verdict "role: preflight refuses, and the roll-out fails" fails play refused
	verdict "role: nothing was started" not_asked '^restart corun.service'
	verdict "role: no other host was tried" hosts_reached refused 1

	stand_in_corun 0 0.20 0.20
	verdict "role: rolled out after that, with the options as they were" play_again mended
	verdict "role: the exporter runs then, too" test -e "$root/tmp/services/corun-metrics.service.active"

	verdict "role: removed again everywhere" play absent corun_state=absent
	verdict "role: nothing of the package is left" test ! -e "$root/usr/bin/corun" -a ! -e "$root/etc/default/corun" \
		-a ! -e "$root/var/cache/corun.deb"
}
