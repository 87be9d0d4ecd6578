#!/bin/sh
# ranges.sh: numeric options and choices of bench's programs, and numeric options of ddprun and train_dp, have the
# defaults and ranges listed below: both ends and each choice are accepted, other values are refused. (The trainers' own
# options: test_options_alike.)
. "$(dirname "$0")/checks.sh"

# program option default smallest largest; *: fractions are accepted
ranges='
bench_allreduce --world 2 1 64
bench_allreduce --min-bytes 4 4 17179869184
bench_allreduce --max-bytes 268435456 4 17179869184
bench_allreduce --factor 4 2 1024
bench_allreduce --iterations 0 0 1e6
bench_allreduce --timeout 30 0.1 86400 *
bench_clip --rounds 300 1 1e6
bench_fit --node-size 8 1 4096
bench_kernels --layers 0 0 256
bench_kernels --heads 0 0 256
bench_kernels --embedding 0 0 16384
bench_kernels --context 0 0 16384
bench_kernels --vocabulary 50257 1 1048576
bench_kernels --batch 8 1 16384
bench_kernels --repeats 5 1 1000
bench_ladder --global-batch 256 1 1048576
bench_ladder --lr 0.02 0 1e6 *
bench_ladder --bucket-cap-mb 1 -1 1e6 *
bench_ladder --rounds 20 1 1e6
bench_ladder --steps 8 1 1e6
bench_ladder --warmup 4 1 1e6
bench_probe --threads 0 0 1024
bench_probe --products 40 1 1048576
bench_probe --passes 4 1 1048576
bench_operations --layers 0 0 256
bench_operations --heads 0 0 256
bench_operations --embedding 0 0 16384
bench_operations --context 0 0 16384
bench_operations --vocabulary 50257 1 1048576
bench_operations --batch 8 1 16384
bench_profile --rows 64 2 1048576
bench_profile --features 64 1 1048576
bench_profile --outputs 10 2 1048576
bench_profile --rounds 30 1 1000
bench_scale --rows 64 1 1e9 *
bench_scale --gbit 10 1e-6 1e6 *
bench_scale --latency-us 10 0 1e6 *
bench_scale --node-size 1 1 4096
bench_scale --inside-gbit 200 1e-6 1e6 *
bench_scale --inside-latency-us 3 0 1e6 *
bench_scale --bucket-cap-mb -1 -1 1e6 *
bench_scale --straggler 1 0.01 1000 *
bench_scale --call-us 0 0 1e6 *
bench_scale --copy-us 0 0 1e9 *
bench_scale --sum-us 0 0 1e9 *
bench_scale --shard-us 0 0 1e9 *
bench_scaling --global-batch 256 1 1048576
bench_scaling --rounds 3 1 1000
bench_scaling --world 2 1 64
bench_step --width 4096 1 16384
bench_step --layers 0 0 16
bench_step --heads 0 0 256
bench_step --embedding 0 0 16384
bench_step --context 0 0 16384
bench_step --batch 0 0 16384
bench_step --rounds 5 1 1000
bench_zero --rounds 40 1 1000
bench_zero --steps 5 1 1000
compare_tensors --tol 1e-06 0 1e300 *
compare_tensors --rtol 1e-05 0 1e300 *
ddprun --node-rank 0 0 2147483647
ddprun --master-port 0 0 65535
ddprun --max-restarts 0 0 1000000
ddprun --monitor-interval 0.1 0.001 60 *
ddprun --grace-seconds 5 0 86400 *
ddprun --exit-timeout 300 0 1e6 *
ddprun --heartbeat-timeout 300 0 1e6 *
ddprun --start-timeout 300 0 1e6 *
ddprun --last-call 5 0 1e6 *
train_dp --devices 0 0 64
'

# program option default choices
choices='
bench_allreduce --backend auto auto|shm|mpi|nccl
bench_allreduce --device cpu cpu|cuda
bench_fit --cost message message|call|both
bench_profile --model mlp mlp|convnet|resnet20
bench_scale --algorithm ring ring|tree|hierarchical
bench_step --model mlp mlp|convnet|resnet20|segnet|gpt
bench_zero --optimizer adamw sgd|adam|adamw
'

# Prints the next number below (-1) or above (1), in awk's double.
beyond() { # VALUE -1|1 [*]
    awk -v x="$1" -v way="$2" -v fraction="${3:-}" 'BEGIN {
        if (!fraction) printf "%.0f\n", x + way
        else printf "%.17g\n", x == 0 ? way * 1e-300 : x + way * 1e-9 * (x < 0 ? -x : x) }'
}

# Writes one line per option of help.txt.
options_of() { # PROGRAM
    "$bin/$1" --help | awk '/^  --/ { print line; line = "" } { line = line " " $0 } END { print line }' |
        tr -s ' ' | sed 's/^ //' >help.txt
}

while read -r program option default words; do
    [ "$program" ] || continue
    options_of "$program"
    checks=$((checks + 1))
    grep -qF -e "$option $words " help.txt && grep -q -e "^$option .*(default: $default)" help.txt ||
        fail "$program: $option is not one of $words, or by default another than $default"
    for word in $(echo "$words" | tr '|' ' '); do
        refuse 2 "unknown option --nope" "$bin/$program" "$option" "$word" --nope
    done
    refuse 2 "$option" "$bin/$program" "$option" none-of-them --nope
done <<EOF
$choices
EOF

for program in "$bin"/bench_*; do
    [ "${program##*/}" = bench_allocations ] || # takes no options
        echo "$ranges" | grep -q "^${program##*/} " || fail "${program##*/} is not in the list"
done
for program in $(echo "$ranges" | cut -d ' ' -f 1 | sort -u); do
    lowest="" highest="" known=" "
    checks=$((checks + 1))
    ! "$bin/$program" --help | grep -E '^  --[a-z-]+ [^ ]+ [^ ]' || fail "$program: the name of a value is several words"
    options_of "$program"
    while read -r option default low high fraction; do
        known="$known$option "
        checks=$((checks + 1))
        grep -q -e "^$option [A-Z].*(default: $default)" help.txt || fail "$program: $default is not the default of $option"
        whole_low=$low whole_high=$high
        [ "$fraction" ] || whole_low=$(printf '%.0f' "$low") whole_high=$(printf '%.0f' "$high")
        lowest="$lowest $option $whole_low" highest="$highest $option $whole_high"
        refuse 2 "$option" "$bin/$program" "$option" "$(beyond "$low" -1 "$fraction")" --nope
        refuse 2 "$option" "$bin/$program" "$option" "$(beyond "$high" 1 "$fraction")" --nope
    done <<EOF
$(echo "$ranges" | sed -n "s/^$program //p")
EOF
    # All options are accepted if the error is only about the last, unknown one.
    # shellcheck disable=SC2086 # the options are words
    refuse 2 "unknown option --nope" "$bin/$program" $lowest --nope
    # shellcheck disable=SC2086
    refuse 2 "unknown option --nope" "$bin/$program" $highest --nope
    [ "$program" != train_dp ] || continue
    for option in $(grep -E '^--[a-z-]+ (N|F|S|PORT|SECONDS) ' help.txt | cut -d ' ' -f 1); do
        case "$known" in
        *" $option "*) ;;
        *) fail "$program $option is not in the list" ;;
        esac
    done
done
tally ranges
