#!/bin/sh
# ddprun_options.sh BIN: ddprun's options and their defaults, its search for the program, and what a rank inherits:
# variables, signals, descriptors. Nothing here waits. (Ranges and refused options: test_ddprun.c, test_find_program.c.)
# shellcheck disable=SC2016 # the ranks' shells expand what is quoted
. "$(dirname "$0")/../programs/checks.sh"
run=$bin/ddprun
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS DDPRUN_TOKEN RANK WORLD_SIZE
for name in $(env | sed -n 's/^\(PET_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

# prints WHAT TEXT: out.txt is exactly TEXT.
prints() {
    checks=$((checks + 1))
    [ "$(cat out.txt)" = "$2" ] || fail "$1: $(cat out.txt)"
}

# --- Options

run help "$run" --help
checks=$((checks + 1))
awk '/^  --|^[A-Z]/ { if (line != "") print line; line = "" } !/^[A-Z]/ { sub(/^ +/, ""); if (line != "" || /^--/) line = line " " $0 } END { print line }' out.txt |
    sed -nE 's/^ (--[a-z-]+)( [A-Z0-9][^ ]*| none\|cores)? .*\(default: ([^ ]*)\)$/\1\2 \3/p' >table.txt
cat >wanted.txt <<'END'
--nproc-per-node N|auto|cpu|gpu 1
--nnodes N|MIN:MAX 1
--node-rank N 0
--master-addr ADDR 127.0.0.1
--master-port PORT 0
--max-restarts N 0
--bind none|cores none
--monitor-interval S 0.1
--grace-seconds S 5
--exit-timeout S 300
--heartbeat-timeout S 300
--start-timeout S 300
--last-call S 5
END
diff wanted.txt table.txt || fail "the options and their defaults"
for option in standalone fake-hosts 'log-dir DIR' 'redirects WHICH' 'tee WHICH' 'local-ranks-filter RANKS'; do
    checks=$((checks + 1))
    grep -Eq -- "^  --$option( |\$)" out.txt || fail "--$option"
done

run cpu "$run" --nproc-per-node cpu sh -c 'echo "$WORLD_SIZE" >&2; [ "$RANK" != 0 ] || echo "$WORLD_SIZE"'
prints cpu "$(nproc)"
refuse 2 "--nnodes '2:1': use the number of nodes, or MIN:MAX" "$run" --nnodes 2:1 true
refuse 2 "with several nodes set DDPRUN_TOKEN" "$run" --nnodes 2 --node-rank 1 true
refuse 2 "with several nodes set DDPRUN_TOKEN" "$run" --nnodes 1:2 --node-rank 2 true
refuse 1 "cannot connect to 127.0.0.1:29500" env DDPRUN_TOKEN=x "$run" --nnodes 2 --node-rank 1 --start-timeout 0.01 true
refuse 2 "DDPRUN_TOKEN is longer than 64" env DDPRUN_TOKEN="$(printf '%065d' 0)" "$run" --nnodes 2 --node-rank 1 true
run standalone "$run" --standalone sh -c 'echo "$MASTER_ADDR $((MASTER_PORT > 1023))"'
prints standalone "127.0.0.1 1"
run localhost "$run" --master-addr localhost sh -c 'echo "$MASTER_ADDR"'
prints localhost localhost
refuse 2 "cannot be looked up" "$run" --master-addr "$(printf '%0255d' 0 | tr 0 x)" true
refuse 2 "which program?" "$run" --nproc-per-node 2

# --- torchrun's defaults from the environment

run PET env PET_NPROC_PER_NODE=2 PET_MAX_RESTARTS=4 PET_STANDALONE=0 PETS=1 \
    "$run" --master-port 0 sh -c '[ "$RANK" = 1 ] || echo "$WORLD_SIZE $TORCHELASTIC_MAX_RESTARTS"'
prints PET "2 4"

# --- The program

mkdir -p in/path other && cat >in/path/tool <<'END'
#!/bin/sh
echo "tool $*"
END
chmod +x in/path/tool
mkdir other/tool
run PATH env PATH="/nowhere:$PWD/other:$PWD/in/path:$PATH" "$run" tool a 'b c'
prints PATH "tool a b c"
refuse 2 "did you mean train_ddp?" "$run" trian_ddp
printf 'no script\n' >script && chmod +x script
refuse 2 "cannot run ./script: Exec format error (a script needs a first line like #!/bin/sh)" "$run" ./script
printf '#!/no/shell\n' >script
refuse 2 "cannot run ./script: No such file or directory" "$run" ./script
checks=$((checks + 1))
! grep -q 'needs a first line' err.txt || fail "a hint that does not fit"
mkdir alone && cp "$run" alone/ddprun && cat >alone/train_ddp <<'END'
#!/bin/sh
echo "rank $RANK of $WORLD_SIZE in $GROUP_WORLD_SIZE, $# arguments" >"said_$RANK"
END
chmod +x alone/train_ddp
run "without arguments" alone/ddprun
checks=$((checks + 1))
cat said_0 said_1 >out.txt
prints "without arguments" "rank 0 of 2 in 1, 0 arguments
rank 1 of 2 in 1, 0 arguments"
grep -q 'Without arguments: 2 ranks of train_ddp' err.txt || fail "what it starts is not said: $(cat err.txt)"

# --- What a rank inherits

run variables env RANK=9 NCCL_ALGO=Tree "$run" --nproc-per-node 2 --max-restarts 3 --fake-hosts \
    sh -c '[ "$RANK" = 0 ] || env >variables'
checks=$((checks + 1))
grep -E '^([A-Z_]*RANK|[A-Z_]*WORLD_SIZE|ROLE_NAME|MASTER_ADDR|TORCHELASTIC_[A-Z_]*|DDPRUN_(STORE|COLUMNS|FAKE_HOSTS)|O[A-Z]*_NUM_THREADS|NCCL_.*)=' \
    variables | sed 's/ddprun[0-9]*-/ddprunPORT-/' | sort >out.txt
prints variables "DDPRUN_COLUMNS=0
DDPRUN_FAKE_HOSTS=1
DDPRUN_STORE=1
GROUP_RANK=0
GROUP_WORLD_SIZE=1
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
MASTER_ADDR=127.0.0.1
NCCL_ALGO=Tree
NCCL_HOSTID=ddprunPORT-1
NCCL_IB_DISABLE=1
NCCL_MAX_CTAS=2
NCCL_MNNVL_ENABLE=0
NCCL_NET=Socket
NCCL_NVLS_ENABLE=0
NCCL_P2P_DISABLE=1
NCCL_PROTO=Simple
NCCL_SHM_DISABLE=1
NCCL_SOCKET_IFNAME=lo
OMP_NUM_THREADS=1
OPENBLAS_NUM_THREADS=1
RANK=1
ROLE_NAME=default
ROLE_RANK=1
ROLE_WORLD_SIZE=2
TORCHELASTIC_MAX_RESTARTS=3
TORCHELASTIC_RESTART_COUNT=0
TORCHELASTIC_RUN_ID=none
WORLD_SIZE=2"
# A rank has the user's signal dispositions and limits, not the launcher's, and leads a process group. Checked are the
# ignored signals among INT, QUIT, PIPE, TERM and CHLD, and HUP, which nohup ignores.
cat >inherits <<'END'
#!/bin/sh
ulimit -n
ignored=$(sed -n 's/^SigIgn:[[:space:]]*//p' "/proc/$$/status")
echo "$(sed -n 's/^SigBlk:[[:space:]]*//p' "/proc/$$/status") $((0x$ignored & $1))"
awk '{ print ($1 == $5) }' "/proc/$$/stat"
readlink "/proc/$$/fd/0"
END
chmod +x inherits
(ulimit -S -n 77 && exec "$run" ./inherits 0x15006) >out.txt 2>err.txt || fail "inherits: $(cat err.txt)"
prints inherits "77
0000000000000000 0
1
/dev/null"
(trap '' HUP TERM PIPE && exec "$run" ./inherits 0x15007) >out.txt 2>err.txt || fail "nohup: $(cat err.txt)"
sed -i 1d out.txt
prints nohup "0000000000000000 1
1
/dev/null"
# With a low limit of descriptors and none inherited, ddprun starts its ranks or reports the limit.
said=0
for descriptors in 5 6 7 8 9 10 12 14 15 16 17 18 24; do
    checks=$((checks + 1))
    status=0
    (exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- && ulimit -n "$descriptors" && exec timeout 20 "$run" true) >out.txt 2>err.txt || status=$?
    case $status in
    0) [ ! -s err.txt ] || fail "$descriptors descriptors: $(cat err.txt)" ;;
    1 | 2) [ "$(grep -c '^error: .*: Too many open files' err.txt)" = 1 ] && said=$((said + 1)) ||
        fail "$descriptors descriptors: $(cat err.txt)" ;;
    *) fail "$descriptors descriptors: status $status, $(cat err.txt)" ;;
    esac
done
[ "$said" -ge 5 ] && [ "$status" = 0 ] || fail "descriptors: refused $said times, at last $status"
# With stdin, stdout and stderr closed, no descriptor of ddprun takes their numbers.
"$run" --log-dir closed sh -c 'echo out; echo err >&2' <&- >&- 2>&- || fail "closed descriptors: status $?"
cat closed/attempt_0/0/stdout.log closed/attempt_0/0/stderr.log >out.txt
prints "closed descriptors" "out
err"
tally ddprun_options
