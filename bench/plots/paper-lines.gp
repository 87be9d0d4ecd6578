# paper-lines.gp: seconds per iteration, ours to the left, the DDP paper's digitised points to the right. The file
# that loads this sets name, data, xlabel_here, xlabel_paper and the titles. Reads plots/DATA-here.csv and
# plots/DATA-paper.csv: the first column is x, every other a line that is named in its head; and
# plots/paper-columns.gp, which says how many these are (DATA_here, DATA_paper).

width = 860
height = 420
load "plots/style.gp"
load "plots/paper-columns.gp"
set multiplot layout 1, 2 title figure_title font ",15" margins 0.12, 0.98, 0.30, 0.80 spacing 0.09
set key below vertical maxrows 2 samplen 2 noenhanced
set yrange [0:*]
set offsets graph 0.05, graph 0.05, 0, 0
values = at_mouse('for [i = 2:1 + value(data."_".side)] file using 1:i:(sprintf("%g: %g s", column(1), column(i)))')
do for [side in "here paper"] {
    file = "plots/".data."-".side.".csv"
    set title side eq "here" ? "this machine, emulated links" : "the paper"
    set xlabel side eq "here" ? xlabel_here : xlabel_paper
    set ylabel side eq "here" ? "seconds per iteration" : ""
    plot for [i = 2:1 + value(data."_".side)] file using 1:i with linespoints linewidth 2 pointtype 3 + 2 * i \
        linecolor rgb word("#000000 #E69F00 #0072B2 #009E73 #CC79A7", i - 1) title columnheader(i) @values
}
unset multiplot
