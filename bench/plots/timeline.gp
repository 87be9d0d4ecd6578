# timeline.gp: one DP step above one DDP step, a row per track, spans coloured by phase.
# Needs dir, model, rows (the last row's number), end (ms). Reads plots/timeline.csv (row, begin, end,
# phase, span) and plots/tracks.csv (row, label).

name = "timeline"
width = 1000
height = 185 + 34 * rows
load plots."/style.gp"

set title "One training step of ".model." on two devices: DataParallel above, DistributedDataParallel below" \
    font ",15"
set xlabel "milliseconds since the step began"
set xrange [0:end]
set yrange [rows + 0.6:0.4]
set border 1
set grid xtics noytics
set key horizontal center bottom at screen 0.5, 0.01 reverse Left samplen 1.2
unset ytics
set lmargin at screen 0.17
set rmargin at screen 0.97
set bmargin at screen 125.0 / height

spans = dir."/plots/timeline.csv"
tracks = dir."/plots/tracks.csv"
kinds = phases." communication"
kind_colour(k) = k > words(phases) ? black : phase_colour[k]
plot for [k = 1:words(kinds)] spans skip 1 using \
        (stringcolumn(4) eq word(kinds, k) ? ($2 + $3) / 2 : NaN):1:2:3:($1 - 0.4):($1 + 0.4) \
        title word(kinds, k) with boxxyerror linecolor rgb kind_colour(k), \
    tracks skip 1 using (0):1:2 notitle with labels right offset -1, 0
