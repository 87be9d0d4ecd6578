#!/bin/sh
# mpi_two_hosts.sh BIN_DIR MPI: Open MPI across two hosts, over an unlimited cable and over one of 1 Gbit/s: the bits of
# DataParallel, with one rank on each host, with two, and with unequal numbers; bench/compare.sh over both hosts; and
# the error of --backend shm.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/../programs/checks.sh"
. "$(dirname "$0")/mpi.sh"
[ "$mpi" = openmpi ] || skip "the recipe is Open MPI's"
. "$(dirname "$0")/hosts.sh"
train="--backend mpi --sampler blocked --normalize global --model convnet --steps 5 --no-eval"

for rate in '' 1gbit; do
    hosts_open $rate
    for np in 1+1 2+2 2+1 3+2; do
        # shellcheck disable=SC2086 # the command is words
        run "$np on the hosts${rate:+, $rate}" across $np "$bin/train_ddp" $train --save mpi
        run "dp" "$bin/train_dp" --devices $((${np%+*} + ${np#*+})) --model convnet --steps 5 --no-eval --save dp
        same mpi dp
    done
    hosts_close
done

hosts_open
# Ranks that are not numbered host by host.
# shellcheck disable=SC2086 # the command is words
run "rank by rank on another host" across 2 --map-by node "$bin/train_ddp" $train --save mpi
run "dp" "$bin/train_dp" --devices 4 --model convnet --steps 5 --no-eval --save dp
same mpi dp

# The comparison with ranks on both hosts, even if one host could run them all. mpirun's settings are in the
# environment.
new_job
mkdir path
ln -s "$mpirun" path/mpirun
export OMPI_MCA_plm_rsh_agent="$work/agent.sh" OMPI_MCA_btl_tcp_if_include="$net.0/24"
export OMPI_MCA_oob_tcp_if_include="$net.0/24"
run "bench/compare.sh --hosts" on 1 env PATH="$work/path:$PATH" timeout -k 5 120 "$root/bench/compare.sh" --backend mpi \
    --hosts "$net.1:2,$net.2:2" --quick --only-equivalence --model mlp --world 2 --bin "$bin" --out "$work/compared"
checks=$((checks + 1))
grep -q '^mlp,dp:2,ddp:2,gradient,.*,1,bitwise,0,1$' compared/equivalence.csv || fail "the comparison's ranks: $(cat out.txt)"
grep -q -- "-host '*$net.1:1,$net.2:1'* -np 2 .*--backend mpi" compared/commands.txt ||
    fail "not over two hosts: $(cat compared/commands.txt)"
unset OMPI_MCA_plm_rsh_agent OMPI_MCA_btl_tcp_if_include OMPI_MCA_oob_tcp_if_include

checks=$((checks + 1))
across 1 "$bin/train_ddp" --backend shm >out.txt 2>err.txt &&
    fail "shm works across two hosts"
grep -q "backend shm needs all ranks in one system: .*: use --backend mpi" err.txt || fail "shm on two hosts: $(cat err.txt)"
checks=$((checks + 1))
across 1 -x MASTER_ADDR="$net.1" "$bin/train_ddp" --backend shm >out.txt 2>err.txt &&
    fail "shm works across two hosts"
grep -q "backend shm needs all ranks in one system: .*: use --backend mpi" err.txt ||
    fail "shm on two hosts with an address: $(cat err.txt)"

tally mpi_two_hosts
