#!/bin/sh
# mpi_slurm.sh BIN_DIR MPI: two Slurm nodes. srun starts MPI's ranks with --mpi=pmix (Open MPI) or pmi2 (MPICH), with
# the bits of DataParallel; without it the error contains the right command; ranks of shm and of ddprun work on one node
# as outside of Slurm; sbatch runs a job script; a killed rank ends the step.
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/slurm.sh"
plugin=pmix
[ "$mpi" = openmpi ] || plugin=pmi2
hosts_open
slurm_open
export OMPI_MCA_btl_tcp_if_include="$net.0/24" OMPI_MCA_oob_tcp_if_include="$net.0/24"
same_work='--sampler blocked --normalize global --model convnet --steps 5 --no-eval'
tasks='1 2'
[ "$mpi" = openmpi ] || tasks=1

for np in $tasks; do
    # shellcheck disable=SC2086 # the options are words
    run "srun --mpi=$plugin, $np on each node" step 60 --mpi=$plugin -n $((2 * np)) --ntasks-per-node=$np \
        "$bin/train_ddp" --backend mpi $same_work --save "$work/mpi"
    run dp "$bin/train_dp" --devices $((2 * np)) --model convnet --steps 5 --no-eval --save dp
    same mpi dp
done

checks=$((checks + 1))
step 60 --mpi=none -n2 "$bin/train_ddp" --backend mpi --steps 2 >out.txt 2>err.txt && fail "srun without MPI works"
grep -q "srun knows nothing here: start it with srun --mpi=$plugin" err.txt || fail "srun --mpi=none: $(cat err.txt)"

# Ranks of shm started by srun or by ddprun: work on one node; on two, the error says what to do.
run "shm under srun" on 1 timeout -k 5 60 srun -N1 -n2 --mpi=none "$bin/train_ddp" --steps 2 --no-eval
run "ddprun under srun" on 1 timeout -k 5 60 srun -N1 -n1 --mpi=none \
    "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --steps 2 --no-eval
checks=$((checks + 1))
step 60 -n2 --mpi=none --export="ALL,MASTER_ADDR=$net.1" "$bin/train_ddp" --steps 2 >out.txt 2>err.txt &&
    fail "shm works on two nodes"
grep -q "backend shm needs all ranks in one system: .*: use --backend mpi" err.txt || fail "shm on two nodes: $(cat err.txt)"

# A job script in the queue, without a terminal.
cat >job.sbatch <<JOB
#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --output=$work/job.txt
srun --mpi=$plugin --kill-on-bad-exit=1 '$bin/train_ddp' --backend mpi $same_work --save '$work/batch'
JOB
run sbatch on 1 timeout -k 5 60 sbatch --wait job.sbatch
run dp "$bin/train_dp" --devices 2 --model convnet --steps 5 --no-eval --save dp
same batch dp

# A killed rank ends the step; with pmi2 only with srun's --kill-on-bad-exit.
step 60 --mpi=$plugin --kill-on-bad-exit=1 -n2 --ntasks-per-node=1 "$bin/train_ddp" --backend mpi --epochs 100000 \
    --no-eval --log-every 1 --timeout-s 10 >out.txt 2>err.txt </dev/null &
job=$!
under_way
# shellcheck disable=SC2046 # the list of pids
kill -KILL $(hosts_pids 2 train_ddp)
status=0
checks=$((checks + 2))
wait $job || status=$?
by_itself "a killed rank" $status
hosts_idle train_ddp || fail "ranks are left: $left"
grep -q 'task 1: Killed' err.txt || fail "a killed rank is not named: $(cat err.txt)"

tally mpi_slurm
