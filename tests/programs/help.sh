#!/bin/sh
# help.sh BIN_DIR: --help is complete and true: each program has one, options are below their titles, examples run as
# printed (for one epoch, two steps or one round), and a failing write is an error. "Did you mean": names that other
# programs use lead to ours, with one line per job for any number of ranks, and every suggested option exists.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
unset RANK WORLD_SIZE DDPRUN_TOKEN OMP_NUM_THREADS OPENBLAS_NUM_THREADS

# --- Every program

programs=$(cd "$root" && grep -rl options_parse --include="*.c" common dp ddp bench |
    xargs grep -hoE 'program = "[a-z_]+"' | sed 's/.*= "//; s/"//' | sort -u)
for program in $programs; do
    run "$program --help" "$bin/$program" --help
    grep -q "^usage: $program" out.txt || fail "$program --help begins with $(head -n 1 out.txt)"
    cat out.txt >>help.txt
    checks=$((checks + 1))
    status=0
    "$bin/$program" --help 2>err.txt >/dev/full || status=$?
    [ "$status" = 1 ] && [ "$(wc -l <err.txt)" = 1 ] || fail "$program --help to a full device: status $status"
    grep -q '^error: cannot write the help: No space left on device$' err.txt || fail "$program: $(cat err.txt)"
done
[ "$(echo "$programs" | wc -l)" -ge 9 ] || fail "only these programs: $programs"

for script in bench/compare.sh tests/run.sh tests/mutants.sh; do
    checks=$((checks + 1))
    ! timeout 20 "$root/$script" --help >/dev/full 2>err.txt || fail "$script --help to a full device: status 0"
    grep -q 'No space left on device' err.txt || fail "$script --help to a full device: $(cat err.txt)"
done

# --- Titles: each option is below its title

while read -r program option title; do
    run "$program" "$bin/$program" --help
    shown=$(awk -v option="--$option" '/^[^ ].*:$/ { title = $0 } $1 == option { print title }' out.txt)
    [ "$shown" = "$title:" ] || fail "$program: --$option is below \"$shown\", not \"$title:\""
done <<'TITLES'
train_single model Model and data
train_single lr Optimisation
train_single save Records and files
train_dp devices DataParallel
train_ddp bucket-cap-mb DistributedDataParallel
train_fsdp units fully_shard
ddprun start-timeout Deadlines, in seconds
compare_tensors bitwise What passes
compare_tensors csv What is compared and printed
TITLES

# --- Every example: in a folder with its files; programs are found beside this program, not in PATH

run "a profile for the examples" "$bin/bench_profile" --hidden 16 --rounds 3 --save profile.json
printf "1,0.10\n2,0.12\n4,0.13\n8,0.14\n" >points.csv
run "files for the examples" "$bin/train_single" --model toy --steps 3 --save dp.safetensors
cp dp.safetensors ddp.safetensors
# Rank 1 is killed after the first lines of steps.
cat >rank.sh <<'END'
[ $RANK = 0 ] || (while kill -0 $$ && ! grep -q ^step= out.txt; do sleep 0.05; done; kill -9 $$) >/dev/null 2>&1 &
exec "$0" --epochs 1000
END
DDPC_FLIGHT_DIR=dump "$bin/ddprun" --nproc-per-node 2 sh -c "$(cat rank.sh)" "$bin/train_ddp" >out.txt 2>&1 || true
names=$(echo $programs | tr ' ' '|')
grep -E "^(Example: |  )($names) [^[]*$" help.txt | sed 's/^Example: //; s/^ *//' >examples.txt
while read -r example; do
    wanted=0
    case $example in
    *train_fsdp*--steps*) example="$example --steps 2 --no-eval" ;;
    *train_*--steps*) example="$example --steps 2" ;;
    *train_*) example="$example --epochs 1" ;;
    bench_profile*) example="$example --rounds 1" ;;
    bench_allreduce*) example="$example --iterations 2" ;;
    flight_report*) wanted=1 ;; # one rank departed
    esac
    checks=$((checks + 1))
    status=0
    eval "\"\$bin\"/$example" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "the example '$example': status $status: $(tail -n 3 err.txt)"
done <examples.txt
[ "$(wc -l <examples.txt)" -ge 7 ] || fail "only these examples: $(cat examples.txt)"

# --- Did you mean

while read -r program words; do
    refuse 2 "${words#*; }" "$bin/$program" ${words%%; *}
