# phases.gp: where a step's time goes, stacked, one bar per strategy, one panel per model.
# Reads plots/MODEL.csv: rows of summary.csv, with a column "forward_ms" and so on for each phase.

load "plots/settings.gp"
name = "phases"
width = words(models) > 1 ? 380 * words(models) + 150 : 680
height = 460
load "plots/style.gp"

set multiplot layout 1, words(models) margins screen 75.0 / width, 1 - 150.0 / width, 0.14, 0.83 \
    spacing screen 75.0 / width \
    title "Where a training step spends its time, as the thread that drives it sees it" \
    font ",15"
set style data histograms
set style histogram rowstacked
set boxwidth 0.72
set style fill solid border rgb "white" # keeps neighbours apart, also where there is no colour
set ylabel "milliseconds per step"
set yrange [0:*]
set xtics scale 0
set key at screen 1 - 15.0 / width, 0.78 right top invert reverse Left samplen 1.2 spacing 1.3

do for [m = 1:words(models)] {
    if (m > 1) { unset key; unset ylabel }
    set title word(models, m)
    file = "plots/".word(models, m).".csv"
    plot for [p = 1:words(phases)] file using (column(word(phases, p)."_ms")):xtic(bar_label(0)) \
        title word(phases, p) linecolor rgb phase_colour[p]
}
unset multiplot
