#!/bin/sh
# tutorial_container.sh BIN_DIR: .devcontainer/Containerfile builds on a bare Debian 12, and in it the instructions of
# tutorials/README.md work: build the project, start and grade an exercise, start ranks. Each is a RUN line. The base is
# made by debootstrap from this machine's mirror. Without root, buildah or debootstrap: skipped.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
for tool in buildah debootstrap; do
    command -v $tool >/dev/null || { echo "skipped: no $tool" && exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: debootstrap needs root" && exit 77; }
for container in docker podman; do ! grep -q "$container" /proc/1/cgroup || echo "inside of $container"; done

# The files named in devcontainer.json exist; it has no comments.
if command -v python3 >/dev/null; then
    run 'devcontainer.json' python3 -c 'import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
made = json.loads((folder / "devcontainer.json").read_text())
assert set(made) <= {"name", "build", "remoteUser", "runArgs", "postCreateCommand"}, made
assert (folder / made["build"]["dockerfile"]).exists() and f"USER {made['"'remoteUser'"']}" in (folder / "Containerfile").read_text()' "$root/.devcontainer"
fi
# All packages listed on the first page.
for package in $(sed -n 's/^ *sudo apt-get install //p' "$root/tutorials/README.md" | head -n 1); do
    checks=$((checks + 1))
    grep -qw -- "$package" "$root/.devcontainer/Containerfile" || fail "the Containerfile lacks $package"
done

export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
storage="--root $work/store --runroot $work/run"
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) bookworm main.*/\2/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
# shellcheck disable=SC2086 # empty: debootstrap's default mirror
run 'a bare Debian' debootstrap --variant=minbase bookworm "$work/base" $mirror
cp -r /etc/apt/apt.conf.d/. "$work/base/etc/apt/apt.conf.d/"
tar -C "$work/base" -cf base.tar .
rm -rf "$work/base"
mkdir empty tree
printf 'FROM scratch\nADD base.tar /\n' >empty/Containerfile
mv base.tar empty/
# shellcheck disable=SC2086
run 'the base' buildah $storage bud -t base empty
# shellcheck disable=SC2086
run 'the Containerfile' buildah $storage bud --build-arg BASE=localhost/base -t course "$root/.devcontainer"

tar -C "$root" --owner=1000 --group=1000 --exclude=./.git --exclude='./build*' --exclude='./bench/out*' --exclude=./tutorials/work -cf tree/tree.tar .
cat >tree/Containerfile <<'END'
FROM localhost/course
ADD --chown=student tree.tar /home/student/ddp.c
RUN cmake -S . -B build && cmake --build build -j2
RUN tutorials/start 02 && ! tutorials/grade 02 3
RUN cp tutorials/02-shards/exercises/03-batch-mean.c tutorials/work/02-shards/ && tutorials/grade 02 3
RUN build/bin/ddprun --nproc-per-node 2 build/bin/tutorial_09 --steps 2 --no-eval
RUN ctest --test-dir build -R '^(test_ddp|tutorial_worksheets|grade_02_01)$' --output-on-failure
RUN tutorials/teaching/slides two-hours
END
sed -i "s,02-shards,$(basename "$root"/tutorials/[0-9][0-9]-shards),g; s,tutorial_09,tutorial_$(basename "$root"/tutorials/[0-9][0-9]-replicas | cut -c1-2),g" tree/Containerfile
# shellcheck disable=SC2086
run 'the course in it' buildah $storage bud -t tested tree
tail -n 3 out.txt
tally tutorial_container
