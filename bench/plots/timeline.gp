# timeline.gp: one DP step above one DDP step, a row per track, spans coloured by phase, arrows from where
# a bucket was ready to its all-reduce. Reads plots/timeline.csv (row, begin_ms, end_ms, phase, span,
# bucket), plots/tracks.csv (row, label) and plots/arrows.csv (from_row, from_ms, to_row, to_ms).

load "plots/settings.gp"
name = "timeline"
spans = "plots/timeline.csv"
tracks = "plots/tracks.csv"
set datafile separator ","
set datafile columnheaders
stats tracks using "row" name "row" nooutput
stats spans using "end_ms" name "end" nooutput
width = 1000
height = 185 + 34 * row_max
load "plots/style.gp"

set title "One training step of ".word(models, 1)." on two devices: " \
    ."DataParallel above, DistributedDataParallel below" font ",15"
set xlabel "milliseconds since the step began"
set xrange [0:end_max]
set yrange [row_max + 0.6:0.4]
set border 1
set grid xtics noytics
set key horizontal center bottom at screen 0.5, 0.01 reverse Left samplen 1.2
unset ytics
set lmargin at screen 0.17
set rmargin at screen 0.97
set bmargin at screen 125.0 / height

kinds = phases." communication"
kind_colour(k) = k > words(phases) ? black : phase_colour[k]
middle(unused) = (column("begin_ms") + column("end_ms")) / 2
# A number fits into a span of a fiftieth of the width.
has_number(unused) = column("bucket") >= 0 && column("end_ms") - column("begin_ms") > end_max / 50
plot for [k = 1:words(kinds)] spans using \
        (strcol("phase") eq word(kinds, k) ? middle(0) : NaN):"row":"begin_ms":"end_ms": \
        (column("row") - 0.4):(column("row") + 0.4) \
        title word(kinds, k) with boxxyerror linecolor rgb kind_colour(k), \
    "plots/arrows.csv" using "from_ms":(column("from_row") + 0.4):(column("to_ms") - column("from_ms")): \
        (column("to_row") - column("from_row") - 0.8) \
        notitle with vectors head filled size screen 0.006,20 linewidth 1.2 linecolor rgb black, \
    spans using (has_number(0) ? middle(0) : NaN):"row":"bucket" \
        notitle with labels textcolor rgb "white" font ",11", \
    tracks using (0):"row":"label" notitle with labels right offset -1, 0
