# difference-mine.gp: difference.gp for the reader's own strategy and the built-in one that it replaces.

load "plots/settings.gp"
figure_title = "Your step minus the built-in one, phase by phase"
name = "difference-mine"
subject = "Your"
object = mine_like
shown_models = mine_models
load "plots/difference.gp"
