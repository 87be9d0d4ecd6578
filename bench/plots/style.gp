# style.gp: the common settings of all figures. A figure sets name, width and height and then loads this file. gnuplot
# runs in the folder of the results, which has plots/settings.gp from compare.sh.
#
# Data are read by the names of their columns. With numbers_only set, the numbers that would be drawn
# go to plots/NAME.drawn instead (gnuplot -e numbers_only=1 plots/loss.gp).
#
# Colours, dashes, marks, the font and the phases' names are in plots/palette.gp, which bench/report/look.py writes.

load "plots/palette.gp"
# The colour, or grey for a row whose column "disturbed" is set.
or_grey(colour) = column("disturbed") > 0 ? 0xBBBBBB : int("0x".colour[2:7])

# Of a row of summary.csv. (The argument does nothing, but gnuplot's functions have one.)
bar_label(unused) = strcol("strategy") eq "single" ? "one\ndevice" : name_of(strcol("strategy"))."\n".strcol("world_size")

is_on_dark(phase) = strstrt(" ".on_dark." ", " ".phase." ") > 0

# As SVG for pages; with as_png set as PNG for slides, twice as large.
if (exists("as_png")) {
    set terminal pngcairo size 2 * width, 2 * height enhanced font figure_font fontscale 1.5 linewidth 2 background "white"
} else {
    set terminal svg size width, height fixed enhanced font figure_font background "white"
}
drawing = !exists("numbers_only")
# A figure may end its plot with @values, a layer of invisible points with texts for the mouse: at_mouse(DATA) sets them.
# With numbers_only there is no such layer.
at_mouse(data) = drawing ? ', '.data.' with labels hypertext point pointtype 7 pointsize 1.6 linecolor rgb "#FFFFFFFF" notitle' : ''
if (drawing) { set output name.(exists("as_png") ? ".png" : ".svg") } else { set output "/dev/null"; set table "plots/".name.".drawn" }
shown(format) = drawing ? format : "%.9g" # for axes with a format of their own
if (!drawing) { set format "%.9g" }
set datafile separator ","
set datafile columnheaders
set datafile missing NaN
set border 3 linecolor rgb "#444444"
set tics nomirror
set grid ytics linecolor rgb "#E4E4E4" linewidth 1 linetype 1
set style fill solid noborder

# Panels are stacked vertically, so that a narrow page need not shrink the picture much. Their begins and ends are in
# pixels from the top.
panel_at(pixels) = 1 - pixels / real(height)

# stats ignores points out of range: eval unbounded before it.
unbounded = "set xrange [*:*]; set yrange [*:*]"

# Bars across a figure have their names to the left: eval across.
across = "set border 1; set grid xtics noytics; unset ytics; unset key"

# Figures of several panels end with a panel that has only their common key:
# eval key_panel, then plot keyentries.
key_panel = "unset title; unset xlabel; unset ylabel; unset tics; unset border; unset grid; unset logscale;".\
    "set yrange [0:1]; set xrange [0:1]; set key center center horizontal reverse Left;".\
    "set lmargin at screen 0.02; set rmargin at screen 0.98;".\
    "set bmargin at screen 0.02; set tmargin at screen 0.13"
