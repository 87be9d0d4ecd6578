"""The section of bench/paper.sh: the DDP paper's figures, ours over emulated links beside the paper's digitised points.

A row that is disturbed in most of its rounds is marked, and is in no sentence.
"""

from pathlib import Path

from . import section
from .results import Results, are_far_apart, grouped, mean, median, network_name, quartiles, read_csv, settled, unique, write_csv
from .text import NOTHING, QUICK, columns, listed, markdown_table, plural, saved, terminal_table

PAPER = Path(__file__).resolve().parent.parent / "paper"
FIGURES = ("breakdown", "buckets", "worlds", "skip", "convergence")
PARTS = ("forward_ms", "backward_ms", "communication_ms", "optimizer_ms", "rest_ms")
HEADS = {"buckets": "emulated link; s by bucket MB", "worlds": "emulated link; s by ranks", "skip": "emulated link; s by every"}
ABOUT = "`at first` and `at the end` are the means of the first and of the last 40 of {iterations} iterations, on the digits."


FIRST = 3  # the first step that counts
BATCHES, EVERY = (8, 256), (1, 2, 4, 8)  # of the convergence runs: batch sizes; iterations from one synchronisation to the next
WINDOW = 40  # iterations per mean loss


# ---- measurements: a row for each run ---------------------------------------------------------------------------------


def rounds_of(results, *values):
    """(model, link, value, round) of all timed runs."""
    return [(model, link, value, turn) for model in results.words("models") for link in results.words("links") for value in values
            for turn in results.rounds]


def seconds_rows(results, kind, values):
    """Rows of the runs KIND-MODEL-LINK-VALUE-ROUND with the median of an iteration, in seconds. A step of a `skip` run has VALUE iterations."""
    rows = []
    for model, link, value, turn in rounds_of(results, *values):
        run = f"{kind}-{model}-{link}-{value}-{turn}"
        seconds = results.median_ms(run, FIRST) / 1000 / (int(value) if kind == "skip" else 1)
        rows.append([model, f"{link} (emulated)", value, turn, int(results.is_disturbed(run)), f"{seconds:.6g}"])
    return rows


def mean_parts(rows):
    """Means over the middle half of a run's steps, in ms: forward, backward, communication, optimizer, rest. They add up to the mean step,
    as medians would not."""
    low, _, high = quartiles([row.number("step_ms") for row in rows])
    middle = [row for row in rows if low <= row.number("step_ms") <= high]
    parts = [mean([row.total(*names) for row in middle])
             for names in (("forward_ms", "loss_ms"), ("backward_ms",), ("exposed_ms", "replicate_ms"), ("optimizer_ms",))]
    return [*parts, mean([row.number("step_ms") for row in middle]) - sum(parts)]


def breakdown_rows(results):
    """Rows of figure 6, each of a run without overlap and a run with overlap."""
    rows = []
    for model, link, _, turn in rounds_of(results, ""):
        serial, overlapped = (f"{how}-{model}-{link}-{turn}" for how in ("serial", "overlapped"))
        numbers = [*mean_parts(results.steps(serial, FIRST)), sum(mean_parts(results.steps(overlapped, FIRST)))]
        rows.append([model, f"{link} (emulated)", turn, int(results.is_disturbed(serial, overlapped)), *(f"{ms:.5f}" for ms in numbers)])
    return rows


