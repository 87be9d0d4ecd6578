# paper-skip.gp: see paper-lines.gp.

name = "paper-skip"
data = "skip"
figure_title = "Synchronising every N iterations (figure 10)"
xlabel_here = "iterations per synchronisation"
xlabel_paper = "iterations per synchronisation (256 GPUs)"

load "plots/paper-lines.gp"
