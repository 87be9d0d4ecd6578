# devices.sh: which devices the runs get, and whose times may be shown. Sourced by compare.sh before
# runs.sh; uses its bin, device, models, worlds and repeats.
#
# CPU devices are made as many as asked for. GPUs are what the machine has: where a run wants more of
# them, replicas or ranks share cards: that computes the same, but its times mean nothing. Such runs
# are held to the equivalences like all others, and none of their times is printed or drawn. The same
# goes for the emulated GPU of the tests.

kind=cpu    # or cuda: what --device is here
backend=auto
gpus=0      # how many there are, counted up to the number that the runs need
emulated=0  # 1: the GPU is the tests' emulator
units=cores # what computes, for the figures; $cores is how many

# run_a_step PROGRAM OPTION...: one step on the device, with records in the folder $probe_folder.
run_a_step() {
    local program=$1
    shift
    "$bin/$program" --steps 1 --global-batch 12 --no-eval --out "$probe_folder" "$@" \
        >/dev/null 2>"$probe_folder/log" 9<&-
}

# must_run_a_step PROGRAM OPTION...: ends the script if the program cannot do that, with its own line and status,
# which is 77 where there is no GPU.
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

# Does every device of so many have a card of its own?
has_gpus_for() {
    [[ $kind != cuda || $1 -le $gpus ]]
}

# Before a command that computes on one CPU device: keeps it on the first core that it may use, as --bind does with
# more of them.
on_first_core() {
    [[ $kind != cpu ]] || ! command -v taskset >/dev/null || taskset -cp $$ | sed 's/.*: \([0-9]*\).*/taskset -c \1/'
}

# May the times of a run on so many devices be shown?
is_timed() {
    [[ $emulated == 0 ]] && has_gpus_for "$1"
}

timed_worlds() {
    local world
    for world in $worlds; do ! is_timed "$world" || echo "$world"; done | paste -sd ' ' -
}

# Prints why some runs are not timed, in one line; nothing if all are.
why_untimed() {
    if [[ $emulated == 1 ]]; then
        echo "The GPU is emulated: no timing means anything, so none is shown or drawn."
    elif ! has_gpus_for "${worlds##* }"; then
        echo "GPUs here: $gpus. More devices than that share cards: their times mean nothing, so they" \
            "are neither shown nor drawn."
    fi
}

# The options that give DataParallel so many devices. Cards are shared in turns.
dp_devices() {
    local ids=() i
    if has_gpus_for "$1"; then
        echo --devices "$1"
    else
        for ((i = 0; i < $1; i++)); do ids+=($((i % gpus))); done
        echo --device-ids "$(tr ' ' , <<<"${ids[*]}")"
    fi
}

# So many ranks' places on the machines of $hosts, taken in turns: each host's share, in the order of $hosts.
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

# start STRATEGY WORLD: makes `command` a strategy's program on so many devices; the caller adds options.
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

# Makes `command` what starts so many ranks. Open MPI lets root start some, and more than there are cores, only when
# told; and it would bind each of two ranks to one core, which its communicating thread needs besides.
start_ranks() {
    if [[ $backend == mpi ]]; then
        command=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
            OMPI_MCA_hwloc_base_binding_policy=none mpirun ${hosts:+-host "$(hosts_of "$1")"} -np "$1")
    else
        # NCCL refuses two ranks of one host on one card: ranks that share a card have to look like several hosts.
        command=("$bin/ddprun")
        has_gpus_for "$1" || command+=(--fake-hosts)
        command+=(--nproc-per-node "$1" --bind cores)
    fi
}
