# paper-buckets.gp: see paper-lines.gp.

name = "paper-buckets"
data = "buckets"
figure_title = "Latency by the bucket's size (figure 7)"
xlabel_here = "bucket, MB"
xlabel_paper = "bucket, MB (16 GPUs)"

load "plots/paper-lines.gp"
