# devices.sh: selects the devices of the runs and decides whose times may be shown. Sourced by compare.sh before
# runs.sh; uses its bin, device, models, worlds and repeats.
# CPU devices exist in any number. The number of GPUs is the machine's: if a run needs more, several replicas or ranks
# share one. Such a run computes the same values, but its times have no meaning. It must pass the equivalence checks
# like all others, and none of its times is printed or drawn. The same holds for the tests' emulated GPU.

kind=cpu # or cuda: the kind of --device
backend=auto
gpus=0 # number of GPUs, counted up to the number that the runs need
emulated=0 # 1: the GPU is the tests' emulator
units=cores # the processing units named in the figures; $cores is their number

# run_a_step PROGRAM OPTION...: runs one step on the device, with its records in the folder $probe_folder.
run_a_step() {
    local program=$1
    shift
    "$bin/$program" --steps 1 --global-batch 12 --no-eval --out "$probe_folder" "$@" \
        >/dev/null 2>"$probe_folder/log" 9<&-
}

# must_run_a_step PROGRAM OPTION...: ends the script with the program's error line and status if it fails; the status is
# 77 where there is no GPU.
must_run_a_step() {
    local status=0
    run_a_step "$@" || {
        status=$?
        grep -m 1 '^error: ' "$probe_folder/log" >&2 || cat "$probe_folder/log" >&2
        rm -rf "$probe_folder"
        exit $status
    }
}

# Ends the script if a model cannot run on the device.
check_devices() {
    local model most=${worlds##* }
    probe_folder=$(mktemp -d)
    for model in $models; do
        must_run_a_step train_single --device "$device" --model "$model" --data "$(data_of "$model")"
    done
    kind=$(json device "$probe_folder/summary.json")
    if [[ $kind == cuda ]]; then
        [[ $(json blas "$probe_folder/config.json") != *emulated* ]] || emulated=1 repeats=1
        gpus=1
        while ((gpus < most)) && run_a_step train_dp --device cuda --device-ids $gpus; do
            gpus=$((gpus + 1))
        done
        units=GPUs cores=$gpus
        [[ -z $(why_untimed) ]] || say "$(why_untimed)"
    fi
    rm -rf "$probe_folder"
}

# has_gpus_for WORLD: true if every device has its own GPU.
has_gpus_for() {
    [[ $kind != cuda || $1 -le $gpus ]]
}

# Prints the prefix of a command that computes on one CPU device: keeps it on the first allowed core, as --bind does
# with several devices.
on_first_core() {
    [[ $kind != cpu ]] || ! command -v taskset >/dev/null || taskset -cp $$ | sed 's/.*: \([0-9]*\).*/taskset -c \1/'
}

# is_timed WORLD: true if the times of a run on WORLD devices may be shown.
is_timed() {
    [[ $emulated == 0 ]] && has_gpus_for "$1"
}

timed_worlds() {
    local world
    for world in $worlds; do ! is_timed "$world" || echo "$world"; done | paste -sd ' ' -
}

# Prints in one line why some runs are not timed; prints nothing if all are.
why_untimed() {
    if [[ $emulated == 1 ]]; then
        echo "The GPU is emulated: no timing means anything, so none is shown or drawn."
    elif ! has_gpus_for "${worlds##* }"; then
        echo "GPUs here: $gpus. More devices than that share cards: their times mean nothing, so they" \
            "are neither shown nor drawn."
    fi
}

# dp_devices WORLD: prints DataParallel's options for WORLD devices. Shared GPUs are assigned round-robin.
dp_devices() {
    local ids=() i
    if has_gpus_for "$1"; then
        echo --devices "$1"
    else
        for ((i = 0; i < $1; i++)); do ids+=($((i % gpus))); done
        echo --device-ids "$(tr ' ' , <<<"${ids[*]}")"
    fi
}

# hosts_of RANKS: distributes the ranks round-robin over the machines of $hosts and prints each host's share, in the
# order of $hosts.
hosts_of() {
    awk -v hosts="$hosts" -v ranks="$1" 'BEGIN {
        n = split(hosts, host, ",")
        for (i = 1; i <= n; i++) {
            split(host[i], part, ":")
            name[i] = part[1]; room[i] = part[2] ? part[2] : 1; all += room[i]
        }
        if (all < ranks) { print hosts; exit }
        for (i = 1; ranks > 0; i = i % n + 1) if (used[i] < room[i]) { used[i]++; ranks-- }
        for (i = 1; i <= n; i++) if (used[i]) list = list (list ? "," : "") name[i] ":" used[i]
        print list
    }'
}

# start STRATEGY WORLD: sets `command` to a strategy's program on WORLD devices; the caller adds options.
# shellcheck disable=SC2046,SC2207 # a command is words
start() {
    case $1 in
    single) command=($(on_first_core) "$bin/train_single") ;;
    dp) command=("$bin/train_dp" $(dp_devices "$2") --bind cores) ;;
    *)
        start_ranks "$2"
        command+=("$bin/$([[ $1 == fsdp* ]] && echo train_fsdp || echo train_ddp)" --sampler blocked)
        [[ $backend != mpi ]] || command+=(--backend mpi)
        [[ $kind != cuda ]] || command+=(--backend nccl)
        [[ $1 != zero1 ]] || command+=(--zero-optimizer)
        ;;
    esac
}

# start_ranks RANKS: sets `command` to a launcher of that many ranks. Open MPI needs options to run as root and to start
# more ranks than cores. Its default would bind each of two ranks to one core, which its communication thread needs too.
start_ranks() {
    if [[ $backend == mpi ]]; then
        command=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
            OMPI_MCA_hwloc_base_binding_policy=none mpirun ${hosts:+-host "$(hosts_of "$1")"} -np "$1")
    else
        # NCCL refuses two ranks of one host on one GPU, so ranks that share a GPU get different host names.
        command=("$bin/ddprun")
        has_gpus_for "$1" || command+=(--fake-hosts)
        command+=(--nproc-per-node "$1" --bind cores)
    fi
}
