#!/bin/sh
# ddprun.sh BIN HELPERS: runs the launcher BIN/ddprun with small ranks and checks its messages, its exit status and that
# no process or file is left. HELPERS is the folder of rank_fault and rank_phase. The first failed check ends it with
# status 1. Every wait is bounded. The groups of checks run at the same time, each in its own folder.
# shellcheck disable=SC2016 # the ranks expand what is quoted, not this shell
set -u
bin=$(cd "$1" && pwd) && helpers=$(cd "$2" && pwd) || exit 1
run=$bin/ddprun fault=$helpers/rank_fault
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset PET_NPROC_PER_NODE PET_STANDALONE OMP_NUM_THREADS OPENBLAS_NUM_THREADS DDPRUN_TOKEN RANK WORLD_SIZE

complain() {
    printf '%s\n--- stdout\n' "$*"
    head -c 2000 out
    printf '\n--- stderr\n'
    head -c 4000 err
    exit 1
}

# job STATUS ARGUMENT...: runs ddprun with its output in the files out and err, and expects STATUS.
job() {
    wanted=$1
    shift
    timeout -k 5 30 "$run" "$@" >out 2>err
    got=$?
    [ "$got" -eq "$wanted" ] || complain "ddprun $*: status $got, expected $wanted"
}

# says FILE PATTERN: FILE has a line that matches PATTERN (extended regex). first PATTERN: the first line of ddprun in
# err does.
says() { grep -Eq -- "$2" "$1" || complain "no line like '$2' in $1"; }
silent() { ! grep -Eq -- "$2" "$1" || complain "a line like '$2' in $1"; }
first() { grep '^ddprun: ' err | head -n 1 | grep -Eq -- "$1" || complain "not said first: '$1'"; }

