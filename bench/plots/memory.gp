# memory.gp: peak memory of device 0 and of the fullest other device, one panel per model.
# Needs dir, models. Reads plots/MODEL.csv: rows of summary.csv.

name = "memory"
width = words(models) > 1 ? 480 * words(models) : 680
height = 430
load plots."/style.gp"

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
    file = dir."/plots/".word(models, m).".csv"
    plot file skip 1 using ($11 / 1e6):xtic(bar_label(1)) linecolor rgb vermillion, \
        file skip 1 using ($5 > 1 ? $12 / 1e6 : NaN) linecolor rgb sky
}

eval key_panel
set key maxrows 1 samplen 1.2 width 2
plot NaN notitle with lines, \
    keyentry with boxes linecolor rgb vermillion title "device 0", \
    keyentry with boxes linecolor rgb sky title "the fullest other device"
unset multiplot
