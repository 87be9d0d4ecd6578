# difference.gp: the difference of DDP's step and DP's, phase by phase: a bar to the left is time that DDP saves. A
# panel per model, on answer_world devices. Reads plots/difference-MODEL.csv (row, phase, difference_ms, shown_ms,
# disturbed, tie): disturbed bars are grey. difference-mine.gp sets another pair.

load "plots/settings.gp"
if (!exists("name")) { name = "difference"; subject = "DDP's"; object = "DP"; shown_models = models }
figure_title = "DDP's step minus DP's, phase by phase"
set datafile separator ","
set datafile columnheaders
total = 0
do for [model in shown_models] {
    stats "plots/".name."-".model.".csv" using "row" name "row" nooutput
    total = total + row_max + 3
}
width = 640
height = 60 + 25 * total
load "plots/style.gp"

set multiplot title sprintf("%s step minus %s's: longer right, shorter left; %s devices", subject, object, answer_world) \
    font ",16"
eval across
set lmargin at screen 120.0 / width
set rmargin at screen 1 - 70.0 / width
told(unused) = sprintf("%s: %+.3f ms", strcol("phase"), column("difference_ms"))
values = at_mouse('file using (column("difference_ms") / 2):"row":(told(0))')
drawn_rows = 0
do for [model in shown_models] {
    file = "plots/".name."-".model.".csv"
    eval unbounded
    stats file using "row" name "row" nooutput
    n = row_max
    stats file using "difference_ms" name "ms" nooutput
    stats file using "tie" name "tie" nooutput
    reach = 1.25 * (abs(ms_min) > abs(ms_max) ? abs(ms_min) : abs(ms_max))
    if (reach < 1e-3) { reach = 1e-3 } # an exact tie
    set xrange [-reach:reach]
    set yrange [n + 0.6:0.4]
    set tmargin at screen panel_at(75 + 25 * drawn_rows)
    set bmargin at screen panel_at(75 + 25 * (drawn_rows + n))
    drawn_rows = drawn_rows + n + 3
    set title model.", milliseconds".(tie_max > 0 ? ": a tie" : "") offset 0, -0.6
    set arrow 1 from 0, 0.4 to 0, n + 0.6 nohead linecolor rgb "#444444"
    colour(unused) = or_grey(strcol("phase") eq "step" ? "#444444" : column("difference_ms") < 0 ? blue : vermilion)
    number(unused) = strcol("shown_ms")
    plot file using (column("difference_ms") / 2):"row":(0):"difference_ms": \
            (column("row") - 0.36):(column("row") + 0.36):(colour(0)) with boxxyerror linecolor rgb variable, \
        file using "difference_ms":"row":(column("difference_ms") > 0 ? number(0) : "") with labels left offset 0.5, 0, \
        file using "difference_ms":"row":(column("difference_ms") > 0 ? "" : number(0)) with labels right offset -0.5, 0, \
        file using (-reach):"row":"phase" with labels right offset -1, 0 @values
}
unset multiplot
