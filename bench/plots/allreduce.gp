# allreduce.gp: the bus bandwidth of all-reduces by their size, a line for each backend, and the memory bound, for sizes that
# have one. Reads plots/allreduce.csv (bytes, bound, and a column for each backend: GB/s); plots/settings.gp names the
# backends, and bound_from, the smallest size that has a bound, or 0.

load "plots/settings.gp"
name = "allreduce"
width = 680
height = 380
load "plots/style.gp"

set title "All-reduce: bandwidth of each link, by message size"
set xlabel "bytes of the message"
set ylabel "bus bandwidth, GB/s"
unset key
set rmargin at screen 1 - 30.0 / width
file = "plots/allreduce.csv"
stats file using "bytes" name "bytes" nooutput
set logscale x 2
set logscale y 10
set xrange [*:1.1 * bytes_max] # otherwise rounding excludes the last point's texts
if (drawing) {
    set format y "%g"
    set xtics ("4 B" 4, "64 B" 64, "1 KiB" 1024, "16 KiB" 16384, "256 KiB" 262144, "4 MiB" 4194304, "64 MiB" 67108864)
}
colour(line) = line eq "shm" ? blue : orange
mark(line) = line eq "shm" ? 5 : 9
# A backend has its name at its third point, because the lines coincide for large messages; the bound above its first point.
third(line) = column(0) == 2 ? column(line) : NaN
begins(line) = column("bytes") == bound_from ? column(line) : NaN
told(line) = sprintf("%s at %d bytes: %.3g GB/s", line, column("bytes"), column(line))
values = at_mouse('for [line in backends] file using "bytes":(column(line)):(told(line))')
plot for [i = 1:(bound_from > 0)] file using "bytes":"bound" with lines linewidth 2 dashtype 2 linecolor rgb "#666666", \
    for [i = 1:(bound_from > 0)] file using "bytes":(begins("bound")):("memory bound") with labels left offset -4, 1, \
    for [line in backends] file using "bytes":line with linespoints linewidth 2 pointtype mark(line) \
        linecolor rgb colour(line), \
    for [line in backends] file using "bytes":(third(line)):(line) with labels right offset -1, 0.4 @values
