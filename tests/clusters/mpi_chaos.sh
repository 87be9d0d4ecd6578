#!/bin/sh
# mpi_chaos.sh BIN_DIR MPI: jobs over MPI in which a rank is killed or stopped. The job ends within the ranks' deadline
# and MPI's own, a message names that rank, and no process is left.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
export DDPC_FLIGHT_DIR="$work/flight"
mkdir -p flight

# Each rank writes its pid to a file, so that the test can find it.
cat >rank.sh <<'RANK'
#!/bin/sh
r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}
echo $$ >"pid.$r"
exec "$@"
RANK
chmod +x rank.sh

# runs PID: the process is alive. A zombie is not: if PID 1 does not reap orphans, as in some containers, a rank that
# outlives mpirun stays a zombie.
runs() {
    state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || true
    case ${state:-gone} in
    gone | X) return 1 ;;
    Z) echo "process $1 has ended, and PID 1 of this system does not reap it" && return 1 ;;
    esac
}

# strike SIGNAL RANK WORLD: during a training
strike() {
    rm -f pid.*
    : >out.txt # removes the previous job's output
    limit=60 ranks "$3" ./rank.sh "$bin/train_ddp" --backend mpi --epochs 100000 --no-eval --log-every 1 \
        --timeout-s 4 >out.txt 2>err.txt </dev/null &
    job=$!
    under_way
    kill -"$1" "$(cat "pid.$2")"
    status=0
    wait $job || status=$?
    by_itself "$1 of rank $2" $status
    checks=$((checks + 1))
    for pid in $(cat pid.*); do
        tries=0
        while runs "$pid"; do
            tries=$((tries + 1))
            [ $tries -lt 100 ] || { fail "$1: process $pid is left" && break; }
            sleep 0.1
        done
    done
}

strike KILL 1 2
checks=$((checks + 1))
grep -qiE 'rank 1 .*signal 9|BAD TERMINATION|RANK 1 PID' err.txt out.txt || fail "no message names rank 1: $(cat err.txt)"
strike STOP 1 2
checks=$((checks + 1))
grep -qE 'all_reduce\(.*: rank 1 did not arrive within 4.0 s; rank 1 (last began|had begun)' err.txt ||
    fail "no message names the stopped rank: $(cat err.txt)"
checks=$((checks + 1))
grep -rq all_reduce flight || fail "no flight record: $(ls flight)"
if [ "$mpi" = openmpi ]; then
    strike STOP 2 4
    checks=$((checks + 1))
    # The rank that timed out first may have waited for another one that waits for rank 2, which the message then says.
    grep -qE 'rank ([013], )*2(, 3)? did not arrive within|itself waits for rank ([013], )*2' err.txt ||
        fail "no message names rank 2 of 4: $(cat err.txt)"
fi

tally mpi_chaos
