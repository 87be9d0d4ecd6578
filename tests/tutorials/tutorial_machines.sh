#!/bin/sh
# tutorial_machines.sh BIN_DIR: step 27 on two nodes (two launchers on one machine) ends with the weights of the same
# number of ranks on one node; code that uses the wrong one of a rank's two numbers fails on the second node.
. "$(dirname "$0")/../programs/checks.sh"
export DDPRUN_TOKEN=secret

node() { # NODE OPTION...: writes its output to nodeN.txt
    node=$1
    shift
    rm -rf "disk$node"
    mkdir "disk$node"
    "$bin/ddprun" --nnodes 2 --node-rank "$node" --master-port "$port" --nproc-per-node 2 --start-timeout 60 \
        "$bin/tutorial_27" --no-eval --scratch "disk$node" "$@" >"node$node.txt" 2>"node$node.err" </dev/null
}
both() { # OPTION...: runs both nodes; fails if one of them fails
    checks=$((checks + 1))
    port=$("$bin/ddprun" sh -c 'echo $MASTER_PORT') # a free port
    node 1 "$@" &
    other=$! status=0
    node 0 "$@" || status=1
    wait $other || status=1
    return $status
}
printed() { cat node0.txt node1.txt | sed 's/^.[0-9].: //' | sort; }

# ---- two nodes ---------------------------------------------------------------------------------------------
both --steps 30 --save two || fail "two nodes: $(cat node0.err node1.err)"
run 'one node' "$bin/ddprun" --nproc-per-node 4 "$bin/tutorial_09" --steps 30 --no-eval --save one
cmp one two || fail "two nodes have other weights than one"
for rank in 0 1 2 3; do
    printed | grep -qx "rank $rank, local rank $((rank % 2)), node $((rank / 2)): the data is there" ||
        fail "rank $rank is in another place: $(printed)"
done

# ---- the wrong number --------------------------------------------------------------------------------------
both --steps 1 --break=prepare-once || fail "prepared once: $(cat node0.err node1.err)"
[ "$(printed | grep -c 'node 0: the data is there$')" = 2 ] || fail "node 0 lacks its data: $(printed)"
[ "$(printed | grep -c 'node 1: the data is NOT there$')" = 2 ] || fail "node 1 has data: $(printed)"
! both --steps 1 --break=global-rank || fail "a device that is not there was taken"
grep -qE 'rank [23] wants device [23], and its node has 0 to 1' node1.err || fail "no word of devices: $(cat node1.err)"

# ---- without a launcher ------------------------------------------------------------------------------------
port=$("$bin/ddprun" sh -c 'echo $MASTER_PORT')
mkdir -p disk0
task() { # NUMBER: a task as started by srun
    SLURM_PROCID=$1 SLURM_NTASKS=2 SLURM_LOCALID=$1 SLURM_STEP_ID=0 MASTER_PORT=$port \
        "$bin/tutorial_27" --steps 30 --no-eval --scratch disk0 --save srun >"task$1.txt" 2>&1 </dev/null
}
checks=$((checks + 1))
task 1 &
task 0 || fail "task 0: $(cat task0.txt)"
wait $! || fail "task 1: $(cat task1.txt)"
run 'two ranks' "$bin/ddprun" --nproc-per-node 2 "$bin/tutorial_09" --steps 30 --no-eval --save two
cmp srun two || fail "tasks of srun have other weights than ranks of ddprun"
refuse 1 'node 1 could not reach node 0 of 2' "$bin/ddprun" --nnodes 2 --node-rank 1 --master-port "$port" \
    --start-timeout 1 true
tally tutorial_machines