# Ranks write their process ids into the file pids; gone waits until none of them runs. (A zombie counts as dead: after
# the launcher's death its reaping is up to init.)
alive() {
    for pid in $(cat pids); do
        state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)
        case ${state:-Z} in Z | X) ;; *) return 0 ;; esac
    done
    return 1
}
gone() {
    tries=0
    while alive; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || complain "$1: left behind: $(cat pids)"
        sleep 0.1
    done
}
# until_lines FILE COUNT: waits until FILE has at least COUNT lines.
until_lines() {
    tries=0
    while [ ! -e "$1" ] || [ "$(wc -l <"$1")" -lt "$2" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || complain "waited for $2 lines in $1"
        sleep 0.1
    done
}
slow='echo $$ >>pids; sleep 60 & echo $! >>pids; wait' # a rank that runs until it is killed

# --- What a rank is told

told() {
    echo typed >typed
    job 0 --nproc_per_node=2 sh -c 'for v in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK \
        ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS \
        OMP_NUM_THREADS OPENBLAS_NUM_THREADS DDPRUN_STORE; do eval "printf %s=%s, $v \"\$$v\""; done
        echo; read -r line || echo "no stdin"' <typed
    says out '^RANK=0,LOCAL_RANK=0,WORLD_SIZE=2,LOCAL_WORLD_SIZE=2,GROUP_RANK=0,ROLE_RANK=0,ROLE_WORLD_SIZE=2,MASTER_ADDR=127.0.0.1,TORCHELASTIC_RESTART_COUNT=0,TORCHELASTIC_MAX_RESTARTS=0,OMP_NUM_THREADS=1,OPENBLAS_NUM_THREADS=1,DDPRUN_STORE=1,$'
    says out '^\[1\]: RANK=1,LOCAL_RANK=1,'
    says out '^no stdin$'
    says err '^ddprun: OMP_NUM_THREADS and OPENBLAS_NUM_THREADS: set to 1 for each of the 2 ranks'
    OMP_NUM_THREADS=7 job 0 --nproc-per-node 2 sh -c 'echo "omp=$OMP_NUM_THREADS"'
    says out '^omp=7$'
    says err '^ddprun: OPENBLAS_NUM_THREADS: set to 1 for each of the 2 ranks'
    OMP_NUM_THREADS=7 OPENBLAS_NUM_THREADS=7 job 0 --nproc-per-node 2 true
    silent err 'set to 1'
    job 0 sh -c 'echo "omp=${OMP_NUM_THREADS-unset}"' # one rank may use all cores
    says out '^omp=unset$'
    silent err 'set to 1'
    job 0 sh -c 'echo "$DDPRUN_TOKEN"'
    says out '^[0-9a-f]{32}$'
    cp out token
    job 0 sh -c 'echo "$DDPRUN_TOKEN"'
    ! cmp -s token out || complain "two jobs have one token"
    job 0 --nproc-per-node auto sh -c 'echo "world=$WORLD_SIZE"'
    says out "^world=$(nproc)\$"
    job 0 --nproc-per-node 2 --bind cores sh -c 'grep Cpus_allowed_list /proc/self/status'
    [ "$(nproc)" -lt 2 ] || [ "$(sed 's/.*[:\t ]//' out | sort -u | wc -l)" -eq 2 ] ||
        complain "ranks share a core"
    RANK=9 WORLD_SIZE=9 job 0 env # each variable once, also where the environment had it before
    [ "$(grep -cE '^(RANK|WORLD_SIZE)=[01]$' out)" -eq 2 ] || complain "RANK or WORLD_SIZE"
    silent out '=9$'
    # The only descriptors are 0, 1, 2, the heartbeat page and the one of the folder /proc/$$/fd.
    job 0 sh -c 'for fd in /proc/$$/fd/*; do readlink "$fd"; done; echo "$DDPRUN_HEARTBEAT"'
    silent out 'socket|signalfd|eventfd'
    says out 'memfd:ddprun-heartbeat'
}

# --- What the user sees

shown() {
    job 0 --nproc-per-node 3 sh -c 'echo "out $RANK"; echo "err $RANK" >&2; printf "no newline" >&2'
    says out '^out 0$'
    says out '^\[2\]: out 2$'
    says err '^\[0\]: err 0$'
    says err '^\[1\]: no newline$'
    job 0 --nproc-per-node 4 sh -c 'yes "rank $RANK abcdefghijklmnopqrstuvwxyz" | head -n 20000'
    [ "$(sed 's/^\[.\]: //' out | sort | uniq -c | awk '$1 == 20000 && $2 == "rank"' | wc -l)" -eq 4 ] ||
        complain "lines are torn"
    [ "$(grep -c '^\[3\]: rank 3 ' out)" -eq 20000 ] || complain "prefixes are wrong"
    job 0 sh -c 'head -c 5000000 /dev/zero | tr "\\0" x; head -c 300000 /dev/urandom >garbage; cat garbage'
    { head -c 5000000 /dev/zero | tr '\0' x; cat garbage; } | cmp -s - out ||
        complain "rank 0's stdout is not what it wrote"
    job 0 --nproc-per-node 2 --log-dir logs sh -c 'echo "out $RANK"; echo "err $RANK" >&2'
    says logs/attempt_0/1/stdout.log '^out 1$'
    says logs/attempt_0/0/stderr.log '^err 0$'
    says out '^\[1\]: out 1$'
    job 0 --nproc-per-node 3 --log-dir logs2 --redirects 1:3 --tee 0:1,2:2 --local-ranks-filter 0,1 \
        sh -c 'echo "out $RANK"; echo "err $RANK" >&2'
    says logs2/attempt_0/0/stdout.log '^out 0$'
    says logs2/attempt_0/1/stderr.log '^err 1$'
    says logs2/attempt_0/2/stderr.log '^err 2$'
    [ ! -e logs2/attempt_0/0/stderr.log ] || complain "a file that was not requested"
    [ "$(cat out)" = "out 0" ] || complain "the console shows more than local rank 0's stdout"
    [ "$(cat err)" = "[0]: err 0" ] || complain "the console shows more than local rank 0's stderr"
    mkdir -p special/attempt_0/0 && ln -s /dev/null special/attempt_0/0/stderr.log
    job 2 --log-dir special sh -c 'echo >ran'
    says err '^error: cannot write special/attempt_0/0/stderr.log: it is not a regular file$'
    [ ! -e ran ] || complain 'a rank whose log file cannot be written'
    # The job survives a reader that closes the pipe, and is not stopped by one that never reads.
    timeout 30 "$run" sh -c 'yes | head -n 200000; echo ended >finished' 2>err | head -n 1 >out
    until_lines finished 1
    mkfifo slow
    (sleep 3 && sleep 4) <slow &
    reader=$!
    timeout 30 "$run" --nproc-per-node 2 sh -c 'test "$RANK" = 1 && exit 5; yes' >slow 2>err
    [ $? -eq 5 ] || complain "a failure behind a full console"
    kill "$reader" 2>/dev/null
    wait "$reader" 2>/dev/null
    # A rank ends while ddprun holds back 4 MiB of its output: no line is lost.
    (sleep 2 && cat) <slow >out &
    reader=$!
    timeout 30 "$run" sh -c 'yes abcdefg | head -c 4300000; echo; echo end' >slow 2>err
    wait "$reader"
    [ "$(tail -n 1 out)" = end ] && [ "$(wc -c <out)" -eq 4300005 ] || complain "lines of a rank that has ended are lost"
    : >out
}

# --- Fake hosts: a NCCL_HOSTID for each rank, and NCCL's other variables

fake_hosts() {
    unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS # so that the launcher sets every variable that it can set
    job 0 --fake-hosts --nproc-per-node 2 true
    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    job 0 --fake-hosts --nproc-per-node 2 sh -c 'echo "$RANK $NCCL_HOSTID $NCCL_SOCKET_IFNAME $DDPRUN_FAKE_HOSTS"'
    says out '^0 ddprun[0-9]*-0 lo 1$'
    says out '1 ddprun[0-9]*-1 lo 1$'
    job 2 --fake-hosts --nnodes 2 true
    says err '--fake-hosts is for one node'
}

# --- Bad usage: one line, status 2

bad_usage() {
    job 2 no_such_program_here
    says err "^error: cannot run 'no_such_program_here': there is no such program in PATH or beside ddprun$"
    cp "$bin/train_ddp" beside && cp "$run" ddprun_beside && timeout 30 ./ddprun_beside beside --help >out 2>err ||
        complain "a program beside ddprun"
    says out '^usage: train_ddp'
    job 2 ./nothing
    says err '^error: cannot run ./nothing: No such file'
    : >plain && job 2 ./plain
    says err 'not executable'
    printf '\0\0' >broken && chmod +x broken
    for ranks in 1 2 40; do
        job 2 --nproc-per-node $ranks ./broken
        says err '^error: rank [0-9]+: cannot run ./broken: Exec format error'
        [ "$(wc -l <err)" -eq 1 ] || complain "a program that cannot run is said more than once"
    done
    # A usage error of all ranks is printed once, without a report for each rank.
    job 2 --nproc-per-node 4 --log-dir refused "$bin/train_ddp" --batch-size 3
    [ "$(grep -c 'unknown option --batch-size' err)" -eq 1 ] || complain "a usage error is not said once"
    [ "$(wc -l <err)" -eq 2 ] && silent err 'SIGTERM' || complain "a usage error is buried"
    first '^ddprun: rank [0-3] .* exited with status 2 at [0-9:.]{12}; logs: refused/attempt_0/[0-3]$'
    job 2 --nproc-per-node 2 --local-ranks-filter 0 sh -c 'test $RANK = 0 && sleep 60; echo "error: mine" >&2; exit 2'
    first '^ddprun: rank 1 .* exited with status 2 at [0-9:.]{12}; last stderr: error: mine$' # its line was not printed before
    for bad in "--nproc-per-node 0" "--nproc-per-node many" "--nnodes 2:1" "--nnodes 0:2" "--node-rank 1" "--nnodes 2" \
        "--tee 3" "--redirects 9 --log-dir l" "--redirects 5:1 --log-dir l" "--master-port 70000" \
        "--standalone --nnodes 2" "--local-ranks-filter 4" "--nprocs 2" \
        "--local-ranks-filter 4294967296" "--local-ranks-filter 0," "--local-ranks-filter +0" \
        "--redirects 4294967296:3 --log-dir l" "--tee 0:4294967299 --log-dir l" "--redirects 0:3, --log-dir l" \
        "--tee 0:3;0:3 --log-dir l" "--master-addr no..such..host" "--master-addr 192.0.2.1"; do
        # shellcheck disable=SC2086 # two words are meant
        job 2 $bad true
        [ "$(wc -l <err)" -eq 1 ] && says err '^error: ' || complain "not one line"
        case $bad in
        --master-addr*) says err "${bad#* }" ;;
        *) says err "${bad%% *}|DDPRUN_TOKEN" ;;
        esac
    done
    job 2 --nproc-per-node 2
    says err 'which program'
    # With several nodes, a --master-addr that does not resolve is an error at once, without a wait.
    DDPRUN_TOKEN=x job 2 --nnodes 2 --node-rank 1 --master-addr no..such..host true
    says err "^error: address 'no..such..host' cannot be looked up: "
    # A DDPRUN_HEARTBEAT that is no heartbeat page is reported by the rank.
    for page in abc 77 1 4294967299 ""; do
        DDPRUN_HEARTBEAT=$page timeout 30 "$bin/train_ddp" --model toy --steps 1 >out 2>err
        [ $? -eq 2 ] || complain "DDPRUN_HEARTBEAT=$page"
        says err "^error: DDPRUN_HEARTBEAT is '$page', which is no heartbeat page"
    done
    # A heartbeat page for one rank has no line for local rank 1.
    job 2 --nproc-per-node 1 sh -c 'export LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 WORLD_SIZE=2
        exec "$0" --model toy --steps 1' "$bin/train_ddp"
    says err 'which is no heartbeat page of a ddprun with a local rank 1'
    # A command-line option overrides torchrun's default from the environment (PET_*).
    PET_NPROC_PER_NODE=3 PET_STANDALONE=1 job 0 sh -c 'echo "$WORLD_SIZE"'
    [ "$(grep -c 3 out)" -eq 3 ] || complain "PET_NPROC_PER_NODE"
    PET_NPROC_PER_NODE=3 job 0 --nproc-per-node 2 sh -c 'echo "$WORLD_SIZE"'
    [ "$(grep -c 2 out)" -eq 2 ] || complain "the command line comes before PET_NPROC_PER_NODE"
    PET_NPROC_PER_NODE=no job 2 true
    says err "^error: --nproc-per-node 'no': use a number"
    cp "$run" ddprun_alone && timeout 10 ./ddprun_alone >out 2>err
    [ $? -eq 2 ] || complain "no arguments, no train_ddp"
}

