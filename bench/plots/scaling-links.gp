# scaling-links.gp: a step on two devices by the link's bandwidth: DP, DDP, and DDP with its gradients compressed. A circle
# is the bandwidth above which compression does not pay. Disturbed points are grey and have a ring. Reads scaling.csv and
# plots/crossings.csv (hook, gbit, step_ms).

load "plots/settings.gp"
name = "scaling-links"
width = 680
height = 420
load "plots/style.gp"

figure_title = "A step on two devices by the bandwidth of an emulated link"
set xlabel "Gbit/s (logarithmic)"
set ylabel "milliseconds (logarithmic)"
unset key
file = "scaling.csv"
is(run) = strcol("strategy") eq run && column("world_size") == 2 && column("global_batch") == batch
at(run) = is(run) ? column("gbit") : NaN
stats file using (is("fp16") ? column("gbit") : NaN) name "gbit" nooutput
stats file using (is(strcol("strategy")) ? column("step_ms_p50") : NaN) name "ms" nooutput
stats file using (is(strcol("strategy")) ? column("disturbed") : NaN) name "ring" nooutput
set title figure_title.(ring_max > 0 ? "\n{/*0.85 grey, in a ring: disturbed}" : "")
set logscale xy
set xrange [0.2 * gbit_min:1.15 * gbit_max]
bottom = 0.55 * ms_min
set yrange [bottom:1.3 * ms_max]
set format "%g"
set xtics (1, 2, 5, 10, 20, 50, 100, 200)
set ytics (1, 2, 5, 10, 20, 50, 100, 200, 500)
colour(run) = run eq "fp16" ? green : run eq "powersgd" ? purple : colour_of(run)
dash(run) = run eq "fp16" ? 4 : run eq "powersgd" ? 3 : dash_of(run)
mark(run) = run eq "fp16" ? 9 : run eq "powersgd" ? 13 : mark_of(run)
says(run) = run eq "fp16" ? "DDP, fp16" : run eq "powersgd" ? "DDP, PowerSGD" : run eq "dp" ? "DP" : "DDP"
first(run) = is(run) && column("gbit") == gbit_min ? column("gbit") : NaN
told(run) = sprintf("%s over %g Gbit/s: %.2f ms", says(run), column("gbit"), column("step_ms_p50"))
values = at_mouse('for [run in runs] file using (at(run)):"step_ms_p50":(told(run))')
runs = "dp ddp fp16 powersgd"
crossing = '"plots/crossings.csv" using "gbit"'
at_text(unused) = bottom * (1.15 + 0.25 * column(0)) # of two, the first stands left of its line and the second right
is_left(unused) = column(0) == 0 || column("gbit") > 0.2 * gbit_max
limit(unused) = sprintf("%s pays below %.2g", strcol("hook") eq "fp16" ? "fp16" : "PowerSGD", column("gbit"))
circles = crossings == 0 ? "" : crossing.':"step_ms" with points pointtype 6 pointsize 2.4 linewidth 2 linecolor rgb black, '. \
    crossing.':(bottom):(0):(column("step_ms") - bottom) with vectors nohead dashtype 3 linecolor rgb black, '. \
    crossing.':(at_text(0)):(is_left(0) ? limit(0) : "") with labels right offset -0.5, 0, '. \
    crossing.':(at_text(0)):(is_left(0) ? "" : limit(0)) with labels left offset 0.5, 0, '
plot for [run in runs] file using (at(run)):"step_ms_p50":(or_grey(colour(run))) with linespoints linewidth 2 dashtype dash(run) \
        pointtype mark(run) pointsize 0.8 linecolor rgb variable, \
    for [run in runs] file using (first(run)):"step_ms_p50":(says(run)) with labels right offset -1.5, 0, \
    @circles file using (at(strcol("strategy"))):"step_ms_p50":(column("disturbed") > 0 ? 2 : 0.01) with points pointtype 6 \
        pointsize variable linecolor rgb "#666666" @values
