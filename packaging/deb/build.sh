#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: operators install packages, not build trees.
# How: puts the release binary, its manual pages and completions (which it writes itself), services,
# dashboards and documentation where Debian has them, and packs that with dpkg-deb; no root needed.
#
# Usage: build.sh [BINARY [DIR]]   BINARY: target/release/corun; the package is written to DIR (out)
#        DEBFULLNAME, DEBEMAIL     its maintainer, as for Debian's tools
set -euo pipefail

repository="$(cd "$(dirname "$0")/../.." && pwd)"
binary="${1:-$repository/target/release/corun}"
out="${2:-$repository/out}"

[ -x "$binary" ] || {
	echo "build.sh: $binary is not there: build it first (cargo build --release -p corun)" >&2
	exit 2
}
version="$("$binary" --version | awk '{ print $2 }')"
architecture="$(dpkg --print-architecture)"
maintainer="${DEBFULLNAME:-the corun authors} <${DEBEMAIL:-corun@localhost}>"
# Dates in the package are the last commit's: same sources, same bytes.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$repository" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022

install -D -m 755 "$binary" "$root/usr/bin/corun"
strip --strip-unneeded --remove-section=.comment "$root/usr/bin/corun"
for unit in "$repository"/packaging/systemd/*.service; do
	install -D -m 644 "$unit" "$root/usr/lib/systemd/system/${unit##*/}"
done
install -D -m 644 "$repository/packaging/corun.default" "$root/etc/default/corun"
install -D -m 644 "$repository/packaging/host.toml" "$root/etc/corun/host.toml"
for example in "$repository"/packaging/examples/*.toml; do
	install -D -m 644 "$example" "$root/usr/share/doc/corun/examples/${example##*/}"
done
install -D -m 644 "$repository/packaging/grafana/corun.json" "$root/usr/share/corun/grafana/corun.json"
install -D -m 644 "$repository/packaging/prometheus/corun.rules.yml" "$root/usr/share/corun/prometheus/corun.rules.yml"

"$binary" pages "$root/pages"
mkdir -p "$root/usr/share/man/man1"
for page in "$root"/pages/*.1; do gzip -9 -n <"$page" >"$root/usr/share/man/man1/${page##*/}.gz"; done
install -D -m 644 "$root/pages/corun.bash" "$root/usr/share/bash-completion/completions/corun"
install -D -m 644 "$root/pages/_corun" "$root/usr/share/zsh/vendor-completions/_corun"
install -D -m 644 "$root/pages/corun.fish" "$root/usr/share/fish/vendor_completions.d/corun.fish"
rm -r "$root/pages"

doc="$root/usr/share/doc/corun"
mkdir -p "$doc"
for page in metrics security socket safety; do install -m 644 "$repository/docs/$page.md" "$doc/"; done
gzip -9 -n <"$repository/CHANGELOG.md" >"$doc/CHANGELOG.md.gz"
gzip -9 -n >"$doc/changelog.gz" <<END
corun ($version) unstable; urgency=medium

  * What has changed is in CHANGELOG.md.gz beside this file.

 -- $maintainer  $(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
END
cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: corun
Comment: Crates that the binary is made of, each with its licence, are listed in crates.gz beside this file.

Files: *
Copyright: $(date --utc --date "@$SOURCE_DATE_EPOCH" +%Y) the corun authors
License: GPL-2.0-only
 On Debian systems, the full text of the GNU General Public License version 2 is in
 /usr/share/common-licenses/GPL-2.
END
(cd "$repository" && cargo tree --quiet --locked --package corun --edges normal --prefix none --format '{p} {l}') |
	sed 's/ (.*) / /' | LC_ALL=C sort -u | gzip -9 -n >"$doc/crates.gz"
# Where Debian's checker is overruled, each with the reason.
install -D -m 644 "$repository/packaging/deb/lintian-overrides" "$root/usr/share/lintian/overrides/corun"

mkdir -p "$root/DEBIAN"
for script in postinst prerm postrm; do
	install -m 755 "$repository/packaging/deb/$script" "$root/DEBIAN/$script"
done
printf '%s\n' /etc/corun/host.toml /etc/default/corun >"$root/DEBIAN/conffiles"
size="$(du -k -s --exclude DEBIAN "$root" | cut -f 1)"
# The libraries that it needs, and the newest symbols of the C library that it uses; libbpf, libelf and zlib are linked
# into it.
glibc="$(objdump --dynamic-syms "$root/usr/bin/corun" | grep -o 'GLIBC_[0-9.]*' | sort --version-sort | tail -n 1)"
cat >"$root/DEBIAN/control" <<END
Package: corun
Version: $version
Section: admin
Priority: optional
Architecture: $architecture
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Maintainer: $maintainer
Installed-Size: $size
Description: schedules the vCPUs of overcommitted KVM hosts
 corun schedules the virtual CPUs of Linux/KVM hosts through sched_ext, with
 the policies of published research, and predicts what a policy would do to a
 host. It watches what each VM gets (CPU ready time and more) on any
 kernel, and hands the host back to the kernel's own scheduler when a promise
 is broken.
END
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$out"
package="$out/corun_${version}_$architecture.deb"
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
