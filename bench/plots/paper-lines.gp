# paper-lines.gp: seconds per iteration, ours above, the DDP paper's digitised points below. Each line has its name at
# its end; it is blue for the model of many gradients, orange for the one of few, and dashed over the slower network.
# Disturbed points have a ring. The file that loads this one sets name, data, xlabel_here, xlabel_paper and figure_title.
# Reads plots/paper-DATA.csv (bench/report/paper.py writes it) and plots/paper-runs.gp, which names the lines (DATA_here,
# DATA_paper) and has the labels of the x axes (DATA_here_x, DATA_paper_x).

width = 680
height = 720
load "plots/style.gp"
load "plots/paper-runs.gp"
set multiplot title figure_title font ",16"
unset key
set lmargin at screen 70.0 / width
set rmargin at screen 1 - 145.0 / width
file = "plots/paper-".data.".csv"
dash_of(run) = strstrt(run, "10gbe") || strstrt(run, "Gloo") ? 2 : 1
is_small(run) = strstrt(run, "convnet") || strstrt(run, "ResNet50")
here(unused) = strcol("panel") eq side ? column("position") : NaN
of(run) = strcol("run") eq run ? here(0) : NaN
at_end(run) = strlen(strcol("label")) > 0 ? here(0) : NaN
told(unused) = sprintf("%s%s at %s: %g s", strcol("run"), side eq "here" ? " (emulated)" : "", strcol("x"), column("y"))
values = at_mouse('file using (here(0)):"y":(told(0))')
do for [side in "here paper"] {
    eval unbounded
    stats file using (here(0)) name "position" nooutput
    stats file using (strcol("panel") eq side ? column("y") : NaN) name "seconds" nooutput
    stats file using (strcol("panel") eq side ? column("disturbed") : NaN) name "ring" nooutput
    top = side eq "here" ? 80 : 430
    set tmargin at screen panel_at(top)
    set bmargin at screen panel_at(top + 230)
    set title (side eq "here" ? "this machine, emulated links" : "the paper").": seconds per iteration". \
        (ring_max > 0 ? " (in a ring: disturbed)" : "") offset 0, -0.5
    set xlabel side eq "here" ? xlabel_here : xlabel_paper
    set xrange [0.8:1.06 * position_max]
    set yrange [0:1.08 * seconds_max]
    reach = 0.04 * position_max
    lines = value(data."_".side)
    places = value(data."_".side."_x")
    set xtics (word(places, 1) 1)
    do for [i = 2:words(places)] { set xtics add (word(places, i) i) }
    # Undisturbed points have an invisibly small ring: a ring of size 0 would be invalid SVG.
    plot for [i = 1:words(lines)] file using (of(word(lines, i))):"y" with linespoints linewidth 2.5 \
            dashtype dash_of(word(lines, i)) pointtype (is_small(word(lines, i)) ? 5 : 7) pointsize 0.7 \
            linecolor rgb (is_small(word(lines, i)) ? orange : blue), \
        file using (at_end(0)):"y":(reach):(column("label_y") - column("y")) with vectors nohead linecolor rgb grey, \
        file using (at_end(0) + reach):"label_y":"label" with labels left offset 0.3, 0 noenhanced, \
        file using (here(0)):"y":(column("disturbed") > 0 ? 2 : 0.01) \
            with points pointtype 6 pointsize variable linewidth 1.5 linecolor rgb "#666666" @values
}
unset multiplot