done <<'WORDS'
train_ddp --batch-size 64; did you mean --global-batch (the samples of all devices together)?
train_dp --batch_size=64; did you mean --global-batch
train_single -b 64; did you mean --global-batch
train_single --learning-rate 0.1; did you mean --lr?
train_single --lerning-rate 0.1; did you mean --lr?
train_dp --num_epochs 3; did you mean --epochs?
train_dp --gpus 2; did you mean --devices?
train_ddp --max-steps 3; did you mean --steps?
train_ddp --print-freq 10; did you mean --log-every?
train_ddp --fp16; did you mean --amp fp16?
train_ddp --device gpu; did you mean cuda?
train_ddp --dist-backend nccl; did you mean --backend?
train_ddp --backend gloo; did you mean shm (between the processes of one machine)?
train_ddp --local_rank=0; LOCAL_RANK in its environment
train_ddp --gradient-accumulation-steps 2; did you mean --accumulate-steps?
train_single --max-grad-norm 1; did you mean --clip-grad-norm?
train_single --clip-grad 1; did you mean --clip-grad-norm?
train_single --eval; did you mean --evaluate FILE?
train_dp --amp-dtype fp16; did you mean --amp?
train_ddp --gpus 2; ddprun --nproc-per-node N train_ddp
train_ddp --nproc 2; ddprun --nproc-per-node N train_ddp
train_ddp --nproc-per-node 2; ddprun --nproc-per-node N train_ddp
train_ddp --devices 2; ddprun --nproc-per-node N train_ddp
ddprun --nproc 4 true; did you mean --nproc-per-node?
ddprun -np 4 true; did you mean --nproc-per-node?
ddprun --gpus 4 true; did you mean --nproc-per-node?
ddprun --num_machines 2 true; did you mean --nnodes?
ddprun --machine_rank 1 true; did you mean --node-rank?
ddprun --use_env true; ranks always find LOCAL_RANK in their environment
ddprun --local_rank 0 true; LOCAL_RANK in its environment
ddprun --rdzv_backend c10d true; --master-addr and --master-port
ddprun --rdzv-endpoint host:29400 true; did you mean --master-addr (and --master-port
ddprun --rdzv_id 17 true; DDPRUN_TOKEN
ddprun --rdzv_conf timeout=60 true; did you mean --start-timeout
ddprun --epochs 3 train_ddp; the program's own follow its name
train_single --optimizer adamW; did you mean adamw?
train_single --optimizer ADAM; did you mean adam?
train_single --modle mlp; did you mean --model?
train_dp --DEVICES 2; did you mean --devices?
train_single --model mpl; did you mean mlp?
train_ddp --data digit; did you mean digits?
train_dp --data Shapes; did you mean shapes?
ddprun train_dpp; did you mean train_ddp?
ddprun Train_single; did you mean train_single?
WORDS
# An invalid value is quoted up to 80 bytes, followed by the mistake.
long=$(head -c 5000 /dev/zero | tr '\0' y)
while read -r program option end; do
    checks=$((checks + 1)) status=0 job=
    [ $program != ddprun ] || job=true
    # shellcheck disable=SC2086 # no job, no word
    "$bin/$program" "$option$long" $job >out.txt 2>err.txt </dev/null || status=$?
    [ $status = 2 ] || fail "$program $option: status $status"
    grep -q "^error: .*$end" err.txt && [ "$(tail -n 1 err.txt | wc -c)" -le 330 ] || fail "$program $option and 5000 bytes: $(cat err.txt)"
done <<'OPTIONS'
train_single --hidden= expected up to 32 sizes
train_single --model= is none of
train_single --link= expected GBIT
train_single --data=shapes: want shapes
train_single --resume= the path is too long
train_single --load-init= the path is too long
train_dp --device-ids= expected up to
ddprun --nproc-per-node= use a number
ddprun --nnodes= use the number
ddprun --local-ranks-filter= use local ranks
OPTIONS
long=$(head -c 200 /dev/zero | tr '\0' y)
refuse 2 "yyyyy…: want shapes" "$bin/train_single" --data "shapes:$long"
refuse 2 "yyyyy…: want synthetic" "$bin/train_single" --data "synthetic:$long"
refuse 2 "error: '': No such file" "$bin/train_single" --load-init ""

tr '\n' ' ' <"$root/common/base/options_meant.c" | sed 's/{"/\n{"/g' >rows
for option in $(sed -nE 's/^\{"[^"=]*", +"([^"]*)".*/\1/p' rows | sort -u); do
    checks=$((checks + 1))
    grep -q -- "^  --$option\( \|\$\)" help.txt || fail "options_meant.c: no program has --$option"
done
for pair in $(sed -nE 's/^\{"([^"=]*)=[^"]*", +"([^"]*)".*/\1=\2/p' rows | sort -u); do
    checks=$((checks + 1))
    grep -Eq -- "^  --${pair%=*} (.*\|)?${pair#*=}(\||\$| )" help.txt || fail "options_meant.c: no choice $pair"
done

checks=$((checks + 1))
[ "$(wc -l <rows)" -ge 80 ] || fail "options_meant.c: only these rows were read: $(cat rows)"

tally help