# --- A rank fails

failures() {
    : >pids
    job 137 --nproc-per-node 3 sh -c "echo last words \$RANK >&2
        test \$RANK = 1 && sleep 0.3 && kill -9 \$\$; $slow"
    first '^ddprun: rank 1 \(pid [0-9]+, local rank 1, host .+\) died of SIGKILL at [0-9:.]{12}; last stderr: last words 1$'
    says err '^ddprun: rank 0 \(pid [0-9]+\) was ended by ddprun with SIGTERM$'
    gone 'after kill -9 of a rank'

    # No descriptors for a rank's pipes: the ranks that were started are ended.
    : >pids
    (ulimit -n 40 && exec timeout 30 "$run" --nproc-per-node 30 sh -c "$slow") >out 2>err
    [ $? -eq 1 ] || complain "a rank without descriptors"
    says err '^error: rank [0-9]+: cannot start a process: Too many open files$'
    gone 'after a rank that could not be started'

    # The cause comes first, also when a rank that lost its peer reports earlier.
    job 3 --nproc-per-node 3 sh -c 'case $RANK in 2) sleep 0.05; echo boom >&2; exit 3 ;;
        0) echo "peer lost" >&2; exit 1 ;; esac; sleep 60'
    first 'rank 2 .* exited with status 3 .*; last stderr: boom$'
    says err '^ddprun: rank 0 .* exited with status 1 .*; last stderr: peer lost$'

    # A rank that ignores SIGTERM gets SIGKILL after the grace period.
    : >pids
    job 4 --nproc-per-node 2 --grace-seconds 0.3 sh -c \
        'echo $$ >>pids; test $RANK = 0 && sleep 0.3 && exit 4; trap "" TERM; while :; do sleep 1; done'
    says err '^ddprun: rank 1 .* ended by ddprun with SIGKILL$'
    gone 'a rank that ignores SIGTERM'

    # A rank that ends at once does not shorten the grace period of another.
    job 4 --nproc-per-node 3 --grace-seconds 20 sh -c 'test $RANK = 0 && sleep 0.3 && exit 4
        test $RANK = 1 && exec sleep 60; trap "sleep 1; echo cleaned; exit" TERM; while :; do sleep 0.1; done'
    says out '^\[2\]: cleaned$'

    # A stopped rank is ended by SIGTERM at once, before the grace period is over.
    job 4 --nproc-per-node 2 --grace-seconds 20 sh -c \
        'test $RANK = 0 || kill -STOP $$; sleep 0.3; exit 4'
    says err '^ddprun: rank 1 .* ended by ddprun with SIGTERM'

    # A rank's background processes are killed at its end, also when it ended with 0.
    : >pids
    job 0 sh -c 'sleep 60 >/dev/null 2>&1 & echo $! >>pids; (sleep 60 & echo $! >>pids)'
    gone "a rank's own children"

    job 1 --nproc-per-node 2 --exit-timeout 0.4 sh -c 'test $RANK = 0 || sleep 60'
    first 'rank 1 .* is still running 0.4 s after the first rank ended'
}

