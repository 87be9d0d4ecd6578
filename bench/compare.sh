#!/usr/bin/env bash
# compare.sh: the same networks trained by one device, by DataParallel and by
# DistributedDataParallel, and compared: how fast, what a step is spent on, how much memory, and
# whether they compute the same bits. Needs nothing but a Debian or Ubuntu: it installs (as root or
# with --install), builds, runs.
#
# Writes summary.csv, difference.csv, equivalence.csv, figures (SVG for pages, PNG for slides), report.md and
# report.html. The exit status is 0 only if every equivalence check held; 1 if one did not or a run failed;
# 2 for usage or set-up; 77 if --device cuda finds no GPU. Where there are fewer GPUs than devices, these share
# cards: that shows the same equivalences, and no times.
# Ctrl-C keeps the runs that were finished, and --resume goes on with them. A figure is drawn again by:
# cd DIR && gnuplot plots/loss.gp
set -euo pipefail
export LC_ALL=C

here=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source bench/setup.sh
for part in progress devices runs options section disturbed measure link answer equivalence tables report; do
    # shellcheck source=/dev/null
    source "bench/compare/$part.sh"
done

usage() {
    cat <<END
usage: bench/compare.sh [options]
  --quick            a minute or two instead of eight: fewer steps, epochs and repeats
  --device NAME      cpu (default), cuda or auto
  --model "A B"      models (default: mlp convnet; without --quick also resnet20)
  --world "N M"      numbers of devices (default: 1 2 4)
  --backend NAME     DDP over shm (default, on CPUs), or over mpi, started by mpirun
  --hosts A:2,B:2    with --backend mpi: the machines, and how many ranks each takes; they see this folder
  --link GBIT,US     the emulated link of the part over a slow network, or a name as the programs' --link
                     takes it (default: 10gbe; CPU devices only)
  --repeats N        repeats of every speed measurement (default: 5; with --quick 3)
  --patience SECONDS how long disturbed runs are made once more (default: 240; with --quick 15)
  --out DIR          where the results go (default: bench/out)
  --install          install missing packages with sudo (root does so unasked)
  --resume           go on with a comparison that was interrupted (the same options)
  --only-equivalence compare gradients and weights only
  --bin DIR          use the programs in DIR, build nothing
  --help             this text
END
}

quick=0 install=0 resume=0 only_equivalence=0
device=cpu models="" worlds="1 2 4" repeats="" patience="" out=bench/out bin="" backend=auto hosts="" slow_link=""
declare -A flags=([--quick]=quick [--install]=install [--resume]=resume [--only-equivalence]=only_equivalence)
declare -A values=([--device]=device [--model]=models [--world]=worlds [--backend]=backend [--hosts]=hosts
    [--link]=slow_link [--repeats]=repeats [--patience]=patience) paths=([--out]=out [--bin]=bin)
read_options bench/compare.sh "$@"

if [[ $quick == 1 ]]; then
    models=${models:-mlp convnet} repeats=${repeats:-3} measured_steps=30 epochs=6 patience=${patience:-15}
else
    models=${models:-mlp convnet resnet20} repeats=${repeats:-5} measured_steps=60 epochs=30 patience=${patience:-240}
fi
[[ "$models " =~ ^(\ *[A-Za-z0-9_-]+\ +)+$ ]] || fail_usage "--model \"$models\": expected names"
[[ $device =~ ^(cpu|cuda|auto)$ ]] || fail_usage "--device $device: expected cpu, cuda or auto"
[[ $backend =~ ^(auto|shm|mpi)$ ]] || fail_usage "--backend $backend: expected auto, shm or mpi"
[[ $backend == mpi || -z $hosts ]] || fail_usage "--hosts is for --backend mpi"
[[ $backend != mpi || $device == cpu ]] || fail_usage "--backend mpi is for --device cpu"
[[ $backend != mpi ]] || command -v mpirun >/dev/null || fail_usage "--backend mpi: there is no mpirun"
[[ $repeats =~ ^[1-9][0-9]*$ ]] || fail_usage "--repeats $repeats: expected a number from 1"
[[ $patience =~ ^[0-9]{1,6}$ ]] || fail_usage "--patience $patience: expected seconds"
[[ "$worlds " =~ ^(\ *[1-9][0-9]*\ +)+$ ]] ||
    fail_usage "--world \"$worlds\": expected numbers from 1"
# One device always runs; what is left are the worlds of DP and DDP.
worlds=$(tr -s ' ' '\n' <<<"$worlds" | sort -nu | awk '$1 > 1' | paste -sd ' ' -)
[[ -n $worlds ]] || fail_usage "--world: at least one number from 2 is needed"

# Figures are worth an installation, and no failure.
[[ $only_equivalence == 1 ]] || command -v gnuplot >/dev/null || (setup_require $install plots) ||
    say "there is no gnuplot: the numbers come without figures"
[[ -n $bin ]] || {
    setup_require $install build
    setup_build "$root" build train_single train_dp train_ddp ddprun compare_tensors bench_probe bench_profile bench_scale
    bin=build/bin
}
if [[ -n $(ls -A "$out" 2>/dev/null) && ! -f $out/commands.txt ]]; then
    fail_usage "--out $out: exists, and not from compare.sh; nothing was touched"
fi
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
# Nothing of an earlier comparison is removed before it is clear that this one can run.
check_devices
name_links
mkdir -p "$out" || exit 2
[[ $resume == 1 ]] || rm -rf "$out/runs" "$out"/trace-*
rm -rf "$out/plots" "$out"/{summary,difference,equivalence}{,-link}.csv "$out"/{growth,repeats}.csv "$out"/report.{md,html} "$out"/{disturbed.txt,whatif.html} \
    "$out"/*.{svg,png}
mkdir -p "$out/runs" "$out/plots"
: >"$out/commands.txt"
started=$SECONDS
load=$(cut -d ' ' -f 1-3 /proc/loadavg)

plan() {
    planning=1
    [[ $only_equivalence == 1 ]] || { measure_speed && measure_link && train_curves && trace_steps; }
    check_equivalence
    planning=0
}
plan
if [[ $only_equivalence == 0 ]]; then
    measure_speed
    measure_link
    repeat_disturbed
    summarize
    list_repeats >"$out/repeats.csv"
    summarize_link
    [[ -z $(timed_worlds) ]] || compare_phases
    train_curves
    trace_steps
    lay_out_timeline
    lay_out_overlap
    write_what_if
    draw
fi
check_equivalence
clear_bar
if [[ $only_equivalence == 0 ]]; then
    write_report
    print_summary
    say "report: $out/report.html ($((SECONDS - started)) s)"
fi
equivalence_verdict
