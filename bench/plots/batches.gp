# batches.gp: a step of one device, DP and DDP on two, by the rows of the global batch. Reads plots/batches.csv
# (batch; single, dp, ddp: milliseconds; disturbed). What was disturbed has a ring.
# DP and DDP may end close together, so their names stand a little apart.

name = "batches"
width = 680
height = 380
load "plots/style.gp"

set title "A step of an mlp by its batch: one device, DP and DDP on two"
ring(unused) = column("disturbed") > 0 ? 2 : 0.01 # of no size at all, it would be no valid SVG
set xlabel "rows of the global batch"
set ylabel "milliseconds"
set format y "%g"
unset key
set rmargin at screen 1 - 90.0 / width
file = "plots/batches.csv"
stats file using "batch" name "batch" nooutput
last(name) = column("batch") == batch_max ? column(name) : NaN
set logscale xy 2
set xrange [*:1.1 * batch_max] # or rounding leaves the last point's texts outside
told(run) = sprintf("%s at %d: %g ms", run, column("batch"), column(run))
values = at_mouse('for [run in "single dp ddp"] file using "batch":(column(run)):(told(run))')
plot file using "batch":"single":xtic(strcol("batch")) with linespoints linewidth 2 dashtype dash_of("single") pointtype mark_of("single") linecolor rgb black, \
    file using "batch":"dp" with linespoints linewidth 2 dashtype dash_of("dp") pointtype mark_of("dp") linecolor rgb orange, \
    file using "batch":"ddp" with linespoints linewidth 2 dashtype dash_of("ddp") pointtype mark_of("ddp") linecolor rgb blue, \
    file using "batch":(last("single")):("one device") with labels left offset 1, 0, \
    file using "batch":(last("dp")):("DP") with labels left offset 1, 0.4, \
    file using "batch":(last("ddp")):("DDP") with labels left offset 1, -0.4, \
    for [run in "single dp ddp"] file using "batch":(column(run)):(ring(0)) with points pointtype 6 pointsize variable \
        linecolor rgb "#666666" @values
