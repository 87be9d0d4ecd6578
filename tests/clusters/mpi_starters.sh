#!/bin/sh
# mpi_starters.sh BIN_DIR MPI: ranks of backend mpi that were started in a wrong way get an error with the right
# command; so does a backend that this build lacks.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
other=mpich srun='srun --mpi=pmix'
[ "$mpi" = openmpi ] || other=openmpi srun='srun --mpi=pmi2'
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

# says WORDS COMMAND...: the command fails, and a rank's error contains the words
says() {
    checks=$((checks + 1))
    words=$1 status=0
    shift
    timeout -k 5 60 "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = 2 ] || fail "status $status, not 2: $*: $(cat err.txt)"
    grep -qF -- "$words" out.txt err.txt || fail "no \"$words\" from $*: $(cat err.txt)"
}

says "ddprun does not start MPI's ranks: mpirun.$mpi -np 2 PROGRAM" \
    "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --backend mpi
says "something else has started it: start it with mpirun.$mpi -np 2, or with $srun" \
    env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29531 "$bin/train_ddp" --backend mpi
says "of which srun knows nothing here: start it with $srun" \
    env SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 "$bin/train_ddp" --backend mpi
if command -v "mpirun.$other" >/dev/null; then
    says "something else has started it: start it with mpirun.$mpi -np 2" \
        "mpirun.$other" -np 2 "$bin/train_ddp" --backend mpi
else
    echo "left out: there is no mpirun.$other that could start it by mistake"
fi
# The right launcher, but contradicting environment variables.
says "this is rank 0 of 3 in the environment and rank " \
    "$mpirun" -np 2 env RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29531 \
    "$bin/train_ddp" --backend mpi
# Ranks that disagree on the backend, explicitly or because auto selects shm.
for choice in 'shm mpi' 'mpi shm' 'mpi auto'; do
    # shellcheck disable=SC2016 # the ranks expand it
    says "--backend is ${choice% *} at rank 0 and ${choice#* } at rank 1" "$mpirun" -np 3 sh -c '
        [ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" = 1 ] || set -- "$2" "$1"
        exec "$0" --backend "$1"' "$bin/train_ddp" "${choice#* }" "${choice% *}"
done
run 'shm under mpirun' ranks 2 "$bin/train_ddp" --steps 2 --no-eval
# One rank needs no launcher.
run alone "$bin/train_ddp" --backend mpi --steps 2 --no-eval
# Two simultaneous jobs do not use the same port.
ranks 2 "$bin/train_ddp" --backend mpi --steps 20 --no-eval >first.txt 2>&1 &
jobs=$((jobs + 1))
run "a second job" ranks 2 "$bin/train_ddp" --backend mpi --steps 20 --no-eval
checks=$((checks + 1))
wait $! || fail "two jobs at a time: $(cat first.txt)"

tally mpi_starters
