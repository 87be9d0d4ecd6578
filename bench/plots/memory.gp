# memory.gp: peak memory of device 0 and of the fullest other device, one panel per model.
# Reads plots/MODEL.csv: rows of summary.csv.

load "plots/settings.gp"
name = "memory"
width = words(models) > 1 ? 480 * words(models) : 680
height = 430
load "plots/style.gp"

set multiplot layout 1, words(models) margins screen 80.0 / width, 1 - 20.0 / width, 0.22, 0.82 \
    spacing screen 80.0 / width title "Peak memory of a device" font ",15"
set style data histograms
set style histogram clustered gap 1
set boxwidth 0.9
set ylabel "peak memory, MB"
set yrange [0:*]
set xtics scale 0
unset key

do for [m = 1:words(models)] {
    if (m > 1) { unset ylabel }
    set title word(models, m)
    file = "plots/".word(models, m).".csv"
    plot file using (column("peak_bytes_device0") / 1e6):xtic(bar_label(0)) linecolor rgb vermillion, \
        file using (column("world_size") > 1 ? column("peak_bytes_other") / 1e6 : NaN) linecolor rgb sky
}

eval key_panel
set key maxrows 1 samplen 1.2 width 2
plot NaN notitle with lines, \
    keyentry with boxes linecolor rgb vermillion title "device 0", \
    keyentry with boxes linecolor rgb sky title "the fullest other device"
unset multiplot
