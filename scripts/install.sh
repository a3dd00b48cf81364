#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs what corun is built, tested or tried out with, and says so; does nothing if everything is there.
#
#   scripts/install.sh build        compilers, libraries, and what reports draw with
#   scripts/install.sh book         the same, and mdBook (compiles for some minutes)
#   scripts/install.sh test         the same, the linters, and a browser that looks at reports
#   scripts/install.sh bench        the same as for build, and valgrind
#   scripts/install.sh package      the same as for build, and what packages are checked with
set -euo pipefail

purpose=${1:-build}
packages=(gcc make pkg-config clang-19 libelf-dev zlib1g-dev)
case $purpose in
build | book) ;;
# g++ is for libFuzzer: lint compiles the fuzz targets.
test) packages+=(g++ clang-format-19 shellcheck jq chromium) ;;
bench) packages+=(valgrind) ;;
package) packages+=(binutils lintian mmdebstrap systemd ansible-core ansible-lint) ;;
*)
	echo "install.sh: unknown purpose '$purpose': expected build, book, test, bench or package" >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "install.sh: this is no Debian; please install the equivalents of: ${packages[*]}" >&2
	exit 1
fi

# Any npm will do, Debian's or another.
command -v npm >/dev/null || packages+=(npm)

missing=()
for package in "${packages[@]}"; do
	status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
	[[ $status == "install ok installed" ]] || missing+=("$package")
done

as_root() {
	if [[ $(id -u) == 0 ]]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "install.sh: run this once as root, or install: ${missing[*]}" >&2
		exit 1
	fi
}

if ((${#missing[@]})); then
	echo "Installing Debian packages: ${missing[*]}"
	as_root apt-get update -q
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# The Rust that Cargo.toml asks for. Debian's own is too old; its rustup package is not.
here=$(cd "$(dirname "$0")/.." && pwd)
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/Cargo.toml")
have=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
oldest=$(printf '%s\n' "$wanted" "${have:-0}" | sort -V | head -n1)
if [[ $oldest != "$wanted" ]]; then
	echo "Rust $wanted or newer is needed, found: ${have:-none}."
	if command -v rustup >/dev/null || { apt-cache show rustup >/dev/null 2>&1 &&
		missing=(rustup) && as_root apt-get install -y -q rustup; }; then
		echo "Installing the stable Rust toolchain with rustup"
		rustup default stable
	else
		echo "install.sh: please install Rust with rustup, then run this again" >&2
		exit 1
	fi
fi

# npm packages, with the checksums of the lock file: into the tree, where cargo finds them. Existing ones are left
# alone: if they were installed anew, everything built from them would be built anew.
page=$here/crates/report/page
names=(uplot)
omit=(--omit=dev)
[[ $purpose != test ]] || names+=(playwright-core) omit=()
for name in "${names[@]}"; do
	wanted=$(sed -n "s/.*\"$name\": \"\(.*\)\".*/\1/p" "$page/package.json")
	if ! grep -qs "\"version\": \"$wanted\"" "$page/node_modules/$name/package.json"; then
		echo "Installing npm packages into crates/report/page: ${names[*]}"
		npm install --prefix "$page" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error "${omit[@]}"
		break
	fi
done

# Pinned: themes and the form of links differ between versions.
mdbook=0.5.4
if [[ $purpose == book && $(mdbook --version 2>/dev/null) != "mdbook v$mdbook" ]]; then
	echo "Installing mdBook $mdbook with cargo"
	cargo install --quiet --locked --version "$mdbook" --no-default-features --features search mdbook
fi
