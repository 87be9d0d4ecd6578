#!/bin/sh
# packages.sh: builds the Debian packages (common/cmake/package.cmake): lintian finds no error; in a bare root the
# packages install, train, compile a program and leave no file when removed. Needs root, debootstrap, lintian and a
# Debian mirror, else ends with 77. It builds the tree once more.
set -eu
export LC_ALL=C
source=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "debootstrap needs root" && exit 77; }
for tool in debootstrap lintian dpkg-deb; do
    command -v "$tool" >/dev/null || { echo "no $tool: apt-get install debootstrap lintian dpkg-dev" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$source/build-packages
say() { printf '%-34s %s\n' "$@"; }
fail() {
    echo "FAILED: $*"
    exit 1
}
log=$work/log
quietly() { "$@" >"$log" 2>&1 || { tail -n 30 "$log" && fail "$*"; }; }

configure() { # CONTACT
    cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DWITH_TESTS=OFF -DWITH_MPI=OFF \
        -DCMAKE_SKIP_INSTALL_RPATH=ON -DCPACK_PACKAGE_CONTACT="$1" >"$log" 2>&1 || { tail "$log" && fail configuring; }
}
configure ''
quietly cmake --build "$build" -j "$(nproc)"
rm -f "$build"/*.deb
! (cd "$build" && cpack -G DEB) >"$log" 2>&1 || fail "packages without a maintainer"
grep -q 'requires a maintainer' "$log" || { tail -n 30 "$log" && fail "no word of the maintainer"; }
contact='A. Publisher <packages@example.org>'
configure "$contact"
(cd "$build" && rm -f ./*.deb && quietly cpack -G DEB)
for package in "$build"/*.deb; do
    name=$(dpkg-deb -f "$package" Package)
    [ "$(dpkg-deb -f "$package" Maintainer)" = "$contact" ] || fail "$name: $(dpkg-deb -f "$package" Maintainer)"
    dpkg-deb --fsys-tarfile "$package" | tar -xO "./usr/share/doc/$name/changelog.Debian.gz" | gzip -d >"$work/changes"
    grep -qF -- " -- $contact  " "$work/changes" || fail "$name: $(cat "$work/changes")"
    say "$(basename "$package")" "$(du -k "$package" | cut -f 1) KiB, $(dpkg-deb -c "$package" | grep -c '^-') files"
done
quietly lintian --fail-on error --no-cfg --allow-root "$build"/*.deb
say lintian "$(grep -c '^W:' "$log" || true) warnings, no errors"

root=$work/root
quietly debootstrap --variant=minbase bookworm "$root"
find "$root/usr" "$root/etc" "$root/lib" | sort >"$work/before"
mkdir "$root/packages"
cp "$build"/*.deb "$root/packages"
# shellcheck disable=SC2016 # the inner shell expands
in_root() { # with /proc mounted, in a mount namespace that ends with the command
    unshare -m sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" env DEBIAN_FRONTEND=noninteractive HOME=/root "$@"' \
        "$root" "$@"
}
quietly in_root sh -c 'apt-get install -y --no-install-recommends /packages/*.deb'
say installed "$(in_root dpkg-query -W -f '${Package} ' 'ddpc*' libddpc-dev)"
quietly in_root train_dp --devices 2 --steps 3 --no-eval --save /tmp/dp
quietly in_root ddprun --nproc-per-node 2 train_ddp --sampler blocked --steps 3 --no-eval --save /tmp/ddp
quietly in_root compare_tensors --bitwise /tmp/dp /tmp/ddp
say 'train_dp, train_ddp' 'equal bits'
quietly in_root apt-get install -y --no-install-recommends gcc pkg-config
cat >"$root/tmp/small.c" <<'END'
#include <ddpc/ddpc.h>
int main(void) { return sizeof(ProcessGroup *) != sizeof(void *); }
END
quietly in_root sh -c 'gcc /tmp/small.c -o /tmp/small $(pkg-config --cflags --libs ddpc) && /tmp/small'
say 'a program with libddpc-dev' 'built and run'
quietly in_root sh -c 'apt-get purge -y "ddpc*" libddpc-dev && ldconfig'
left=$(find "$root/usr" "$root/etc" "$root/lib" -iname '*ddpc*' | grep -v '/var/' || true)
[ -z "$left" ] || fail "left behind: $left"
say removed 'nothing is left'
