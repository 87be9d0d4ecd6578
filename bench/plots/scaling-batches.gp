# scaling-batches.gp: device 0's memory by kind, with the largest batch that fits. Reads
# scaling-batches.csv (strategy, batch, fits, and each kind's bytes).

load "plots/settings.gp"
name = "scaling-batches"
width = 680
height = 310
load "plots/style.gp"

set title "The largest batch that fits, and device 0's memory with it, MB"
eval across
set lmargin at screen 90.0 / width
set rmargin at screen 1 - 85.0 / width
set tmargin at screen panel_at(70)
set bmargin at screen 95.0 / height
set key at screen 0.5, screen 0.1 center maxrows 2 samplen 1 width 2 reverse Left
set xrange [0:memory]
set yrange [3.5:0.5]
set arrow 1 from memory, 0.5 to memory, 3.5 nohead linewidth 1.5 linecolor rgb black front
set label 1 sprintf("%g MB", memory) at memory, 0.5 center offset 0, 0.8
kinds = "weights gradients optimizer batch logits activations"
array fill[6] = [indigo, sky, forest, black, vermilion, pale] # of six lightnesses, for a grey print
file = "scaling-batches.csv"
place(unused) = strcol("strategy") eq "dp" ? 1 : strcol("strategy") eq "ddp" ? 2 : 3
row(unused) = column("fits") == 1 ? place(0) : NaN
says(unused) = word("DP DDP ZeRO-1", place(0))
mb(k) = column(word(kinds, k)."_bytes") / 1e6
end(k) = (sum [i = 1:k] mb(i))
begin(k) = end(k) - mb(k)
told(k) = sprintf("%s, %s: %.2f MB", strcol("strategy"), word(kinds, k), mb(k))
values = at_mouse('for [k = 1:6] file using ((begin(k) + end(k)) / 2):(row(0)):(told(k))')
plot for [k = 1:6] file using ((begin(k) + end(k)) / 2):(row(0)):(begin(k)):(end(k)):(row(0) - 0.36):(row(0) + 0.36) \
        with boxxyerror linecolor rgb fill[k] title word(kinds, k), \
    for [k = 1:6] file using ((begin(k) + end(k)) / 2):(row(0)):(mb(k) > 0.05 * memory ? sprintf("%.1f", mb(k)) : "") with labels \
        textcolor rgb (k == 1 || k == 3 ? "#FEFEFE" : "#010101") notitle, \
    file using (row(0) > 0 ? memory : NaN):(row(0)):(sprintf("%g rows", column("batch"))) with labels left offset 0.7, 0 notitle, \
    file using (0):(row(0)):(says(0)) with labels right offset -1, 0 notitle @values
