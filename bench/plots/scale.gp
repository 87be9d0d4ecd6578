# scale.gp: DP's, DDP's and FSDP's step on up to thousands of devices, by the model (lines) and by SimGrid (rings): a panel with
# devices that are equally fast, and one with a straggler. Reads plots/scale-N.csv (devices; dp, ring, tree, hierarchical,
# fsdp, and of two levels two and fsdp_two; NAME_simulated beside each) and plots/settings.gp (simulated, the lines that
# SimGrid has points of). bench/model/scale.sh writes them.

name = "scale"
width = 720
height = 810
load "plots/style.gp"
load "plots/settings.gp"

figure_title = "A step on many devices: computed, not measured"
set multiplot title figure_title font ",16"
unset key
set ylabel "milliseconds"
set logscale x 2
set logscale y
set format y shown("%g")
set lmargin at screen 95.0 / width
set rmargin at screen 1 - 160.0 / width
array panel_title[2] = ["All devices are equally fast", "One device computes 1.5 times as long"]
set dashtype 7 (12, 4, 2, 4, 2, 4)
lines = "dp ring tree hierarchical two fsdp fsdp_two"
array of[7] = ["orange", "blue", "green", "indigo", "black", "purple", "wine"]
array dashes[7] = [2, 1, 4, 5, 3, 6, 7] # in grey, too, all differ
array words_of[7] = ["DP", "DDP, ring", "DDP, tree", "DDP, rings of rings", "DDP, two levels", "FSDP, rings", "FSDP, two levels"]
place(run) = sum [k = 1:7] (word(lines, k) eq run ? k : 0)
colour(run) = value(of[place(run)])
dash(run) = dashes[place(run)]
says(run) = words_of[place(run)]
# Lines that end close together: their names move apart, from top to bottom.
apart(run) = run eq "fsdp" ? 0.15 : run eq "tree" ? 0.95 : run eq "fsdp_two" ? 0.1 : run eq "hierarchical" ? -0.4 : run eq "two" ? -1.15 : 0
told(run) = sprintf("%s on %d: %g ms", says(run), column("devices"), column(run))
values = at_mouse('for [run in lines] file using "devices":(column(run)):(told(run))')
ring = 'file using "devices":(column(run."_simulated")) with points pointtype 6 pointsize 1 linecolor rgb colour(run)'
rings = simulated eq "" ? "" : "for [run in simulated] ".ring.", " # a loop over an empty list runs once
do for [n = 1:2] {
    file = "plots/scale-".n.".csv"
    set tmargin at screen 1 - (80.0 + 370 * (n - 1)) / height
    set bmargin at screen 1 - (360.0 + 370 * (n - 1)) / height
    eval unbounded
    stats file using "devices" name "devices" nooutput
    set xrange [devices_min:1.1 * devices_max]
    set title panel_title[n]
    if (n == 2) { set xlabel "devices (logarithmic)" }
    last(run) = column("devices") == devices_max ? column(run) : NaN
    plot for [run in lines] file using "devices":(column(run)) with lines linewidth 2 dashtype dash(run) linecolor rgb colour(run), \
        @rings \
        for [run in lines] file using "devices":(last(run)):(says(run)) with labels left offset 1, apart(run) textcolor rgb colour(run) @values
}
unset multiplot
