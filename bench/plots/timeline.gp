# timeline.gp: one DP step above one DDP step (with mine_end the reader's own below), a row per track, spans coloured
# by phase. A communication thread's spans are solid while data move (with the bucket's number in or beside them) and hatched
# while it waits for other ranks; devices of DP are hatched while they wait for device 0; a bracket is the time that DDP saves;
# arrows lead from the time at which a bucket was ready to its all-reduce. Reads plots/timeline.csv (row, begin_ms, end_ms,
# phase, bucket), plots/tracks.csv (row, label) and plots/arrows.csv (from_row, from_ms, to_row, to_ms).

load "plots/settings.gp"
name = "timeline"
spans = "plots/timeline.csv"
tracks = "plots/tracks.csv"
set datafile separator ","
set datafile columnheaders
stats tracks using "row" name "row" nooutput
stats spans using "end_ms" name "end" nooutput
width = 720
height = 241 + 40 * row_max
load "plots/style.gp"

set title "One training step on two devices: DP above, DDP below".(exists("mine_end") ? ", yours at the bottom" : "")."\n{/*0.85 ".timeline_model."}" font ",16"
set xlabel "milliseconds since the step began"
set xrange [0:1.01 * end_max]
set yrange [row_max + 0.6:0.4]
set border 1
set grid xtics noytics
unset key
unset ytics
set style fill solid border rgb "white"
set lmargin at screen 105.0 / width
set rmargin at screen 1 - 15.0 / width
set tmargin at screen 1 - 74.0 / height
set bmargin at screen 168.0 / height

# The bracket, in the gap between DP's rows and DDP's.
if (drawing && exists("ddp_end") && exists("dp_end")) {
    if (ddp_end < dp_end) {
        set arrow 1 from ddp_end, dp_rows + 0.85 to dp_end, dp_rows + 0.85 heads size screen 0.008,90 linewidth 2 linecolor rgb black
        set label 1 sprintf("DDP saves %.1f ms", dp_end - ddp_end) at (ddp_end + dp_end) / 2, dp_rows + 0.6 center font ",13"
    }
}

middle(unused) = (column("begin_ms") + column("end_ms")) / 2
of_kind(kind) = strcol("phase") eq kind ? middle(0) : NaN
pixels(unused) = (column("end_ms") - column("begin_ms")) / end_max * 580
# A number needs 14 pixels, a letter of a name 7. Where a bucket's data moved too quickly for that, its number stands
# to the right, a third of the row lower from one bucket to the next, so that neighbours keep apart.
is_bucket(unused) = strcol("phase") eq "moving" && column("bucket") >= 0
numbered(unused) = is_bucket(0) && pixels(0) > 14
beside(unused) = is_bucket(0) && !numbered(0) ? strcol("bucket") : ""
lower(unused) = column("row") + 0.27 * (int(column("bucket")) % 3 - 1)
named(dark) = !(strcol("phase") eq "moving" || strcol("phase") eq "waiting") \
    && is_on_dark(strcol("phase")) == dark && pixels(0) > 7 * strlen(strcol("phase")) + 6
key_names = key_timeline." moving waiting"
key_top = 50
load "plots/key.gp"
of_bucket(unused) = column("bucket") >= 0 ? " of bucket ".strcol("bucket") : ""
told(unused) = sprintf("%s%s: %.3f ms", strcol("phase"), of_bucket(0), column("end_ms") - column("begin_ms"))
values = at_mouse('spans using (pixels(0) > 1 ? middle(0) : NaN):"row":(told(0))')
plot for [k = 1:words(kinds)] spans using (of_kind(word(kinds, k))):"row":"begin_ms":"end_ms": \
        (column("row") - 0.4):(column("row") + 0.4) \
        with boxxyerror linewidth 0.4 linecolor rgb phase_colour[k], \
    for [k = 1:words(kinds)] spans using (of_kind(word(kinds, k))):"row":"begin_ms":"end_ms": \
        (column("row") - 0.4):(column("row") + 0.4) \
        with boxxyerror fillstyle transparent pattern hatch[k] noborder linecolor rgb hatch_colour[k], \
    "plots/arrows.csv" using "from_ms":(column("from_row") + 0.4):(column("to_ms") - column("from_ms")): \
        (column("to_row") - column("from_row") - 0.8) \
        with vectors head filled size screen 0.008,20 linewidth 1.2 linecolor rgb black, \
    spans using (middle(0)):"row":(numbered(0) ? strcol("bucket") : "") \
        with labels textcolor rgb "#FEFEFE" font ",13", \
    spans using "end_ms":(lower(0)):(beside(0)) with labels left offset 0.3, 0 font ",12", \
    spans using (middle(0)):"row":(named(1) ? strcol("phase") : "") with labels textcolor rgb "#FEFEFE" font ",12", \
    spans using (middle(0)):"row":(named(0) ? strcol("phase") : "") with labels textcolor rgb "#010101" font ",12", \
    tracks using (0):"row":"label" with labels right offset -1, 0 @values
