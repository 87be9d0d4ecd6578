#!/bin/sh
# with_qemu.sh SYSROOT COMMAND...: runs the COMMAND so that programs for aarch64 start as any others, by qemu-user, also
# those that a program starts itself. Where the kernel has no rule for them, it gets one in a user namespace (Linux
# 6.7): the machine does not change. Exit status 77 if neither is possible.
set -eu
QEMU_LD_PREFIX=$1
export QEMU_LD_PREFIX
shift
rules=/proc/sys/fs/binfmt_misc
if [ "${1:-}" = --in-namespace ]; then
    shift
    mount -t binfmt_misc none $rules
    # The rule of Debian's qemu-user-binfmt: the first bytes of a file, which of their bits count, and the interpreter.
    printf '%s' ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:'\
'\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64):" \
        >$rules/register
    exec "$@"
fi
! grep -q '^interpreter.*aarch64' $rules/* 2>/dev/null || exec "$@"
# Tried first: a kernel before 6.7 has one table for all, and refuses.
unshare -rm mount -t binfmt_misc none $rules 2>/dev/null ||
    { echo "programs for aarch64 cannot start others: apt-get install qemu-user-binfmt" >&2 && exit 77; }
exec unshare -rm "$0" "$QEMU_LD_PREFIX" --in-namespace "$@"
