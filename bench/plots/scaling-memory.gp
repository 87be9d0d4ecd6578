# scaling-memory.gp: device 0's memory against the number of devices, a panel for each model, a line for each strategy;
# FSDP's formula as crosses. Reads scaling-memory.csv.

load "plots/settings.gp"
name = "scaling-memory"
width = 680
height = 120 + 240 * words(sizes)
load "plots/style.gp"

set multiplot title "Peak memory of device 0, as many rows on each device" font ",16"
unset key
set xrange [0.9:1.1 * most]
set yrange [0:*]
set logscale x 2
set xtics (1, 2, 4, 8)
set lmargin at screen 80.0 / width
set rmargin at screen 1 - 20.0 / width
file = "scaling-memory.csv"
strategies = "single dp ddp zero1 fsdp"
bytes_of(model, strategy, column_name) = strcol("model") eq model && strcol("strategy") eq strategy ? column(column_name) / unit : NaN
told(unused) = sprintf("%s %s on %d: %.2f %s", strcol("model"), name_of(strcol("strategy")), column("world_size"), \
    column("dry_bytes") / unit, unit_name)
values = at_mouse('file using "world_size":(strcol("model") eq model ? column("dry_bytes") / unit : NaN):(told(0))')
do for [m = 1:words(sizes)] {
    model = word(sizes, m)
    stats file using (strcol("model") eq model ? column("dry_bytes") : NaN) name "all" nooutput
    unit = all_max < 1e9 ? 1e6 : 1e9
    unit_name = all_max < 1e9 ? "MB" : "GB"
    set tmargin at screen panel_at(70 + 240 * (m - 1))
    set bmargin at screen panel_at(250 + 240 * (m - 1))
    set title model.", ".unit_name offset 0, -0.5
    if (m == words(sizes)) { set xlabel "devices (world size)" }
    plot for [strategy in strategies] file using "world_size":(bytes_of(model, strategy, "dry_bytes")) with linespoints linewidth 2 \
            dashtype dash_of(strategy) pointtype mark_of(strategy) pointsize 0.8 linecolor rgb colour_of(strategy), \
        file using "world_size":(bytes_of(model, "fsdp", "formula_bytes")) with points pointtype 2 pointsize 1.3 linewidth 1.5 linecolor rgb black @values
}

eval key_panel
set bmargin at screen 3.0 / height
set tmargin at screen 50.0 / height
set key maxrows 2 samplen 3 width 1
plot NaN notitle with lines, \
    for [strategy in strategies] keyentry with linespoints linewidth 2 dashtype dash_of(strategy) pointtype mark_of(strategy) \
        linecolor rgb colour_of(strategy) title name_of(strategy), \
    keyentry with points pointtype 2 linewidth 1.5 linecolor rgb black title "formula"
unset multiplot
