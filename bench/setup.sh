# setup.sh: finds what is missing on this machine, installs it, and builds. POSIX sh, to be sourced;
# bench/compare.sh and tests/run.sh start with it:
#
#   . bench/setup.sh
#   setup_require INSTALL GROUP...           groups: build, tests, emulator, openmpi, mpich, aarch64, clusters, plots,
#                                            peers, scale, backtraces, nightly, models, clang, ninja
#   setup_build SOURCE BUILD [TARGET...]     by $SETUP_PRESET (release); says how far it is, and no more
#                                            unless it fails. setup_configure and setup_make are its halves
#
# INSTALL is 1 when the user gave --install. Root always installs; anybody else is told the command.
# All of them exit with status 2 when they cannot do their work.

setup_say() {
    printf '%s\n' "$*" >&2
}

# True if CMake 3.25 or later is installed.
setup_has_cmake() {
    command -v cmake >/dev/null &&
        cmake --version |
        awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'
}

setup_has_library() {
    command -v pkg-config >/dev/null && pkg-config --exists "$1"
}

setup_has_libc_headers() {
    command -v gcc >/dev/null && echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1
}

# Debian's serial and OpenMP variants of OpenBLAS, recognized by the folder's name, are not accepted: the serial one is
# not safe with threads, the OpenMP one hangs after a fork.
setup_has_openblas() {
    setup_has_library openblas-pthread && return 0
    setup_has_library openblas || return 1
    case $(pkg-config --variable=libdir openblas) in
    *openblas-serial* | *openblas-openmp*) return 1 ;;
    esac
}

# tests/device/clang_kernels.sh takes 16 and newer; Debian 12's own is 14.
setup_has_clang() {
    for setup_version in 16 17 18 19 20 21 22; do
        ! command -v "clang++-$setup_version" >/dev/null || return 0
    done
    return 1
}

# Prints the Debian packages that the groups need and this machine lacks. A package
# is not lacking if its command or library exists, such as a CMake that the user has installed.
setup_missing() {
    for setup_group in "$@"; do
        case $setup_group in
        build)
            setup_has_cmake || echo cmake
            command -v gcc >/dev/null || echo gcc
            setup_has_libc_headers || echo libc6-dev
            command -v make >/dev/null || command -v ninja >/dev/null || echo make
            command -v pkg-config >/dev/null || echo pkg-config
            setup_has_openblas || echo libopenblas-pthread-dev
            setup_has_library zlib || echo zlib1g-dev
            setup_has_library libcjson || echo libcjson-dev
            setup_has_library libcrypto || echo libssl-dev
            ;;
        tests)
            setup_has_library cmocka || echo libcmocka-dev
            command -v ninja >/dev/null || echo ninja-build # a fifth less processor time than make
            command -v c++ >/dev/null || echo g++        # for a program in C++ with the installed library
            ctags --version 2>/dev/null | grep -q 'Universal Ctags' || echo universal-ctags # tests/lint.sh
            command -v groff >/dev/null || echo groff-base # for the manual pages as they are printed
            python3 -c 'import jsonschema, yaml' 2>/dev/null || /usr/bin/python3 -c 'import jsonschema, yaml' 2>/dev/null ||
                echo python3-jsonschema python3-yaml # tests/tutorials/check_schema.py
            ;;
        ninja) command -v ninja >/dev/null || echo ninja-build ;; # the work of many targets side by side
        emulator) command -v g++ >/dev/null || echo g++ ;;
        openmpi) command -v mpicc.openmpi >/dev/null || echo libopenmpi-dev openmpi-bin ;;
        clusters) # two hosts on one machine, and Slurm on them
            command -v ip >/dev/null || echo iproute2
            PATH=$PATH:/usr/sbin command -v slurmd >/dev/null || echo slurmctld slurmd slurm-client munge
            ;;
        aarch64)
            command -v aarch64-linux-gnu-gcc >/dev/null || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
            command -v qemu-aarch64 >/dev/null || echo qemu-user
            ;;
        mpich) command -v mpicc.mpich >/dev/null || echo libmpich-dev mpich ;;
        backtraces) command -v gdb >/dev/null || echo gdb ;;
        scale) setup_has_library simgrid || echo libsimgrid-dev ;;
        models) # tests/weak_memory
            command -v c++ >/dev/null || echo g++
            [ -e /usr/include/relacy/relacy.hpp ] || echo relacy-dev
            ;;
        plots) # figures, and the report
            command -v gnuplot >/dev/null || echo gnuplot-nox
            python3 -c 'import jinja2' 2>/dev/null || /usr/bin/python3 -c 'import jinja2' 2>/dev/null || echo python3-jinja2
            ;;
        nightly) # the book, the slides, the container of the course, the Debian packages
            command -v pandoc >/dev/null || echo pandoc
            command -v buildah >/dev/null || echo buildah
            PATH=$PATH:/usr/sbin command -v debootstrap >/dev/null || echo debootstrap
            command -v lintian >/dev/null || echo lintian
            command -v zip >/dev/null || echo zip
            command -v unzip >/dev/null || echo unzip
            ;;
        clang) setup_has_clang || echo clang-19 ;;
        peers)
            python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
            command -v mpicc >/dev/null || echo libopenmpi-dev
            command -v mpirun >/dev/null || echo openmpi-bin
            ;;
        esac
    done
}