# --- Reports: the failed rank, its phase, step and collective, its last line of stderr

reports() {
    doing='in phase train, step 17, collective 172 all_reduce; last stderr: about to'
    job 137 --nproc-per-node 3 "$fault" 2 kill
    first "^ddprun: rank 2 .* died of SIGKILL at [0-9:.]{12} $doing kill\$"
    job 139 --nproc-per-node 2 "$fault" 0 segv
    first "^ddprun: rank 0 .* died of SIGSEGV at [0-9:.]{12} $doing segv\$"
    job 3 --nproc-per-node 2 "$fault" 0 exit3
    first "^ddprun: rank 0 .* exited with status 3 at [0-9:.]{12} $doing exit3\$"
    job 1 --nproc-per-node 3 "$fault" 2 error # the other ranks end with the same status, earlier
    first 'rank 2 .* exited with status 1 .*; last stderr: about to error$'
    job 1 --nproc-per-node 3 --heartbeat-timeout 1 "$fault" 1 hang
    first "^ddprun: rank 1 .* has been silent for [0-9.]+ s $doing hang\$"
    job 1 --nproc-per-node 2 --heartbeat-timeout 1 "$fault" 1 stop
    first "^ddprun: rank 1 .* was stopped by a signal \(SIGSTOP\?\) at [0-9:.]{12} $doing stop\$"
    # The same last line of stderr in several ranks is reported once.
    job 1 --nproc-per-node 3 sh -c 'echo "error: alike" >&2; exit 1'
    [ "$(grep -c '; last stderr: error: alike$' err)" -eq 1 ] || complain 'the same last words several times'
    # A user's program: the report has only the phases and steps that it announced.
    job 3 --nproc-per-node 2 "$helpers/rank_phase" silent
    first '^ddprun: rank 1 .* exited with status 3 at [0-9:.]{12} in collective 2 barrier$'
    job 3 --nproc-per-node 2 "$helpers/rank_phase" telling
    first '^ddprun: rank 1 .* exited with status 3 at [0-9:.]{12} in phase train, step 50, collective 2 barrier$'
    job 1 --nproc-per-node 2 sh -c 'test $RANK = 1 && kill -STOP $$; sleep 0.5; exit 1'
    first '^ddprun: rank 1 .* was stopped by a signal'
    job 1 --nproc-per-node 2 --heartbeat-timeout 0.5 sh -c 'test $RANK = 1 && kill -STOP $$; sleep 60'
    first '^ddprun: rank 1 .* was stopped by a signal' # it never sent a heartbeat
    job 1 --nproc-per-node 2 --start-timeout 1 sh -c "test \$RANK = 1 && sleep 60; exec '$bin/train_ddp'"
    first '^ddprun: rank 1 .* has been silent for [0-9.]+ s$' # rank 0 waits in phase init
}

