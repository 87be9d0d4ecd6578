"""Reads a folder of results: CSV files, the records of runs, and facts.txt, which the measuring command wrote."""

import csv
import io
import json
import math
import subprocess
from pathlib import Path

from .look import NAMES, SHARDED


class ReportError(Exception):
    """The results contradict each other, or one of their files is invalid."""


def finite(text, what):
    """The number of a field, 0 if it is empty. Raises ReportError if it is no finite number; `what` names the field."""
    try:
        value = float(text or 0)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ReportError(f"{what} is {str(text)[:40]}, which is no number")
    return value


class Row(dict):
    """A row of a CSV file, by the names of its columns."""

    place = ""  # "FILE, line 3: "

    def __missing__(self, column):
        raise ReportError(f"{self.place}there is no column {column}")

    def number(self, column):
        """The field's finite number, 0 if the field is empty."""
        return finite(self[column], f"{self.place}{column}")

    def whole(self, column):
        return int(self.number(column))

    def total(self, *columns):
        return sum(self.number(column) for column in columns)

    def is_true(self, column):
        return self.number(column) != 0


def ties(mine, other):
    """Do two rows' steps tie: each one's median lies between the other's quartiles?"""
    return all(one.number("step_ms_p25") <= two.number("step_ms_p50") <= one.number("step_ms_p75") for one, two in ((mine, other), (other, mine)))


def quantile(values, q):
    """Interpolated linearly between neighbours, as NumPy's quantile; NaN without values."""
    values = sorted(values)
    if not values:
        return math.nan
    place = q * (len(values) - 1)
    low = int(place)
    if low + 1 >= len(values):
        return values[-1]
    return values[low] + (place - low) * (values[low + 1] - values[low])


def median(values):
    return quantile(values, 0.5)


def mean(values):
    return sum(values) / len(values) if values else math.nan


def quartiles(values):
    return tuple(quantile(values, q) for q in (0.25, 0.5, 0.75))


def are_far_apart(times):
    """Whether the upper quartile exceeds 1.25 times the lower one: then something disturbed the runs, even if no probe noticed it."""
    return quantile(times, 0.75) > 1.25 * quantile(times, 0.25)


def settled(values, is_disturbed):
    """(The values that count, whether most are disturbed): the undisturbed ones; all, where these are fewer than half."""
    quiet = [value for value in values if not is_disturbed(value)]
    lost = 2 * len(quiet) < len(values)
    return (values if lost else quiet), lost


def unique(values):
    return list(dict.fromkeys(values))


def grouped(rows, *columns):
    """{fields in these columns: rows with these fields}, in the order of the rows."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return found


def text_of(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} is no text: {error}") from None


def read_csv(path):
    """The rows of a CSV file; none if there is no such file."""
    rows = []
    if not Path(path).is_file():
        return rows
    reader = csv.DictReader(io.StringIO(text_of(path), newline=""), restkey="")
    for row in reader:
        rows.append(Row(row))
        rows[-1].place = f"{path}, line {reader.line_num}: "
        if "" in row or None in row.values():
            raise ReportError(f"{rows[-1].place}it has other columns than the {len(reader.fieldnames)} of line 1: is the file cut off?")
    return rows


def write_csv(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *rows])


def read_facts(path):
    """{key: value} of "key value" lines; the values of a repeated key are joined by newlines."""
    facts = {}
    if Path(path).is_file():
        for line in text_of(path).splitlines():
            key, _, value = line.partition(" ")
            facts[key] = facts[key] + "\n" + value if key in facts else value
    return facts


def read_scaled(lines):
    """The rows that bench_scale printed: a step of DP and one of DDP for each number of devices, in milliseconds."""
    head, rows = None, []
    for line in lines:
        fields = line.split(",")
        if line.startswith("devices,"):
            head = fields
        elif head and len(fields) == len(head):
            rows.append(Row(zip(head, fields)))
    return rows


def scaled(programs, profile, *options):
    """Runs bench_scale with a profile and options; returns read_scaled of its output."""
    run = subprocess.run([f"{programs}/bench_scale", "--profile", profile, *map(str, options)], check=True, capture_output=True, text=True)
    return read_scaled(run.stdout.splitlines())


def network_name(model, hidden):
    """"mlp-1024" for two hidden layers of 1024, "mlp-8x512" for eight of 512; for other models the model's name."""
    sizes = hidden.replace(";", ",").split(",") if hidden else []
    if model != "mlp" or not sizes:
        return model
    if len(sizes) > 1 and len(set(sizes)) == 1:
        return f"mlp-{sizes[0]}" if len(sizes) == 2 else f"mlp-{len(sizes)}x{sizes[0]}"
    return "mlp-" + "-".join(sizes)