# setup_apt PREFIX PACKAGE...: installs packages; updates the package lists only if the first attempt fails.
setup_apt() {
    setup_prefix=$1
    shift
    setup_get="$setup_prefix env DEBIAN_FRONTEND=noninteractive apt-get -q"
    setup_log=$(mktemp)
    # shellcheck disable=SC2086 # the command is words
    $setup_get install -y --no-install-recommends "$@" >"$setup_log" 2>&1 ||
        { $setup_get update && $setup_get install -y --no-install-recommends "$@"; } \
            >>"$setup_log" 2>&1 ||
        { cat "$setup_log" >&2 && rm -f "$setup_log" && return 1; }
    rm -f "$setup_log"
}

setup_require() {
    setup_install=$1
    shift
    setup_packages=$(setup_missing "$@" | paste -sd ' ' -)
    [ -n "$setup_packages" ] || return 0

    setup_sudo=
    [ "$(id -u)" = 0 ] || setup_sudo=sudo
    if ! command -v apt-get >/dev/null; then
        setup_say "error: missing (by their Debian names): $setup_packages"
        exit 2
    fi
    if [ -n "$setup_sudo" ] && [ "$setup_install" != 1 ]; then
        setup_say "error: missing packages: $setup_packages"
        setup_say "install them with --install, or by"
        setup_say "    sudo apt-get install --no-install-recommends $setup_packages"
        exit 2
    fi
    setup_say "installing $setup_packages"
    # shellcheck disable=SC2086 # the list is words
    setup_apt "$setup_sudo" $setup_packages || exit 2

    setup_packages=$(setup_missing "$@" | paste -sd ' ' -)
    if [ -n "$setup_packages" ]; then
        setup_say "error: still missing or too old (CMake must be 3.25 or newer): $setup_packages"
        exit 2
    fi
}

# setup_minutes SECONDS: prints "1:05" for 65 seconds.
setup_minutes() {
    printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
}

# setup_progress LOG: copies a build's output into the log and shows its progress: on a terminal in one line that is
# redrawn, otherwise in a line every 15 seconds.
setup_progress() {
    setup_begin=$(date +%s) setup_said=$(date +%s) setup_percent=0 setup_drawn=0
    while IFS= read -r setup_line; do
        printf '%s\n' "$setup_line" >>"$1"
        setup_head=${setup_line%%]*} # "[ 12%" of make, "[12/340" of ninja
        case $setup_head in
        '['*[!0-9/%\ ]* | '[') continue ;;
        '['*%) setup_now=${setup_head#[} setup_now=${setup_now%\%} ;;
        '['*/*) setup_now=${setup_head#[} setup_now=$((100 * ${setup_now%/*} / ${setup_now#*/})) ;;
        *) continue ;;
        esac
        setup_now=$((setup_now))
        [ "$setup_now" -gt "$setup_percent" ] || continue
        setup_percent=$setup_now setup_time=$(date +%s)
        setup_left=$(((setup_time - setup_begin) * (100 - setup_percent) / setup_percent))
        setup_text="  $setup_percent % built, about $(setup_minutes $setup_left) left"
        if [ -t 2 ]; then
            printf '\r\033[K%s' "$setup_text" >&2
            setup_drawn=1
        elif [ $((setup_time - setup_said)) -ge 15 ]; then
            setup_said=$setup_time
            setup_say "$setup_text"
        fi
    done
    [ $setup_drawn = 0 ] || printf '\r\033[K' >&2
}

# setup_configure SOURCE BUILD: runs CMake. Afterwards CTest can list the tests, although none is built.
setup_configure() {
    setup_dir=$2
    setup_tests=OFF
    setup_has_library cmocka && setup_tests=ON
    setup_generator=
    [ -f "$setup_dir/CMakeCache.txt" ] || ! command -v ninja >/dev/null || setup_generator="-G Ninja"
    mkdir -p "$setup_dir"
    setup_say "building in $setup_dir"
    # shellcheck disable=SC2086 # the generator is two words or none
    cmake -S "$1" -B "$setup_dir" $setup_generator --preset "${SETUP_PRESET:-release}" \
        -DWITH_TESTS=$setup_tests >"$setup_dir/setup.log" 2>&1 || setup_fail
}

# setup_make [TARGET...]: builds targets in the folder of setup_configure.
setup_make() {
    rm -f "$setup_dir/setup.done"
    {
        ! cmake --build "$setup_dir" -j "$(nproc)" ${1:+--target "$@"} || : >"$setup_dir/setup.done"
    } 2>&1 | setup_progress "$setup_dir/setup.log"
    [ -e "$setup_dir/setup.done" ] || setup_fail
}

setup_fail() {
    tail -n 40 "$setup_dir/setup.log" >&2
    setup_say "error: the build failed; all of its output is in $setup_dir/setup.log"
    exit 2
}

setup_build() {
    setup_configure "$1" "$2"
    shift 2
    setup_make "$@"
}