# --- A suspended job

suspended() {
    # A job that is stopped as a whole, ddprun included, continues after SIGCONT.
    : >pids
    "$run" --nproc-per-node 2 --heartbeat-timeout 5.5 sh -c 'echo $$ >>pids; exec "$0" 9 never' "$fault" \
        >out 2>err &
    launcher=$!
    until_lines pids 2
    sleep 0.5
    # shellcheck disable=SC2046 # several words are meant
    kill -STOP "$launcher" $(cat pids)
    sleep 6
    # shellcheck disable=SC2046
    kill -CONT "$launcher" $(cat pids)
    sleep 1
    kill -TERM "$launcher"
    wait "$launcher"
    [ $? -eq 143 ] || complain "a suspended job was not ended by SIGTERM"
    gone 'a suspended job'
}

# --- Many ranks: signals and deaths are answered while ranks are still to be started

many_ranks() {
    : >starts
    job 143 --nproc-per-node 300 sh -c 'echo x >>starts; test $RANK = 0 && kill -TERM $PPID; sleep 60'
    first '^ddprun: received SIGTERM: ending all ranks$'
    [ "$(wc -l <starts)" -lt 300 ] || complain "a signal had to wait until all ranks were started"
    says err '^ddprun: ranks [0-9]+ to 299 were not started$'
    : >starts
    job 3 --nproc-per-node 300 sh -c 'echo x >>starts; test $RANK = 0 && exit 3; sleep 60'
    first '^ddprun: rank 0 .* exited with status 3'
    [ "$(wc -l <starts)" -lt 300 ] || complain "a death had to wait until all ranks were started"
    rm starts
    job 0 --nproc-per-node 100 sh -c 'echo x >>starts'
    [ "$(wc -l <starts)" -eq 100 ] || complain "not all ranks were started"
    rm starts
}

