# throughput.gp: samples per second against the number of devices, a panel for each model.
# Reads plots/MODEL.csv: rows of summary.csv. Disturbed points are grey and have a ring.

load "plots/settings.gp"
name = "throughput"
width = 670
height = 80 + 280 * words(models)
load "plots/style.gp"

set multiplot title "Training speed against the number of devices" font ",16"
unset key
set ylabel "samples per second"
set xtics (1)
do for [world in worlds] { eval "set xtics add (".world.")" }
set format y shown("%.0f")
set samples 500
series(strategy) = strcol("strategy") eq strategy || strcol("strategy") eq "single"
world_in(strategy) = series(strategy) ? column("world_size") : NaN
speed_at(milliseconds) = column("global_batch") * 1000 / column(milliseconds)
last(strategy) = strcol("strategy") eq strategy && column("world_size") == world_max
told(unused) = sprintf("%s on %d: %.0f samples/s", strcol("strategy"), column("world_size"), column("samples_per_s_p50"))
values = at_mouse('file using "world_size":"samples_per_s_p50":(told(0))')
set lmargin at screen 115.0 / width
set rmargin at screen 1 - 95.0 / width

do for [m = 1:words(models)] {
    file = "plots/".word(models, m).".csv"
    eval unbounded
    stats file using (strcol("strategy") eq "single" ? column("samples_per_s_p50") : NaN) name "one" nooutput
    stats file using "world_size" name "world" nooutput
    stats file using "disturbed" name "ring" nooutput
    stats file using (speed_at("step_ms_p25")) name "speed" nooutput
    stats file using (last("dp") ? column("samples_per_s_p50") : NaN) name "dp" nooutput
    stats file using (last("ddp") ? column("samples_per_s_p50") : NaN) name "ddp" nooutput
    stats file using (last("mine") ? column("samples_per_s_p50") : 0) name "mine" nooutput
    # The y range is that of the measured points; the ideal line may exceed it.
    possible = one_max * (world_max < 1.25 * cores ? world_max : 1.25 * cores)
    top = 1.05 * (speed_max > possible ? speed_max : possible)
    set tmargin at screen panel_at(75 + 280 * (m - 1))
    set bmargin at screen panel_at(285 + 280 * (m - 1))
    if (m == words(models)) { set xlabel "devices (world size)" }
    set title word(models, m).(ring_max > 0 ? " (grey, in a ring: disturbed)" : "") offset 0, -0.5
    set yrange [0:top]
    set xrange [1 - 0.04 * world_max:world_max * 1.02]
    # Labels at the ends of the lines. Where two would meet, they move apart.
    near = abs(dp_max - ddp_max) < 0.09 * top
    apart = near ? (ddp_max < dp_max ? -0.5 : 0.5) : 0
    x_ideal = top / one_max < world_max ? top / one_max : world_max
    set label 1 "ideal" at x_ideal, 0.97 * top right offset -2, 0 textcolor rgb "#666666"
    set label 2 sprintf("%d perfect %s", cores, units) at (cores + world_max) / 2.0, one_max * cores center offset 0, 0.6 \
        textcolor rgb "#666666"
    if (cores >= world_max) { unset label 2 }
    set label 3 "DP" at world_max, dp_max offset 1.5, -apart textcolor rgb "#A06E00"
    set label 4 "DDP" at world_max, ddp_max offset 1.5, apart textcolor rgb blue
    unset label 6
    if (mine_max > 0) { set label 6 "yours" at world_max, mine_max offset 5.5, 0 textcolor rgb "#00664B" }
    set label 5 "one device" at 1, one_max offset 1, -0.9
    # Undisturbed points have an invisibly small ring: a ring of size 0 would be invalid SVG.
    plot one_max * x with lines dashtype 2 linewidth 1.5 linecolor rgb grey, \
        one_max * (x < cores ? x : cores) with lines dashtype 3 linewidth 2 linecolor rgb "#666666", \
        for [strategy in strategies] file using (world_in(strategy)):"samples_per_s_p50": \
            (speed_at("step_ms_p75")):(speed_at("step_ms_p25")):(or_grey(colour_of(strategy))) \
            with yerrorbars pointtype 0 linewidth 1.5 linecolor rgb variable, \
        for [strategy in strategies] file using (world_in(strategy)):"samples_per_s_p50": \
            (or_grey(colour_of(strategy))) with linespoints linewidth 2.5 dashtype dash_of(strategy) pointtype mark_of(strategy) pointsize 0.7 \
            linecolor rgb variable, \
        file using (strcol("strategy") eq "single" ? column("world_size") : NaN):"samples_per_s_p50": \
            (or_grey(black)) with points pointtype mark_of("single") pointsize 1.2 linecolor rgb variable, \
        file using "world_size":"samples_per_s_p50":(column("disturbed") > 0 ? 2 : 0.01) \
            with points pointtype 6 pointsize variable linewidth 1.5 linecolor rgb "#666666" @values
}
unset multiplot
