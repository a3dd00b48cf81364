# shellcheck shell=bash disable=SC2154  # names that the scripts which source this file set
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: packages of another Debian suite are needed on a machine whose own packages must stay as they are.
# How: apt with a configuration of its own, in $apt_dir, for $suite: this user's cache, the system's mirror.
# Sourced after common.sh, never run; no root.

private_apt() { "$1" --config-file="$apt_dir/apt.conf" "${@:2}"; }

# The mirror that this system itself uses for its release, as apt understands its sources.
system_mirror() {
	local release
	release="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
	# Without ReleaseInfo it works before the first `apt-get update`, too.
	# shellcheck disable=SC2016  # the variables are apt's
	apt-get indextargets -o APT::Get::IndexTargets::ReleaseInfo=false \
		--format '$(RELEASE) $(COMPONENT) $(CREATED_BY) $(REPO_URI)' |
		awk -v release="$release" \
			'$1 == release && $2 == "main" && $3 == "Packages" && !found++ { print $4 }'
}

configure_apt() {
	local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=""
	mirror="${CORUN_TESTBED_MIRROR:-$(system_mirror)}"
	[ -n "$mirror" ] || skip "apt's sources name no Debian mirror (set CORUN_TESTBED_MIRROR=URI)"
	[ ! -e "$keyring" ] || signed=" signed-by=$keyring"
	mkdir -p "$apt_dir/lists/partial" "$apt_dir/cache/archives/partial" "$apt_dir/log"
	: >"$apt_dir/status"
	echo "deb [arch=amd64 target=Packages$signed] $mirror $suite main" >"$apt_dir/sources.list"
	# Read last, after the system's own files, so that a proxy set there stays in force.
	# An empty status file means "nothing is installed": apt then downloads every library.
	cat >"$apt_dir/apt.conf" <<-END
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
		Dir::Etc::sourcelist "$apt_dir/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State "$apt_dir";
		Dir::State::Lists "$apt_dir/lists";
		Dir::State::status "$apt_dir/status";
		Dir::Cache "$apt_dir/cache";
		Dir::Log "$apt_dir/log";
		APT::Sandbox::User "";
		APT::Architecture "amd64";
		APT::Architectures "amd64";
		APT::Install-Recommends "false";
		Acquire::Check-Valid-Until "false";
		Acquire::Languages "none";
		Acquire::Retries "3";
		Dpkg::Use-Pty "false";
	END
	say "reading the package lists of $suite from $mirror"
	private_apt apt-get --quiet=2 --error-on=any update ||
		skip "the package lists of $suite cannot be had from $mirror"
}
