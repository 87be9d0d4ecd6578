# phases.gp: a step's time by phase: one bar per strategy and number of devices, one panel per model, each phase a
# part of the bar; disturbed bars are grey. Reads plots/phases-MODEL.csv (row, label, phase, begin_ms, end_ms,
# disturbed). key_phases, all phases that can be seen, are in the key (key.gp).

load "plots/settings.gp"
name = "phases"
set datafile separator ","
set datafile columnheaders
total = 0
do for [model in models] {
    stats "plots/phases-".model.".csv" using "row" name "row" nooutput
    total = total + row_max + 3
}
width = 640
height = 100 + 28 * total
load "plots/style.gp"

set multiplot title "The phases of a step on its main thread" font ",16"
set style fill solid border rgb "white" # keeps neighbours apart, also where there is no colour
eval across
set lmargin at screen 100.0 / width
set rmargin at screen 1 - 80.0 / width
middle(unused) = (column("begin_ms") + column("end_ms")) / 2
# A letter takes 7 pixels.
has_name(unused) = (column("end_ms") - column("begin_ms")) / end_max * 450 > 7 * strlen(strcol("phase")) + 6
name_in(dark) = has_name(0) && (is_on_dark(strcol("phase")) && !(column("disturbed") > 0)) == dark ? strcol("phase") : ""
hatched_end(unused) = column("disturbed") > 0 ? column("begin_ms") : column("end_ms") # no hatch on grey
length(unused) = column("end_ms") - column("begin_ms")
told(unused) = sprintf("%s: %.3f ms", strcol("phase"), length(0))
values = at_mouse('file using (length(0) > 0 ? middle(0) : NaN):"row":(told(0))')
drawn_rows = 0
do for [m = 1:words(models)] {
    file = "plots/phases-".word(models, m).".csv"
    eval unbounded
    stats file using "row" name "row" nooutput
    stats file using "end_ms" name "end" nooutput
    set tmargin at screen panel_at(75 + 28 * drawn_rows)
    set bmargin at screen panel_at(75 + 28 * (drawn_rows + row_max))
    drawn_rows = drawn_rows + row_max + 3
    set xrange [0:1.03 * end_max]
    set yrange [row_max + 0.6:0.4]
    set title word(models, m).", milliseconds per step" offset 0, -0.5
    plot for [p = 1:words(phases)] file using \
            (strcol("phase") eq word(phases, p) ? middle(0) : NaN):"row":"begin_ms":"end_ms": \
            (column("row") - 0.4):(column("row") + 0.4):(or_grey(phase_colour[p])) with boxxyerror linecolor rgb variable, \
        for [p = 1:words(phases)] file using \
            (strcol("phase") eq word(phases, p) ? middle(0) : NaN):"row":"begin_ms":(hatched_end(0)): \
            (column("row") - 0.4):(column("row") + 0.4) with boxxyerror fillstyle transparent pattern hatch[p] noborder linecolor rgb hatch_colour[p], \
        file using (middle(0)):"row":(name_in(1)) with labels textcolor rgb "#FEFEFE" font ",12", \
        file using (middle(0)):"row":(name_in(0)) with labels textcolor rgb "#010101" font ",12", \
        file using (column("begin_ms") == 0 ? 0 : NaN):"row":"label" with labels right offset -1, 0, \
        file using (column("begin_ms") == 0 ? 1.03 * end_max : NaN):"row":(column("disturbed") > 0 ? "disturbed" : "") \
        with labels left offset 0.5, 0 textcolor rgb "#666666" font ",12" @values
}

eval key_panel
unset key
key_names = key_phases
key_top = 56
load "plots/key.gp"
plot NaN notitle with lines
unset multiplot
