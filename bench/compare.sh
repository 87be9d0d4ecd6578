#!/usr/bin/env bash
# compare.sh: trains the same networks on one device, with DataParallel and with DistributedDataParallel, and compares their
# speed, the phases of a step, memory, and the bits of their results. Fully sharded training is compared with DDP in speed,
# memory and bits. Needs only Debian or Ubuntu: it installs packages (as root or with --install), builds and runs.
#
# Writes summary.csv, difference.csv, equivalence.csv, figures (SVG for pages, PNG for slides), report.md,
# report.html and player.html, a step that plays. The exit status is 0 only if every equivalence check held; 1 if
# one did not or a run failed; 2 for usage or set-up; 77 if --device cuda finds no GPU. Where there are fewer GPUs
# than devices, several devices share one: the equivalences are the same, and no times are shown.
# Ctrl-C keeps the finished runs, and --resume continues after them. A figure is drawn again by:
# cd DIR && gnuplot plots/loss.gp
#
# usage: bench/compare.sh [options]
#   --mine FILE        one more row, "yours": your own wrapper or all-reduce, C source or a shared object, with the table
#                      own_dp, own_ddp, own_fsdp or own_all_reduce (tutorials/capstones)
#   --quick            a minute or two instead of eight: fewer steps, epochs and repeats
#   --device NAME      cpu (default), cuda or auto
#   --model "A B"      models (default: mlp convnet; without --quick also resnet20)
#   --world "N M"      numbers of devices, at most 64 (default: 1 2 4)
#   --backend NAME     DDP over shm (default, on CPUs), or over mpi, started by mpirun
#   --hosts A:2,B:2    with --backend mpi: the machines, and how many ranks each takes; they see this folder
#   --link GBIT,US     the emulated link of the part over a slow network, or a name as the programs' --link
#                      takes it (default: 10gbe; CPU devices only)
#   --repeats N        repeats of every speed measurement (default: 5; with --quick 3)
#   --patience SECONDS how long disturbed runs are made once more (default: 240; with --quick 15)
#   --only-equivalence  compare gradients and weights only
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/compare/begin.sh"
for part in mine measure link equivalence facts; do
    # shellcheck source=/dev/null
    source "bench/compare/$part.sh"
done

only_equivalence=0
device=cpu model="" world="1 2 4" repeats="" out=bench/out hosts="" link=""
read_options bench/compare.sh "$@"

if [[ $quick == 1 ]]; then
    models=${model:-mlp convnet} repeats=${repeats:-3} measured_steps=20 link_steps=8 traced_steps=6 epochs=6 patience=${patience:-15}
else
    models=${model:-mlp convnet resnet20} repeats=${repeats:-5} measured_steps=60 link_steps=30 traced_steps=20 epochs=30 patience=${patience:-240}
fi
# Without segnet: its ranks' means are over different numbers of pixels, so --normalize average and global differ by
# more than bits.
need_words --model "$models" "$(model_names | sed 's/|segnet//')"
need_word --device "$device" 'cpu|cuda|auto'
need_word --backend "$backend" 'auto|shm|mpi'
[[ $backend == mpi || -z $hosts ]] || fail_usage "--hosts is for --backend mpi"
host='[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:[1-9][0-9]{0,3})?'
[[ -z $hosts || $hosts =~ ^$host(,$host)*$ ]] || fail_usage "--hosts ${hosts:0:80}: expected names and ranks like A:2,B:2"
[[ $backend != mpi || $device == cpu ]] || fail_usage "--backend mpi is for --device cpu"
[[ $backend != mpi ]] || command -v mpirun >/dev/null || fail_usage "--backend mpi: there is no mpirun"
need_number --repeats "$repeats" 1 1000
need_numbers --world "$world" 1 "$(most_devices)"
[[ -z $link ]] || need_link --link "$link"
# One device is always measured; worlds are the numbers of devices for DP and DDP.
worlds=$(tr -s ' ' '\n' <<<"$world" | sort -nu | awk '$1 > 1' | paste -sd ' ' -)
[[ -n $worlds ]] || fail_usage "--world: at least one number from 2 is needed"
[[ -z $link || ($device != cuda && " $worlds " == *" 2 "*) ]] ||
    fail_usage "--link is for CPU devices, and for a --world that has 2"
programs="train_single train_dp train_ddp train_fsdp ddprun compare_tensors"
[[ $only_equivalence == 1 ]] || programs="$programs bench_probe bench_profile" # for the figures
# shellcheck disable=SC2086 # the programs are words
get_ready $programs
# Missing tools for the report are installed; if that fails, the comparison runs without a report or without figures.
[[ $only_equivalence == 1 ]] || (setup_require "$install" plots) 9<&- || say "there will be no report, or one without figures"
# An earlier comparison is removed only after these checks.
check_devices
check_mine
name_links
open_section {summary,equivalence}{,-link}.csv {difference,difference-link,buckets}{,-mine}.csv {failed,growth,repeats,networks}.csv report.{md,html} \
    player.html profile.{json,txt} runs/rows.csv{,.log}
keep_mine
started=$SECONDS
plan $([[ $only_equivalence == 1 ]] || echo measure_speed measure_link trace_steps train_curves) check_equivalence
if [[ $only_equivalence == 0 ]]; then
    measure_speed
    measure_link
    trace_steps
    repeat_disturbed_runs "$patience" runs_to_repeat measure_run
    summarize
    list_repeats >"$out/repeats.csv"
    summarize_link
    list_networks >"$out/networks.csv"
    train_curves
    save_profile
fi
check_equivalence
[[ ${#mine_failed[@]} == 0 ]] || list_failed >"$out/failed.csv"
if [[ $only_equivalence == 0 ]]; then
    comparison_facts >"$out/facts.txt"
    write_report compare
    [[ ! -s $out/report.html ]] || say "report: $out/report.html ($((SECONDS - started)) s)"
fi
status=0
equivalence_verdict || status=1
mine_verdict || status=1
exit $status
