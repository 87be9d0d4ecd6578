# loss.gp: the training losses of all strategies in one panel, and below them each one's distance from one
# device's. Reads plots/loss-MODEL.csv: a row for each step and a column for each run, such as "single:1" or
# "dp:2". Batches differ in difficulty, so a point is the mean of several steps.

load "plots/settings.gp"
models = curve_models
name = "loss"
width = 640
height = 120 + 275 * words(models)
load "plots/style.gp"

strategy_of(run) = run[1:strstrt(run, ":") - 1]
world_of(run) = run[strstrt(run, ":") + 1:*]
title_of(run) = strategy_of(run) eq "single" ? "one device" : name_of(strategy_of(run))." ".world_of(run)
shade(run) = strategy_of(run) eq "single" ? pale : \
    (strategy_of(run) eq "dp") ? (world_of(run) + 0 < 3 ? orange : vermilion) : \
    (strategy_of(run) eq "mine") ? (world_of(run) + 0 < 3 ? green : forest) : \
    (world_of(run) + 0 < 3 ? sky : deep)
# Early curves are drawn wide and late ones narrow, so that all stay visible where they coincide.
width_of(i) = 1.8 + 2.2 * (words(runs) - i)
file(model) = "plots/loss-".model.".csv"
stats file(word(models, 1)) using "step" name "step" nooutput
steps = step_max + 1
per_point = int(ceil(steps / 60.0))
middle(unused) = (floor(column("step") / per_point) + 0.5) * per_point
of_run(i) = column(word(runs, i))
distance(a, b) = abs(a - b) < 1e-9 ? 1e-9 : abs(a - b) # 0 has no logarithm

# Text at the mouse: one device's loss, and the distances of the others from it, at every third point of the curves.
told_loss(unused) = sprintf("one device at step %d: %.4g loss", column("step"), of_run(1))
far(i) = distance(of_run(1), of_run(i))
told_distance(i) = sprintf("%s at step %d: %.1e from one device", title_of(word(runs, i)), column("step"), far(i))
values_of_loss = at_mouse('file(model) every 3 * per_point using "step":(of_run(1)):(told_loss(0))')
values_of_distance = \
    at_mouse('for [i = 2:words(runs)] file(model) every 3 * per_point using "step":(far(i)):(told_distance(i))')

loss_label = per_point > 1 ? sprintf("loss, mean of %d steps", per_point) : "loss"
set multiplot title "Training loss of the same network under every strategy" font ",16"
set autoscale xfix
set logscale y
set format y shown("10^{%L}")
unset key

do for [m = 1:words(models)] {
    model = word(models, m)
    set tmargin at screen panel_at(80 + 275 * (m - 1))
    set bmargin at screen panel_at(275 + 275 * (m - 1))
    if (m == words(models)) { set xlabel "step" }
    set lmargin at screen 60.0 / width
    set rmargin at screen 300.0 / width
    set title model.": ".loss_label
    set yrange [*:*]
    plot for [i = 1:words(runs)] file(model) using (middle(0)):(column(word(runs, i))) \
        smooth unique with lines linewidth width_of(i) linecolor rgb shade(word(runs, i)) @values_of_loss

    set lmargin at screen 380.0 / width
    set rmargin at screen 620.0 / width
    set title "distance from one device"
    set yrange [5e-10:10]
    plot for [i = 2:words(runs)] file(model) \
        using (middle(0)):(distance(column(word(runs, 1)), column(word(runs, i)))) \
        smooth unique with lines linewidth width_of(i) linecolor rgb shade(word(runs, i)) @values_of_distance
}

eval key_panel
set bmargin at screen 3.0 / height
set tmargin at screen 50.0 / height
set key maxrows 2 samplen 2.5 width 2
plot NaN notitle, for [i = 1:words(runs)] keyentry with lines linewidth width_of(i) \
    linecolor rgb shade(word(runs, i)) title title_of(word(runs, i))
unset multiplot