def convergence_rows(results):
    """Rows of figure 11: the mean loss of each window of iterations."""
    rows = []
    for model in results.words("models"):
        for batch in BATCHES:
            for every in EVERY:
                windows = {}
                for row in results.steps(f"converge-{model}-{batch}-{every}"):
                    windows.setdefault(int(row.number("step")) * every // WINDOW, []).append(row.number("loss"))
                rows += [[model, batch, every, WINDOW * (window + 1), f"{mean(losses):.5f}"] for window, losses in sorted(windows.items())]
    return rows


def collect(results):
    def table(name, head, rows):
        write_csv(results.folder / f"{name}.csv", head, rows)

    table("breakdown", ["model", "link", "round", "disturbed", *PARTS, "overlapped_ms"], breakdown_rows(results))
    for name, kind, column, values in (("buckets", "bucket", "bucket_mb", results.words("caps")), ("worlds", "world", "ranks", results.words("worlds")),
                                       ("skip", "skip", "every", EVERY)):
        table(name, ["model", "link", column, "round", "disturbed", "seconds"], seconds_rows(results, kind, values))
    table("convergence", ["model", "batch", "every", "iteration", "loss"], convergence_rows(results))


# ---- tables and sentences ---------------------------------------------------------------------------------------------


def settled_by(rows, *key):
    """Yields (key, the rows that count, whether most of the key's rows are disturbed). Removes "(emulated)" from the links' names, because
    the text above each table says it."""
    for row in rows:
        row["link"] = row["link"].replace(" (emulated)", "")
    for name, mine in grouped(rows, *key).items():
        yield name, *settled(mine, lambda row: row.is_true("disturbed"))


def medians(rows):
    """(run, key, median seconds over the rounds, disturbed) in the order of the rows."""
    if not rows:
        return []
    key = list(rows[0])[2]
    table = []
    for (model, link, value), mine, lost in settled_by(rows, "model", "link", key):
        seconds = [row.number("seconds") for row in mine]
        table.append((f"{model} {link}", value, median(seconds), lost or are_far_apart(seconds)))
    return table


def undisturbed(found):
    """{run: {key: seconds}}, without runs that have a disturbed value."""
    lost = {run for run, _, _, bad in found if bad}
    return {run: {key: seconds for one, key, seconds, _ in found if one == run} for run in unique(one[0] for one in found) if run not in lost}


def median_table(found, head):
    """The table with a row per run and a column per value of the key."""
    keys = unique(one[1] for one in found)
    cells = {(run, key): "disturbed" if lost else f"{seconds:.5f}" for run, key, seconds, lost in found}
    return [[head, *keys]] + [[run, *(cells.get((run, key), "") for key in keys)] for run in unique(one[0] for one in found)]


def breakdown_table(rows):
    """Figure 6: the run; its parts and the overlapped step as shares of the step without overlap; the hidden share of the communication
    that could be hidden, or "disturbed"."""
    runs = [(f"{model} {link} (emulated)", [[row.number(part) for part in (*PARTS, "overlapped_ms")] for row in mine], lost)
            for (model, link), mine, lost in settled_by(rows, "model", "link")]
    runs += [(f"{row['run']} (paper)", [[*(row.number(part) for part in ("forward", "backward", "communication", "optimizer")), 0.0,
                                        row.number("overlapped")]], False) for row in read_csv(PAPER / "figure6.csv")]
    table = [["run", "fwd", "bwd", "comm", "opt", "rest", "overlap", "hidden"]]
    for run, mine, lost in runs:
        shares, totals = [], [sum(one[:5]) for one in mine]
        for one, total in zip(mine, totals):
            least = min(one[1], one[2])
            shares.append([*(part / total for part in one), (total - one[5]) / least if least > 0 else 0.0])
        cells = [f"{median([one[i] for one in shares]):.3f}" for i in range(7)]
        table.append([run, *cells[:6], "disturbed" if lost or are_far_apart(totals) else cells[6]])
    return table


def breakdown_sentence(table):
    paper = sorted(100 * (1 - float(row[6])) for row in table[1:] if row[0].endswith(" (paper)"))
    said = [f"{saved(1 - float(row[6]))} for {row[0].removesuffix(' (emulated)')}" for row in table[1:]
            if row[0].endswith(" (emulated)") and row[7] != "disturbed"]
    return f"Over emulated links overlap shortens the step by {listed(said)} (in the paper {paper[0]:.1f} to {paper[-1]:.1f} %)." if said else NOTHING


def buckets_sentence(found):
    said = []
    for run, seconds in undisturbed(found).items():
        best = min(seconds, key=seconds.get)
        alone = f" (a bucket per gradient takes {100 * (seconds['0'] / seconds[best] - 1):.0f} % more)" if "0" in seconds and best != "0" else ""
        said.append(f"{best} MB for {run}{alone}")
    return f"Over emulated links the fastest bucket is {listed(said)}; in the paper 25 and 50 MB with NCCL, 5 MB with Gloo." if said else NOTHING


def worlds_sentence(found):
    runs = undisturbed(found)
    said = [f"{list(seconds.values())[-1] / list(seconds.values())[0]:.2f} times as long for {run}" for run, seconds in runs.items()]
    if not said:
        return NOTHING
    return (f"With {list(list(runs.values())[-1])[-1]} ranks over emulated links an iteration takes, compared with one rank, {listed(said)}; in the "
            "paper, with 256, 2.0 to 7.3 times as long.")


def skip_sentence(found):
    said = [f"{saved(1 - seconds['8'] / seconds['1'])} for {run}" for run, seconds in undisturbed(found).items()]
    return (f"Synchronising every 8th iteration over emulated links saves {listed(said)}; in the paper 36 % (NCCL) and 59 % (Gloo) on 256 GPUs."
            if said else NOTHING)


def convergence_table(rows):
    """Figure 11: the first and the last loss, the last one's distance above the run that synchronises in each iteration, and the paper's
    distance ("at most": the limit of what its figure shows)."""
    paper = {(row["batch"], row["every"]): row.number("above") for row in read_csv(PAPER / "figure11.csv")}
    losses = {run: [row.number("loss") for row in mine] for run, mine in grouped(rows, "model", "batch", "every").items()}
    return [["model", "batch", "every", "loss at first", "at the end", "above every 1", "in the paper"]] + [
        [model, batch, every, f"{mine[0]:.3f}", f"{mine[-1]:.3f}", f"{mine[-1] - losses[model, batch, '1'][-1]:+.3f}",
         f"{paper.get((batch, every), 0.0):+.2f}"] for (model, batch, every), mine in losses.items()]


def convergence_sentence(table):
    rows = [row for row in table[1:] if row[2] != "1"]
    said = []
    for model, batch in unique((row[0], row[1]) for row in rows):
        most = max((row[5] for row in rows if row[:2] == [model, batch]), key=float)
        said.append(f"{most} ({model}, batch {batch})")
    paper = " and".join(f" {max((row[6] for row in rows if row[1] == batch), key=float)} (batch {batch})" for batch in unique(row[1] for row in rows))
    return f"The final loss with skipped synchronisations is at most {listed(said)} above the final loss without; in the paper{paper}."


# ---- the figures' data ---------------------------------------------------------------------------------------------

def lines(points, ranked, gap):
    """The points with the data that a figure of lines needs: [panel, run, x, y, disturbed, position, label, label_y]. points: (panel, run,
    x, y, disturbed), each run's together and by rising x. position: x, or if `ranked` its rank in the panel. A line's last point has
    its label and the label's height. Labels at the same x are moved until they are `gap` (a share of the panel's largest y) apart,
    and stay above the axis."""
    last = {(panel, run): i for i, (panel, run, *_) in enumerate(points)}
    top = {panel: max(one[3] for one in points if one[0] == panel) for panel, *_ in points}
    ends, groups = {i: points[i][3] for i in last.values()}, {}
    for i in ends:
        groups.setdefault((points[i][0], points[i][2]), []).append(i)
    for (panel, _), group in groups.items():
        group.sort(key=lambda i: ends[i])
        apart = gap * top[panel]
        for _ in range(100):
            for low, high in zip(group, group[1:]):
                lack = apart - (ends[high] - ends[low])
                if lack > 0:
                    ends[low], ends[high] = ends[low] - lack / 2, ends[high] + lack / 2
                    if low == group[0]:
                        ends[low] = max(ends[low], apart / 2)
    places = {panel: sorted({float(one[2]) for one in points if one[0] == panel}) for panel, *_ in points}
    return [[*one[:4], int(one[4]), places[one[0]].index(float(one[2])) + 1 if ranked else one[2], one[1] if i in ends else "",
             f"{ends[i]:.6g}" if i in ends else "NaN"] for i, one in enumerate(points)]


def paper_points(number):
    """The paper's points of a figure of lines; of figure 10, those with 256 GPUs, its largest number."""
    rows = read_csv(PAPER / f"figure{number}.csv")
    return [("paper", row["run"], list(row.values())[1], row.number("seconds"), False) for row in rows
            if number != 10 or row["gpus"] == "256"]


def write_plots(results, found, breakdown):
    """Writes plots/paper-FIGURE.csv, and plots/paper-runs.gp with each panel's lines and the labels of its x axis."""
    write_csv(results.plots / "paper-breakdown.csv",
              ["row", "run", "forward", "backward", "communication", "optimizer", "rest", "overlapped", "disturbed"],
              [[i, *row[:7], int(row[7] == "disturbed")] for i, row in enumerate(breakdown) if i])
    head = ["panel", "run", "x", "y", "disturbed", "position", "label", "label_y"]
    models = " ".join(network_name(model, results.fact("hidden")) for model in results.words("models"))
    settings = [f"models = '{models} paper'"]
    for figure, number in (("buckets", 7), ("worlds", 9), ("skip", 10)):
        drawn = lines([("here", *one) for one in found[figure]] + paper_points(number), True, 0.09)
        write_csv(results.plots / f"paper-{figure}.csv", head, drawn)
        for side in ("here", "paper"):
            mine = [row for row in drawn if row[0] == side]
            names = " ".join(f"'{row[6]}'" for row in mine if row[6])
            places = " ".join(str(x) for _, x in sorted({row[5]: row[2] for row in mine}.items()))
            settings += [f'{figure}_{side} = "{names}"', f'{figure}_{side}_x = "{places}"']
    points = [(f"{row['model']} {row['batch']}", f"every {row['every']}", row["iteration"], row.number("loss"), False)
              for row in results.named("convergence.csv")]
    points += [(f"paper {row['batch']}", f"every {row['every']}", row["iteration"], row.number("loss"), False)
               for row in read_csv(PAPER / "figure11.csv") if row.number("loss")]
    write_csv(results.plots / "paper-convergence.csv", head, lines(points, False, 0.11))
    (results.plots / "paper-runs.gp").write_text("\n".join(settings) + "\n", encoding="utf-8")


def write(folder):
    results = Results(folder)
    collect(results)
    found = {figure: medians(results.named(f"{figure}.csv")) for figure in ("buckets", "worlds", "skip")}
    tables = {"breakdown": breakdown_table(results.named("breakdown.csv")), "convergence": convergence_table(results.named("convergence.csv")),
              **{figure: median_table(one, HEADS[figure]) for figure, one in found.items()}}
    write_plots(results, found, tables["breakdown"])
    said = {"breakdown": breakdown_sentence(tables["breakdown"]), "buckets": buckets_sentence(found["buckets"]),
            "worlds": worlds_sentence(found["worlds"]), "skip": skip_sentence(found["skip"])}
    if results.is_quick:
        said = dict.fromkeys(said, QUICK)
    said["convergence"] = convergence_sentence(tables["convergence"])
    text = ["## The DDP paper's figures",
            f"Ours are medians over {plural(len(results.rounds), 'round')} on {plural(results.cores, 'core')} with emulated links; a `convnet` has few "
            f"gradients\nfor its computing, the `{network_name('mlp', results.fact('hidden'))}` many."]
    for figure in FIGURES:
        text += [section.draw(results.folder, f"paper-{figure}", said[figure]),
                 f"{said[figure]} {section.numbers(results, f'{figure}.csv')}", markdown_table(tables[figure])]
    section.finish(results, "paper", *text, ABOUT.format(**results.facts))
    tables["breakdown"] = columns(tables["breakdown"], 1, 2, 3, 4, 5, 7, 8)
    print("\n\n".join(terminal_table(tables[figure]) for figure in FIGURES))
