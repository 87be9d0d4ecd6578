# paper-worlds.gp: see paper-lines.gp.

name = "paper-worlds"
data = "worlds"
figure_title = "Latency by the number of devices (figure 9)"
xlabel_here = "ranks"
xlabel_paper = "GPUs"
load "plots/paper-lines.gp"
