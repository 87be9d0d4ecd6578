# paper-convergence.gp: the DDP paper's figure 11: the loss when gradients are sent only every so many iterations, a row
# for each of our models and one for the ends of the paper's curves (first and last points). Reads
# plots/paper-convergence.csv (bench/report/paper.py writes it) and plots/paper-runs.gp, which names the models.

load "plots/paper-runs.gp"
name = "paper-convergence"
width = 680
height = 90 + 225 * words(models)
load "plots/style.gp"

set multiplot title "The loss with skipped synchronisation (figure 11)" font ",16"
unset key
file = "plots/paper-convergence.csv"
# Early lines are wide and pale, late ones narrow and dark, so that all are seen where they coincide, also in grey.
array shade[4] = [pale, sky, blue, black]
array mark[4] = [6, 4, 8, 7] # the paper's few points: large, with distinct shapes
every(i) = 2 ** (i - 1)
here(unused) = strcol("panel") eq panel ? column("position") : NaN
of(i) = strcol("run") eq sprintf("every %d", every(i)) ? here(0) : NaN
at_end(unused) = strlen(strcol("label")) > 0 ? here(0) : NaN
told(unused) = sprintf("%s, iteration %d: %g", strcol("run"), column("position"), column("y"))
values = at_mouse('file using (here(0)):"y":(told(0))')
set xrange [0:420]
set xtics 0, 100, 300
set ytics 1
do for [m = 1:words(models)] {
    model = word(models, m)
    do for [batch in "8 256"] {
        panel = model." ".batch
        eval unbounded
        stats file using (strcol("panel") eq panel ? column("y") : NaN) name "loss" nooutput
        set xrange [0:420]
        set yrange [0:1.05 * loss_max]
        set tmargin at screen panel_at(80 + 225 * (m - 1))
        set bmargin at screen panel_at(230 + 225 * (m - 1))
        set lmargin at screen (batch eq "8" ? 50.0 : 370.0) / width
        set rmargin at screen (batch eq "8" ? 280.0 : 600.0) / width
        set title (model eq "paper" ? "the paper, first and last" : model).", batch ".batch offset 0, -0.5
        set xlabel m == words(models) ? "iteration" : ""
        if (model eq "paper") {
            plot for [i = 1:4] file using (of(i)):"y" with points pointtype mark[i] pointsize 2.1 - 0.35 * i linewidth 2 linecolor rgb (i == 1 ? grey : shade[i]), \
                file using (at_end(0)):"y":(30):(column("label_y") - column("y")) with vectors nohead linecolor rgb grey, \
                file using (at_end(0) + 30):"label_y":"label" with labels left offset 0.3, 0 @values
        } else {
            plot for [i = 1:4] file using (of(i)):"y" with lines linewidth 9 - 2 * i linecolor rgb shade[i], \
                file using (at_end(0)):"y":(30):(column("label_y") - column("y")) with vectors nohead linecolor rgb grey, \
                file using (at_end(0) + 30):"label_y":"label" with labels left offset 0.3, 0 @values
        }
    }
}
unset multiplot