# --- Restarts

restarts() {
    job 0 --nproc-per-node 2 --max-restarts 3 --log-dir again sh -c \
        'echo "try $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"
         test $TORCHELASTIC_RESTART_COUNT = 2 || test $RANK = 0'
    says out '^try 2 of 3$'
    says err 'restarting all ranks \(restart 2 of 3\)'
    says again/attempt_1/1/stdout.log '^try 1 of 3$'
    job 6 --nproc-per-node 2 --max-restarts 1 sh -c 'echo x >>starts; exit 6'
    [ "$(wc -l <starts)" -eq 4 ] || complain "one restart of two ranks makes four starts"
}

# --- Signals to ddprun

signals() {
    # A job that was ended by a signal is not restarted.

    for pair in TERM:143 INT:130 HUP:129 QUIT:131; do
        name=${pair%:*}
        : >pids && : >trapped
        "$run" --nproc-per-node 2 --max-restarts 2 \
            sh -c "trap 'echo $name >>trapped; exit 0' $name; $slow" >out 2>err &
        launcher=$!
        until_lines pids 4
        kill -"$name" "$launcher"
        wait "$launcher"
        got=$?
        [ "$got" -eq "${pair#*:}" ] || complain "SIG$name: status $got"
        [ "$(grep -c "$name" trapped)" -eq 2 ] || complain "SIG$name was not passed on to both ranks"
        says err "^ddprun: received SIG$name: ending all ranks"
        silent err 'restarting'
        gone "SIG$name"
    done

    # A second signal ends the ranks without the grace period.
    : >pids
    "$run" --grace-seconds 600 sh -c 'trap "" TERM; echo $$ >>pids; while :; do sleep 1; done' \
        >out 2>err &
    launcher=$!
    until_lines pids 1
    kill -TERM "$launcher"
    until_lines err 1
    kill -TERM "$launcher"
    wait "$launcher"
    [ $? -eq 143 ] || complain "a second signal"
    gone 'a second signal'

    # SIGKILL for ddprun itself: its ranks and their background processes die.
    : >pids
    "$run" --nproc-per-node 3 sh -c "$slow" >out 2>err &
    launcher=$!
    until_lines pids 6
    kill -KILL "$launcher"
    wait "$launcher" 2>/dev/null
    gone 'kill -9 of ddprun'
    # The same after one rank has ended.
    : >pids
    "$run" --nproc-per-node 3 --exit-timeout 60 sh -c "test \$RANK != 0 || exit 0; $slow" >out 2>err &
    launcher=$!
    until_lines pids 4
    sleep 0.5 # so that ddprun has reaped rank 0
    kill -KILL "$launcher"
    wait "$launcher" 2>/dev/null
    gone 'kill -9 of ddprun, after a rank had ended'
}

