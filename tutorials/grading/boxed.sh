# boxed.sh: what grade and run share: a student's file is compiled and runs with the system's folders and $scratch, which
# this makes and removes, and with nothing of the user's. Sourced after common.sh.
. "$build/tutorials/settings.sh"
scratch=$(cd "$(mktemp -d)" && pwd -P)
trap 'rm -rf "$scratch"' EXIT
keeper=$build/bin/tutorial_keeper # for what is not boxed; empty in a box, which ends all that runs in it
export cc fill sanitize scratch

# What a student's file may include: a copy of the headers, named by their contents, that is kept beside the build; in
# $scratch where the build's folder is not writable. One that no grader has used for a day is removed.
copy_headers() { # FOLDER
    mkdir -- "$1" && tar -C "$root" -cf - -T "$scratch/listed" | tar -xf - -C "$1"
}
(cd "$root" && find common dp ddp tutorials -path tutorials/work -prune -o -name '*.h' -print | sort) >"$scratch/listed"
headers=$build/tutorials/headers-$(cd "$root" && xargs -d '\n' cat "$scratch/listed" <"$scratch/listed" | cksum | tr ' ' -)
if [ ! -w "$build/tutorials" ]; then
    [ -d "$headers" ] || { headers=$scratch/headers && copy_headers "$headers"; }
elif [ -d "$headers" ]; then
    touch -- "$headers"
else
    find "$build/tutorials" -maxdepth 1 -name 'headers-*' -mtime +0 -exec rm -rf {} +
    copy_headers "$build/tutorials/new-headers-$$"
    # Another grader may have been faster.
    mv -T "$build/tutorials/new-headers-$$" "$headers" 2>/dev/null || rm -rf "$build/tutorials/new-headers-$$"
fi
headers=$(cd "$headers" && pwd -P)
export headers

# boxed FILE COMMAND...: in bubblewrap, with the system's folders, the built programs, the student's file and $scratch
# only, and with the folder $also if it is set.
boxed() {
    student=$1
    shift
    timeout -s KILL 200 bwrap --unshare-user --unshare-all --die-with-parent --new-session --cap-drop ALL \
        --ro-bind /usr /usr --ro-bind-try /bin /bin --ro-bind-try /lib /lib --ro-bind-try /lib64 /lib64 \
        --ro-bind-try /opt /opt --ro-bind-try /etc/alternatives /etc/alternatives \
        --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache --proc /proc --dev /dev --tmpfs /tmp \
        --ro-bind "$build/bin" "$build/bin" --ro-bind-try "$build/lib" "$build/lib" \
        --ro-bind "$headers" "$headers" --ro-bind "$headers" "$build/include/ddpc" --ro-bind "$here/grading" "$here/grading" \
        ${also:+--ro-bind "$also" "$also"} \
        --ro-bind "$student" "$student" --bind "$scratch" "$scratch" --chdir / "$@"
}