class Results:
    """A folder of results. A missing file reads as empty: the report covers the parts that were measured."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.facts = read_facts(self.folder / "facts.txt")
        self.plots = self.folder / "plots"

    def rows(self, name):
        rows = read_csv(self.folder / name)
        for row in rows if name.startswith("summary") else ():
            if row["strategy"] not in NAMES:
                raise ReportError(f"{row.place}there is no strategy {row['strategy'][:40]!r}")
        return rows

    def named(self, name, column="model"):
        """The rows of a section's file, with models replaced by network_name (facts.txt has the hidden layers of the mlp)."""
        rows = self.rows(name)
        for row in rows:
            row[column] = network_name(row[column], self.fact("hidden"))
        return rows

    def has(self, name):
        return (self.folder / name).is_file() and (self.folder / name).stat().st_size > 0

    def fact(self, key, default=""):
        return self.facts.get(key, default)

    def number(self, key, default=0.0):
        return finite(self.facts.get(key) or default, f"{self.folder / 'facts.txt'}: {key}")

    def words(self, key):
        return self.facts.get(key, "").split()

    def numbers(self, key):
        return [finite(word, f"{self.folder / 'facts.txt'}: {key}") for word in self.words(key)]

    def lines(self, name):
        path = self.folder / name
        return text_of(path).splitlines() if path.is_file() else []

    def record(self, run, file="summary.json"):
        path = self.folder / "runs" / run / file
        try:
            return json.loads(text_of(path)) if path.is_file() else {}
        except json.JSONDecodeError as error:
            raise ReportError(f"{path}: {error}") from None

    def steps(self, run, first=0):
        """The rows of a run's steps.csv, from the step `first` on."""
        rows = self.rows(f"runs/{run}/steps.csv")
        return [row for row in rows if row.number("step") >= first] if first else rows

    def median_ms(self, run, first, *columns):
        """The median over the steps from `first` on, in ms, of the whole step or of the sum of these columns."""
        return median([row.total(*columns or ("step_ms",)) for row in self.steps(run, first)])

    @property
    def rounds(self):
        """The numbers of a section's rounds."""
        return range(1, int(self.number("rounds")) + 1)

    @property
    def is_quick(self):
        return self.fact("quick") == "1"

    def is_disturbed(self, *runs):
        noted = self.lines("disturbed.txt")
        return any(run in noted for run in runs)

    def counted(self, series):
        """(runs that count of a series, SERIES-1 and so on; whether most runs were disturbed)."""
        return settled([f"{series}-{turn}" for turn in self.rounds], self.is_disturbed)

    # ---- facts that all parts of a comparison share -----------------------------------------------------

    @property
    def is_cpu(self):
        return self.fact("kind", "cpu") == "cpu"

    @property
    def cores(self):
        return int(self.number("cores", 2))

    @property
    def models(self):
        return self.words("models") or unique(row["model"] for row in self.rows("summary.csv"))

    @property
    def mine(self):
        """The object that compare.sh --mine loaded: {file, symbol, like: the strategy that it replaces}; None without --mine."""
        keys = {"file": "mine", "symbol": "mine_symbol", "like": "mine_like"}
        return {name: self.fact(key) for name, key in keys.items()} if self.fact("mine") else None

    @property
    def strategies(self):
        """The strategies that share a batch among devices."""
        return ["dp", "ddp"] + ["mine"] * bool(self.mine)

    def runs_like(self, strategy):
        """The built-in strategy whose program trains this strategy."""
        return self.mine["like"] if strategy == "mine" else strategy

    @property
    def timed_worlds(self):
        if "timed" in self.facts:
            return [int(world) for world in self.numbers("timed")]
        return sorted({row.whole("world_size") for row in self.rows("summary.csv")
                       if row["strategy"] == "dp" and row.is_true("timed")})

    @property
    def world(self):
        """The number of devices of the figures: the largest timed number with a core for each device, or the first timed number."""
        worlds = self.timed_worlds
        return max((world for world in worlds if world <= self.cores), default=worlds[0] if worlds else 0)

    @property
    def link(self):
        """The emulated link as the programs print it: "an emulated link of 10 Gbit/s and 20 us"; "" if none was measured."""
        rows = self.rows("summary-link.csv")
        return self.fact("link") or (f"an emulated link of {rows[0]['emulated_link']}" if rows else "")

    @property
    def probe(self):
        """(GFLOP/s, GB/s) of all cores, from the fact `probe`; None without a probe."""
        rates = self.numbers("probe")
        return tuple(rates) if len(rates) == 2 else None

    @property
    def repeats(self):
        """How many runs were made for each row."""
        return int(self.number("repeats") or max((row.number("repeats") for row in self.rows("summary.csv")), default=1))

    @property
    def curve_models(self):
        return self.words("curve_models")

    def network(self, model, part="speed"):
        """The network's row of networks.csv, with its `name`; a row with only the model's name if the file has none."""
        for row in self.rows("networks.csv"):
            if row["model"] == model and row["part"] == part:
                row["name"] = network_name(model, row["hidden"])
                return row
        return Row(name=model, hidden="", layers="", parameters="")

    def name(self, model, part="speed"):
        return self.network(model, part)["name"]

    def summary(self, model, but=SHARDED):
        """The timed rows of a model, without the strategies `but`."""
        return [row for row in self.rows("summary.csv") if row["model"] == model and row.is_true("timed") and row["strategy"] not in but]

    def row_of(self, strategy, model, world, file="summary.csv"):
        for row in self.rows(file):
            if (row["strategy"], row["model"], row.whole("world_size")) == (strategy, model, int(world)):
                return row
        return None
