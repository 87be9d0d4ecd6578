#!/bin/sh
# with_qemu.sh SYSROOT COMMAND...: runs COMMAND so that aarch64 programs start like any others, by qemu-user, including
# those that a program starts itself. If the kernel has no binfmt rule for them, one is made in a user namespace (Linux
# 6.7): the machine is unchanged. Exit status 77 if neither is possible.
set -eu
QEMU_LD_PREFIX=$1
export QEMU_LD_PREFIX
shift
rules=/proc/sys/fs/binfmt_misc
if [ "${1:-}" = --in-namespace ]; then
    shift
    mount -t binfmt_misc none $rules
    # The rule of Debian's qemu-user-binfmt: magic bytes, mask, interpreter.
    printf '%s' ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:'\
'\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64):" \
        >$rules/register
    exec "$@"
fi
! grep -q '^interpreter.*aarch64' $rules/* 2>/dev/null || exec "$@"
# Attempted first: a kernel before 6.7 has a single global table, and refuses.
unshare -rm mount -t binfmt_misc none $rules 2>/dev/null ||
    { echo "programs for aarch64 cannot start others: apt-get install qemu-user-binfmt" >&2 && exit 77; }
exec unshare -rm "$0" "$QEMU_LD_PREFIX" --in-namespace "$@"
