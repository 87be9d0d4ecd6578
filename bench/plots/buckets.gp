# buckets.gp: the time of DDP's step against the size of its buckets, over an emulated slow link. Small buckets pay the
# latency often, large ones start late; with has_mine_buckets there is the reader's own step, too. Disturbed points are
# grey and have a ring. Reads plots/buckets.csv and plots/buckets-mine.csv (position:
# the cap, or for 0 a position left of all others; cap_mb, step_ms_p25, step_ms_p50, step_ms_p75, disturbed).

load "plots/settings.gp"
name = "buckets"
width = 640
height = 340
load "plots/style.gp"

set title "DDP's step and the size of its buckets\n{/*0.85 2 devices, ".link_text."}" font ",16"
set xlabel "bucket cap in MB (logarithmic; 0: every gradient alone)"
set logscale x
set ylabel "milliseconds per step"
unset key
file = "plots/buckets.csv"
mine = "plots/buckets-mine.csv"
stats file using "step_ms_p75" name "ms" nooutput
most = ms_max
if (has_mine_buckets) {
    stats mine using "step_ms_p75" name "ms" nooutput
    if (ms_max > most) { most = ms_max }
    set key top center horizontal reverse Left
}
stats file using "position" name "position" nooutput
stats file using "disturbed" name "ring" nooutput
set xrange [0.7 * position_min:1.6 * position_max]
set yrange [0:(has_mine_buckets ? 1.25 : 1.1) * most]
told(unused) = sprintf("cap %s MB: %.2f ms", strcol("cap_mb"), column("step_ms_p50"))
values = at_mouse('file using "position":"step_ms_p50":(told(0))')
yours = has_mine_buckets ? ', mine using "position":"step_ms_p50":(or_grey(colour_of("mine"))) with linespoints linewidth 2.5 '. \
    'dashtype dash_of("mine") pointtype mark_of("mine") pointsize 0.9 linecolor rgb variable title "yours"' : ''
# Undisturbed points have an invisibly small ring: a ring of size 0 would be invalid SVG.
plot file using "position":"step_ms_p50":"step_ms_p25":"step_ms_p75":(or_grey(blue)):xtic(strcol("cap_mb")) \
        with yerrorbars pointtype 0 linewidth 1.5 linecolor rgb variable notitle, \
    file using "position":"step_ms_p50":(or_grey(blue)) \
        with linespoints linewidth 2.5 pointtype 5 pointsize 0.7 linecolor rgb variable title "DDP", \
    file using "position":"step_ms_p50":(sprintf("%.1f", column("step_ms_p50"))) with labels offset 2.2, (has_mine_buckets ? -0.8 : 0.7) font ",12" notitle, \
    file using "position":"step_ms_p50":(column("disturbed") > 0 ? 2 : 0.01) \
        with points pointtype 6 pointsize variable linewidth 1.5 linecolor rgb "#666666" notitle @yours @values
