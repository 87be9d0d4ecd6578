# throughput.gp: samples per second against the number of devices, one panel per model.
# Reads plots/MODEL.csv: rows of summary.csv.

load "plots/settings.gp"
name = "throughput"
width = words(models) > 1 ? 480 * words(models) : 680
height = 480
load "plots/style.gp"

set multiplot layout 1, words(models) margins screen 90.0 / width, 1 - 20.0 / width, 0.31, 0.85 \
    spacing screen 100.0 / width \
    title "Training speed against the number of devices (medians, bars: quartiles)" \
    font ",15"
unset key
set xlabel "devices (world size)"
set ylabel "samples per second"
set xtics (1)
do for [world in worlds] { eval "set xtics add (".world.")" }
set format y shown("%.0s%c")
set samples 500
mark_of(strategy) = strategy eq "dp" ? 7 : strategy eq "ddp" ? 5 : 9
series(strategy) = strcol("strategy") eq strategy || strcol("strategy") eq "single"
world_in(strategy) = series(strategy) ? column("world_size") : NaN
speed_at(milliseconds) = column("global_batch") * 1000 / column(milliseconds)

do for [m = 1:words(models)] {
    file = "plots/".word(models, m).".csv"
    set xrange [*:*] # stats leaves out what is out of range
    set yrange [*:*]
    stats file using (strcol("strategy") eq "single" ? column("samples_per_s_p50") : NaN) name "one" nooutput
    stats file using "world_size" name "world" nooutput
    stats file using (speed_at("step_ms_p25")) name "speed" nooutput
    # The ideal line may leave the picture: what was measured should fill it.
    possible = one_max * (world_max < 1.25 * cores ? world_max : 1.25 * cores)
    if (m > 1) { unset ylabel }
    set title word(models, m)
    set yrange [0:1.05 * (speed_max > possible ? speed_max : possible)]
    set xrange [1 - 0.04 * world_max:world_max * 1.03]
    plot one_max * x with lines dashtype 2 linewidth 1.5 linecolor rgb grey, \
        one_max * (x < cores ? x : cores) with lines dashtype 3 linewidth 2 linecolor rgb black, \
        for [strategy in "dp ddp"] file using (world_in(strategy)):"samples_per_s_p50": \
            (speed_at("step_ms_p75")):(speed_at("step_ms_p25")) \
            with yerrorbars pointtype 0 linewidth 1.5 linecolor rgb colour_of(strategy), \
        for [strategy in "dp ddp"] file using (world_in(strategy)):"samples_per_s_p50" \
            with linespoints linewidth 2.5 pointtype mark_of(strategy) pointsize 0.7 \
            linecolor rgb colour_of(strategy), \
        file using (strcol("strategy") eq "single" ? column("world_size") : NaN):"samples_per_s_p50" \
            with points pointtype mark_of("single") pointsize 1.2 linecolor rgb black
}

eval key_panel
set key maxrows 3 samplen 2.5 width -2
plot NaN notitle, \
    keyentry with lines dashtype 2 linewidth 1.5 linecolor rgb grey title "ideal: N times one device", \
    keyentry with lines dashtype 3 linewidth 2 linecolor rgb black \
        title sprintf("the most that %d %s can give", cores, units), \
    keyentry with points pointtype mark_of("single") pointsize 1.2 linecolor rgb black title "one device", \
    keyentry with linespoints linewidth 2.5 pointtype mark_of("dp") pointsize 0.7 linecolor rgb orange \
        title "DataParallel (DP)", \
    keyentry with linespoints linewidth 2.5 pointtype mark_of("ddp") pointsize 0.7 linecolor rgb blue \
        title "DistributedDataParallel (DDP)"
unset multiplot