# --- The port

port() {
    job 0 sh -c 'echo "$MASTER_PORT"'
    port=$(cat out)
    job 0 --master-port "$port" sh -c 'echo "$MASTER_PORT"' # the port is free again at once
    [ "$(cat out)" = "$port" ] || complain "another port than the one asked for"
    : >pids
    "$run" --master-port "$port" sh -c "$slow" >out 2>err &
    launcher=$!
    until_lines pids 2
    job 1 --master-port "$port" true
    says err "^error: cannot listen on 127.0.0.1:$port: Address already in use \(held by ddprun, pid $launcher\)$"
    kill -TERM "$launcher"
    wait "$launcher"
    gone 'the port'
}

# --- Two nodes: one ddprun each

two_nodes() {
    export DDPRUN_TOKEN=0123456789abcdef
    port=$((15000 + $$ % 5000)) # below the range of ephemeral ports
    # nodes STATUS0 STATUS1 ARGUMENT...: two nodes with the same arguments, of which node 1 starts first.
    nodes() {
        wanted0=$1 wanted1=$2
        shift 2
        timeout 30 "$run" --nnodes 2 --node-rank 1 --master-port "$port" "$@" >out1 2>err1 &
        other=$!
        sleep 0.2
        job "$wanted0" --nnodes 2 --node-rank 0 --master-port "$port" "$@"
        wait "$other"
        got=$?
        [ "$got" -eq "$wanted1" ] || { cat err1 && complain "node 1: status $got, expected $wanted1"; }
    }
    nodes 0 0 --nproc-per-node 2 sh -c 'echo "$RANK/$WORLD_SIZE/$GROUP_RANK/$LOCAL_RANK"'
    says out '^0/4/0/0$'
    says out '^\[1\]: 1/4/0/1$'
    says out1 '^\[3\]: 3/4/1/1$'
    for round in 1 2 3 4; do # fails at once, while the other node may not have seen yet that all nodes came
        nodes 1 7 --nproc-per-node 1 sh -c 'test $RANK = 1 && exit 7; sleep 60'
        says err1 '^ddprun: rank 1 .* exited with status 7'
        says err '^ddprun: node 1: rank 1 .* exited with status 7' || complain "round $round"
    done
    nodes 0 0 --max-restarts 1 sh -c 'test $RANK = 0 || test $TORCHELASTIC_RESTART_COUNT = 1'

    # disagree ARGUMENTS-OF-NODE-0 ARGUMENTS-OF-NODE-1 MESSAGE: nodes with different options both fail with MESSAGE,
    # whichever starts first.
    disagree() {
        # shellcheck disable=SC2086
        timeout 30 "$run" $2 --start-timeout 20 --master-port "$port" true >out1 2>err1 &
        other=$!
        sleep "$late"
        # shellcheck disable=SC2086
        timeout 30 "$run" $1 --start-timeout 20 --master-port "$port" true >out 2>err
        wait "$other"
        cat err err1 >all
        mv all err
        says err "^error: (node [01]: )*$3"
        silent err 'within|^ddprun: rank|been silent'
    }
    for late in 0 0.5; do
        disagree '--nnodes 2 --nproc-per-node 2' '--nnodes 2 --node-rank 1 --nproc-per-node 3' \
            '--nnodes 2 --nproc-per-node [23] at node [01] and --nnodes 2 --nproc-per-node [23] at node [01] -- start'
        [ "$(grep -c '^error: .*start ddprun with the same numbers' err)" -eq 2 ] || complain 'not both nodes say so'
        disagree '--nnodes 2' '--nnodes 3 --node-rank 1' '--nnodes [23] --nproc-per-node 1 at node [01] and --nnodes'
    done
    timeout 30 "$run" --nnodes 3 --node-rank 1 --start-timeout 20 --master-port "$port" true >out1 2>err1 &
    disagree '--nnodes 3' '--nnodes 3 --node-rank 1' 'two nodes have --node-rank 1: .*, pid [0-9]+, and .*, pid [0-9]+ -- each'
    wait
    # A node that does not come is named by all others.
    job 1 --nnodes 2 --start-timeout 1 --master-port "$port" true
    says err '^ddprun: waiting for node 1: [0-9]+ s of at most 1 s \(--start-timeout\)$'
    says err '^error: node 1 of 2 did not come within 1 s: start ddprun there with --nnodes 2'
    silent err 'rank 0|phase init'
    job 1 --nnodes 2 --node-rank 1 --start-timeout 1 --master-port "$port" true
    says err '^ddprun: waiting for node 0 of 2 \(cannot connect to .*refused\): [0-9]+ s'
    says err '^error: node 1 could not reach node 0 of 2 \(cannot connect .*\) within 1 s$'
    timeout 30 "$run" --nnodes 3 --node-rank 1 --start-timeout 20 --master-port "$port" true >out1 2>err1 &
    other=$!
    job 1 --nnodes 3 --start-timeout 2 --master-port "$port" true
    wait "$other"
    [ $? -eq 1 ] || complain "node 1 of 3 does not end when node 2 does not come"
    says err '^error: node 2 of 3 did not come within 2 s'
    says err1 '^error: node 0: node 2 of 3 did not come within 2 s'
    timeout 30 "$run" --nnodes 2 --master-port "$port" true >out1 2>err1 &
    other=$!
    sleep 0.5
    kill -TERM "$other"
    wait "$other"
    [ $? -eq 143 ] || complain "a signal while waiting for a node"
}

