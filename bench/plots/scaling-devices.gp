# scaling-devices.gp: a step by the number of devices, a panel with a constant batch and one with constant rows per device.
# On more devices than cores lines are thin and marks open. Disturbed points are grey and have a ring. Reads scaling.csv.

load "plots/settings.gp"
name = "scaling-devices"
width = 680
height = 640
load "plots/style.gp"

figure_title = "A step on more devices"
set multiplot title figure_title.", over ".middle." Gbit/s" font ",16"
unset key
set ylabel "milliseconds"
set lmargin at screen 85.0 / width
set rmargin at screen 1 - 95.0 / width
file = "scaling.csv"
rows(n, world) = n == 1 ? batch : batch / 2 * world
# The number of devices, of a row that the panel n shows and that belongs to a strategy.
world(n, run) = column("global_batch") == rows(n, column("world_size")) && (strcol("strategy") eq "single" || \
    (strcol("strategy") eq run && strcol("gbit") eq middle)) ? column("world_size") : NaN
below(n, run) = world(n, run) <= cores ? world(n, run) : NaN
from(n, run) = world(n, run) >= last ? world(n, run) : NaN
open(n, run) = world(n, run) > cores ? world(n, run) : NaN
told(run) = sprintf("%s on %g: %.2f ms", strcol("strategy"), column("world_size"), column("step_ms_p50"))
values = at_mouse('for [run in "dp ddp"] file using (world(n, run)):"step_ms_p50":(told(run))')
do for [n = 1:2] {
    eval unbounded
    stats file using (world(n, "dp")) name "world" nooutput
    stats file using (below(n, "dp")) name "below" nooutput
    stats file using (world(n, "dp") == 1 ? column("step_ms_p50") : NaN) name "one" nooutput
    stats file using (world(n, "dp") > 0 || world(n, "ddp") > 0 ? column("disturbed") : NaN) name "ring" nooutput
    last = below_max
    set tmargin at screen panel_at(80 + 285 * (n - 1))
    set bmargin at screen panel_at(285 + 285 * (n - 1))
    set title (n == 1 ? sprintf("Strong scaling: %g rows in all", batch) : sprintf("Weak scaling: %g rows per device", batch / 2)).\
        (ring_max > 0 ? " (grey, in a ring: disturbed)" : "")
    if (n == 2) { set xlabel "devices" }
    set xrange [0.9:world_max]
    set yrange [0:*]
    set xtics 1
    ideal(x) = n == 1 ? one_max / x : one_max
    set label 1 "perfect" at world_max, ideal(world_max) left offset 1.5, 0 textcolor rgb "#666666"
    set label 2 sprintf("more devices than the %d cores", cores) at cores, graph 1 left offset 0.7, -0.6 textcolor rgb "#666666"
    set arrow 1 from cores, graph 0 to cores, graph 1 nohead dashtype 3 linecolor rgb "#666666"
    if (cores >= world_max) { unset label 2; unset arrow 1 }
    end(run) = world(n, run) == world_max ? world_max : NaN
    plot ideal(x) with lines dashtype 3 linewidth 1.5 linecolor rgb grey, \
        for [run in "dp ddp"] file using (from(n, run)):"step_ms_p50":(or_grey(colour_of(run))) with lines linewidth 1 \
            dashtype dash_of(run) linecolor rgb variable, \
        for [run in "dp ddp"] file using (below(n, run)):"step_ms_p50":(or_grey(colour_of(run))) with linespoints linewidth 2.5 \
            dashtype dash_of(run) pointtype mark_of(run) pointsize 0.9 linecolor rgb variable, \
        for [run in "dp ddp"] file using (open(n, run)):"step_ms_p50":(or_grey(colour_of(run))) with points linewidth 1.5 \
            pointtype (mark_of(run) - 1) pointsize 1.3 linecolor rgb variable, \
        for [run in "dp ddp"] file using (end(run)):"step_ms_p50":(run eq "dp" ? "DP" : "DDP") with labels left offset 1.5, 0, \
        for [run in "dp ddp"] file using (world(n, run)):"step_ms_p50":(column("disturbed") > 0 ? 2 : 0.01) with points pointtype 6 \
            pointsize variable linecolor rgb "#666666" @values
}
unset multiplot
