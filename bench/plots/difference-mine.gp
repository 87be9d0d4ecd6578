# difference-mine.gp: the same (difference.gp) of the reader's own and the strategy that it takes the place of.

load "plots/settings.gp"
figure_title = "What yours takes more or less, phase by phase"
name = "difference-mine"
subject = "yours takes"
object = mine_like
shown_models = mine_models
load "plots/difference.gp"