# --- On a terminal: rank 0's progress bar, and whole lines above it

terminal() {
    job 0 --nproc-per-node 2 "$bin/train_ddp" --model toy --epochs 2 --log-every 20
    silent err 'steps [0-9]+/'
    if command -v script >/dev/null; then # of util-linux: runs a command on a terminal
        script -qec "'$run' --nproc-per-node 2 '$bin/train_ddp' --model toy --epochs 2 --log-every 20 --link 10,4000" screen \
            </dev/null >/dev/null || complain "on a terminal" # slow enough for ddprun to read the bar before it is erased
        tr '\r' '\n' <screen >out
        erase=$(printf '\033')'\[K'
        says out "^${erase}steps [0-9]+/[0-9]+ \[[=> ]*\] +[0-9]+%"
        [ "$(grep -cE "^(${erase})?step=[0-9]+ .* samples_per_s=[0-9]+ link=emulated\$" out)" -ge 6 ] || complain "lines on a terminal"
        silent out '[^K]step='
        script -qec "'$run' --nproc-per-node 2 sh -c 'printf \"\\rhalf\" >&2; sleep 0.3; echo line; sleep 0.2'" screen \
            </dev/null >/dev/null
        tr '\r' '\n' <screen >out
        [ "$(grep -c '^..*half$' out)" -ge 2 ] || complain "the bar of another program is not drawn again"
        silent out 'halfline|\[1\]: half.*half'
        script -qec "'$run' --max-restarts 1 sh -c 'test \$TORCHELASTIC_RESTART_COUNT = 1 || {
            printf \"\\r%0513d\" 2 >&2; sleep 0.2; printf \"\\r%0512d\" 1 >&2; exit 3; }
            echo line >&2'" screen </dev/null >/dev/null
        tr '\r' '\n' <screen >out
        says out "^${erase}0{511}1$" # a bar has at most 512 bytes
        silent out "^${erase}0{512}"
        says out "^(${erase})?\[0\]: line\$" # without the bar of the previous attempt
    fi
}

# run_lane GROUPS: runs the groups of checks one after the other.
run_lane() {
    for group in $1; do
        mkdir "$folder/$group" && cd "$folder/$group" || exit 1
        [ "$group" = told ] || export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 # else ddprun prints a notice about OMP_NUM_THREADS
        ("$group") >said 2>&1 && continue
        echo "FAILED: $group"
        cat said
        exit 1
    done
}
lanes=
for lane in two_nodes 'told suspended restarts' 'shown failures' \
    'reports signals bad_usage many_ranks fake_hosts port terminal'; do
    run_lane "$lane" &
    lanes="$lanes $!"
done
failed=0
for lane in $lanes; do wait "$lane" || failed=1; done
[ "$failed" = 0 ] && echo "ddprun: all as expected"
exit "$failed"
