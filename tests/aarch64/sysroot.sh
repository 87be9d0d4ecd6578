#!/bin/sh
# sysroot.sh DIR: makes DIR (an absolute path) the root of an arm64 Debian with the libraries that the build links, and
# no programs. apt uses a separate state below DIR, so the machine's own packages and architectures are unchanged.
set -eu
made=$1 dir=$1.part
rm -rf "$dir"
packages='libc6-dev zlib1g-dev libssl-dev libcjson-dev libopenblas-pthread-dev libcmocka-dev'
state=$dir/apt
mkdir -p "$state/lists/partial" "$state/archives/partial"
: >"$state/status"
cat >"$state/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
Debug::NoLocking "true";
END
export APT_CONFIG="$state/apt.conf" DEBIAN_FRONTEND=noninteractive
apt-get -q update
# shellcheck disable=SC2086 # the list is words
apt-get -q -y --download-only install $packages
for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$dir"; done
rm -rf "$state"
# OpenBLAS's installation scripts would make these links.
(cd "$dir/usr/lib/aarch64-linux-gnu" && ln -sf openblas-pthread/libopenblas.so* . &&
    ln -sf ../openblas-pthread/pkgconfig/openblas.pc pkgconfig/)
# Absolute links would lead out of the root.
find "$dir" -type l -lname '/*' | while IFS= read -r link; do
    ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" "$dir$(readlink "$link")")" "$link"
done
mv "$dir" "$made"
