# memory.gp: peak memory of device 0 and of the fullest other device, a panel for each model.
# Reads plots/memory-MODEL.csv: rows of summary.csv.

load "plots/settings.gp"
name = "memory"
width = 640
height = 100 + 300 * words(models)
load "plots/style.gp"

set multiplot title "Peak memory of a device" font ",16"
set style data histograms
set style histogram clustered gap 1
set boxwidth 0.9
set style fill solid border rgb "white"
set ylabel "peak memory, MB"
set yrange [0:*]
set xtics scale 0
unset key
set lmargin at screen 95.0 / width
set rmargin at screen 1 - 15.0 / width

megabytes(name) = column(name) / 1e6
device0(unused) = sprintf("device 0: %.2f MB", megabytes("peak_bytes_device0"))
other(unused) = sprintf("the fullest other: %.2f MB", megabytes("peak_bytes_other"))
several(bytes) = column("world_size") > 1 ? bytes : NaN
values = at_mouse('file using 0:(megabytes("peak_bytes_device0")):(device0(0))'). \
    at_mouse('file using ($0 + 0.25):(several(megabytes("peak_bytes_other"))):(other(0))')

do for [m = 1:words(models)] {
    set title word(models, m) offset 0, -0.5
    set tmargin at screen panel_at(75 + 300 * (m - 1))
    set bmargin at screen panel_at(275 + 300 * (m - 1))
    file = "plots/memory-".word(models, m).".csv"
    plot file using (megabytes("peak_bytes_device0")):xtic(bar_label(0)) linecolor rgb "#A63C00", \
        file using (several(megabytes("peak_bytes_other"))) linecolor rgb sky @values
}

eval key_panel
set bmargin at screen 5.0 / height
set tmargin at screen 45.0 / height
set key maxrows 1 samplen 1.2 width 2
plot NaN notitle with lines, \
    keyentry with boxes linecolor rgb "#A63C00" title "device 0", \
    keyentry with boxes linecolor rgb sky title "the fullest other device"
unset multiplot
