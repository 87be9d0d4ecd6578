#!/usr/bin/env python3
"""generated.py: plants generated mistakes in the code; some test has to fail for each.

    tests/mutants.sh --generated [--room FOLDER]... [--seed N] [--count M|all] [options]

  --room FOLDER   mutants of its C files, without those of the rooms inside it (default: all rooms)
  --each          draws M from each room, alternately, and judges all in one build; prints a table by room and
                  exits with 1 if less than the room's aim is caught. Takes hours: Ctrl-C ends it with the table
                  of those that were judged
  --seed N        draws the same mutants again (default: a new seed, which is printed)
  --count M       how many are drawn, or all of them (default: 150)
  --quick         only tests of less than 3 s, of those whose time limit is the usual one, and only mutants
                  that need no build of their own, of at most as many files as are drawn (by their sizes)
  --tests REGEX   only tests whose names match
  --longest S     only tests that take less than S seconds without a mutant: the others are ended then
  --at-least P    exit status 1 if less than P percent are caught
  --check         runs nothing: every entry of equivalents.txt fits a line of the tree, and README.md has the
                  table of the kept samples
  --keep          appends each room's result to samples.csv; --samples prints these, and runs nothing
  --jobs N        tests that run at once (default: one for each core)
  --budget S      seconds of tests for one mutant; then it counts as survived (default: 180)
  --again S       a mutant whose budget ends before its tests is judged by the others at the end, for S seconds
  --slack S       a test hangs after S seconds and three times what it took without a mutant (10)

Needs a build in build/ (tests/run.sh makes one) and works on a copy, mounted over the tree in a
namespace of its own. All drawn mutants that a running process can choose are compiled into one build
(schemata.py); the others are built one by one. First every test runs without a mutant: that says how
long it takes and which mutants it reaches. Then, for each mutant, the tests that reach it run until
one fails: the quickest first, and before them those with the file's name, those of the room's folder
and those that noticed other mutants of the file. A failure counts if the test passes without the
mutant once more; a time-out if another test hangs and passes without the mutant, or if the test hangs
again with twice the time, after the next three tests. The exit status is 77 where libclang is
missing (it is installed from PyPI into a virtual environment) or namespaces are not allowed.
"""
import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import samples
import sandbox
import schemata

HERE = Path(__file__).resolve().parent
LIBCLANG = 'libclang==18.1.1'
GRADERS = 'tutorials/grading'
# Each room and the percentage of its mutants that should be caught.
ROOMS = {'dp': 95, 'ddp': 95, 'ddp/group': 95, 'ddp/features': 95, 'ddp/fsdp': 95, 'ddp/store': 90,
         'ddp/rendezvous': 90, 'ddp/launch': 90, 'common/base': 90, 'common/nn': 95, 'common/train': 90,
         'common/data': 90, 'common/tensor_files': 90, 'common/device': 90, 'bench': 85, GRADERS: 85}
NOT_BUILT = re.compile(r'(all$|clean$|test$|install|package|edit_cache|rebuild_cache|list_)')
FOR_GPUS = re.compile(r'/(cuda|nccl)/|/step_graph\.c$')  # executed by no test on this machine
FOR_GRADERS = re.compile(r'(tutorial|exercise)')
QUICK_S, USUAL_LIMIT_S = 3, 120  # of a test: tests/functions.cmake
BETWEEN = 3  # tests that run before a hung test is repeated: often one of them fails sooner
SPARE = 20  # spare single mutants, for those that do not compile
EQUIVALENTS = 'tests/mutants/equivalents.txt'


def skip(why):
    print(f'skipped: {why}')
    sys.exit(77)


def fail(why):
    print(f'error: {why}', file=sys.stderr)
    sys.exit(2)


# ---- the list of mutants --------------------------------------------------------------------------

def python_with_libclang():
    """The Python interpreter of a virtual environment outside of the tree, which has libclang."""
    if not shutil.which('clang') and not shutil.which('gcc'):
        skip('neither clang nor gcc is installed, whose headers libclang needs')
    venv = Path(os.environ.get('XDG_CACHE_HOME', Path.home() / '.cache'), 'ddpc', 'mutants')
    python = venv / 'bin' / 'python'
    test = [python, '-c', 'import clang.cindex']
    if not python.exists() or subprocess.run(test, capture_output=True).returncode != 0:
        for command in ([sys.executable, '-m', 'venv', venv],
                        [python, '-m', 'pip', 'install', '--quiet', LIBCLANG]):
            made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode != 0:
                last = (made.stderr or made.stdout).strip().splitlines()[-1:] or ['no reason given']
                skip(f'no virtual environment with {LIBCLANG} in {venv}: {last[0]}')
    return python


def compiler_headers():
    """Flags for the compiler's own headers, which libclang's package lacks."""
    if shutil.which('clang'):
        ask, tail = ['clang', '-print-resource-dir'], '/include'
    else:
        ask, tail = ['gcc', '-print-file-name=include'], ''
    return f'-isystem {subprocess.run(ask, capture_output=True, text=True).stdout.strip()}{tail}'


def room_of(name):
    inside = [r for r in ROOMS if name.startswith(r + '/')]
    return max(inside, key=len) if inside else os.path.dirname(name) or '.'


def files_of(root, rooms):
    names = sorted(str(p.relative_to(root)) for pattern in ('*.c', '*.h') for p in root.rglob(pattern))
    names = [x for x in names if not x.startswith('build') and not FOR_GPUS.search(x)]
    if not rooms:
        return [x for x in names if room_of(x) in ROOMS]
    inner = {r for room in rooms for r in ROOMS if r.startswith(room + '/')} - set(rooms)
    return [x for x in names if any(room == '.' or x.startswith(room + '/') for room in rooms)
            and room_of(x) not in inner]


def draw_files(root, names, seed, count):
    """Draws at most `count` source files, weighted by their size, like a sample of all mutants."""
    names = [x for x in names if x.endswith('.c')]
    sizes = [(root / x).stat().st_size for x in names]
    return sorted(set(random.Random(f'files {seed}').choices(names, sizes, k=int(count))))


def list_mutants(root, build, rooms, choose=lambda names: names):
    names = choose(files_of(root, rooms))
    if not names:
        fail(f'--room {" ".join(rooms)}: there is no C file in it')
    environment = dict(os.environ, MUTANTS_HEADERS=compiler_headers())
    found = subprocess.run([python_with_libclang(), HERE / 'find_mutants.py', root, build] + names,
                           stdout=subprocess.PIPE, text=True, env=environment)
    if found.returncode != 0:
        fail('find_mutants.py could not read the tree')
    return [json.loads(x) for x in found.stdout.splitlines()]


# ---- equivalents ----------------------------------------------------------------------------------

def read_equivalents(path):
    """Returns the entries of equivalents.txt as dictionaries."""
    entries = []
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith('#') or not line.strip():
            continue
        key, _, value = line.partition(':')
        if key == 'file':
            entries.append({})
        entries[-1][key] = ' '.join(value.split())
    return entries


def check_equivalents(root):
    problems, entries = 0, read_equivalents(root / EQUIVALENTS)
    for entry in entries:
        path = root / entry['file']
        text = ' '.join(path.read_text().split()) if path.exists() else ''
        wanted = {'file', 'function', 'line', 'operator'} - set(entry)
        if wanted or not ('equivalent' in entry or 'speed' in entry) or entry['line'] not in text:
            print(f'equivalents.txt fits the tree no longer: {entry}')
            problems += 1
    print(f'{len(entries)} equivalent mutants, of which {len(entries) - problems} fit the tree')
    return problems


def known_as(entries, m):
    """Returns 'equivalent' or 'speed only' and the reason, or None."""
    for entry in entries:
        if all(entry[key] == m[field] for key, field in (
                ('file', 'file'), ('function', 'function'), ('line', 'text'), ('operator', 'operator'))) \
                and entry.get('with') in (None, ' '.join(m['new'].split())):
            return ('equivalent' if 'equivalent' in entry else 'speed only'), \
                entry.get('equivalent') or entry['speed']
    return None


# ---- the build ------------------------------------------------------------------------------------

class Tree:
    """A copy of the tree with its build, mounted over the tree."""

    def __init__(self, root, scratch, jobs, graders):
        self.root, self.scratch, self.jobs = root, Path(scratch), jobs
        self.build = root / 'build'
        copy = self.scratch / 'tree'
        copy.mkdir()
        parts = [p for p in root.iterdir() if p.name == 'build' or not re.match(r'\.git$|build', p.name)]
        subprocess.run(['cp', '-a', '--reflink=auto', *parts, copy], check=True)
        self.release = self.scratch / 'release'
        shutil.copytree(self.build / 'bin', self.release, symlinks=True)
        subprocess.run(['mount', '--bind', copy, root], check=True)
        os.chdir(root)
        shown = subprocess.run(['cmake', '--build', self.build, '--target', 'help'],
                               capture_output=True, text=True).stdout
        named = re.findall(r'^(?:\.\.\. )?([a-z]\w*)(?:: phony)?$', shown, re.M)
        self.targets = [x for x in named if not NOT_BUILT.match(x) and (graders or not FOR_GRADERS.match(x))]
        self.programs = [x for x in self.targets if not x.startswith(('test_', 'corpus_'))]

    def make(self, targets):
        return subprocess.run(['cmake', '--build', self.build, '-j', str(self.jobs), '--target', *targets],
                              capture_output=True, text=True)

    def insert(self, mutants):
        by_file = defaultdict(list)
        for m in mutants:
            by_file[m['file']].append(m)
        for name, some in by_file.items():
            if name.endswith('.c'):
                path = self.root / name
                text = path.read_bytes().decode('latin-1')
                path.write_bytes(schemata.insert(text, path, some, len(mutants) + 1).encode('latin-1'))
        made = self.make(self.targets)
        if made.returncode != 0:
            lines = [x for x in made.stdout.splitlines() if re.search(r'\berror:|undefined', x)]
            fail('the build with all mutants: ' + '\n'.join(lines[:20]))

    def plant(self, m, original):
        """Writes one single mutant into the original text of its file. Its targets are built by need()."""
        (self.root / m['file']).write_bytes(schemata.plant(original, m).encode('latin-1'))

    def restore(self, name, original):
        (self.root / name).write_bytes(original.encode('latin-1'))

    def need(self, test):
        """Builds the targets that the test runs; returns False if they do not compile."""
        program = Path(test['command'][0])
        own = program.parent == self.build / 'bin' and program.name in self.targets
        return self.make([program.name] if own else self.programs).returncode == 0


def check_bits(tree):
    """Checks that programs without a chosen mutant compute the release's bits, and that the release has no switch."""
    with_switch = [p.name for p in tree.release.iterdir() if p.is_file() and b'DDPC_MUTANT' in p.read_bytes()]
    if with_switch:
        fail(f'a mutant can be chosen in the programs of the release: {" ".join(with_switch)}')
    print('no switch in the release: DDPC_MUTANT is in none of its programs')
    same = []
    for name, options in (('train_single', []), ('train_dp', ['--devices', '2']), ('train_ddp', [])):
        if not (tree.release / name).exists():
            continue
        saved = []
        for folder in (tree.release, tree.build / 'bin'):
            path = tree.scratch / f'{name}-{len(saved)}' / 'saved'  # the file contains this name
            path.parent.mkdir()
            subprocess.run([folder / name, '--steps', '5', '--model', 'convnet', '--device', 'cpu', *options,
                            '--save', path], check=True, capture_output=True)
            saved.append(path.read_bytes())
        if saved[0] != saved[1]:
            fail(f'{name} without a chosen mutant has other bits than in the release')
        same.append(name)
    if same:
        print(f'no mutant chosen: the weights of {", ".join(same)} have the bits of the release')


# ---- the tests ------------------------------------------------------------------------------------

class Judge:
    """Runs tests with and without a mutant."""

    def __init__(self, tree, arguments):
        self.tree, self.a, self.tests, self.ended = tree, arguments, {}, False
        self.noticed = defaultdict(Counter)  # {file: number of mutants that each test detected}
        self.spent = Counter()  # {state: seconds of all tests that ended so}
        self.lock = threading.Lock()

    def end(self):
        """Stops judging further mutants."""
        self.ended = True

    def run(self, name, limit, **variables):
        result = sandbox.run_test(self.tests[name], str(self.tree.root), limit, variables)
        with self.lock:
            self.spent[result[0]] += result[1]
        return result

    def cover(self, size):
        """Runs every test once without a mutant: records its time and the mutants that it reaches."""
        self.tests = sandbox.read_tests(self.tree.build, self.a.graders)
        self.tests = {k: t for k, t in self.tests.items() if re.search(self.a.tests, k)
                      and not (self.a.quick and t['timeout'] > USUAL_LIMIT_S)}
        with ThreadPoolExecutor(self.a.jobs) as pool:
            results = list(pool.map(lambda name: self.cover_one(name, size), self.tests))
        passed = {n: r for n, r in zip(self.tests, results) if r}
        left_out = sorted(set(self.tests) - set(passed))
        in_time = f' in {self.a.longest:g} s' if self.a.longest < float('inf') else ''
        self.tests = {n: dict(self.tests[n], seconds=s, reached=reached)
                      for n, (s, reached) in sorted(passed.items(), key=lambda x: x[1][0])}
        print(f'{len(passed)} tests judge the mutants; they take {sum(r[0] for r in passed.values()):.0f} s'
              + (f'; without a mutant these do not pass{in_time}: {" ".join(left_out)}' if left_out else ''))

    def cover_one(self, name, size):
        with tempfile.NamedTemporaryFile() as covered:
            covered.truncate(size)
            limit = min(self.tests[name]['timeout'], self.a.longest)
            state, seconds, _ = self.run(name, limit, DDPC_MUTANT_COVER=covered.name)
            reached = {i for i, x in enumerate(Path(covered.name).read_bytes()) if x}
        return (seconds, reached) if state == 'passed' else None

    def limit(self, name):
        return round(self.a.slack + 3 * self.tests[name]['seconds'])

    def notices(self, name, number, times):
        """Returns the mutant's symptom in the test, '' if there is none, None if the test hung once (times == 1)."""
        state, _, text = self.run(name, times * self.limit(name), DDPC_MUTANT=number)
        if state == 'hangs' and times == 1:
            return None
        if state == 'passed':
            return ''
        if state == 'failed' and number != '0' and self.run(name, 2 * self.limit(name))[0] != 'passed':
            print(f'{name} fails without a mutant, too: it is not counted')
            return ''
        function = re.search(r'^\[  FAILED  \] ([a-z]\w*)$', text, re.M)
        return name + (f' ({state})' if state != 'failed' else f': {function[1]}' if function else '')

    def nearness(self, name, file):
        """How much sooner than a test of the same time: 100 of the file's name, 10 of its folder."""
        stem = os.path.splitext(os.path.basename(file))[0]
        mirror = f'/tests/{os.path.basename(room_of(file))}'
        return 100 if stem in name or name in stem else 10 if self.tests[name]['folder'].endswith(mirror) else 1

    def reaching(self, m):
        """The tests that execute the mutant's line, in the order in which they judge it."""
        noticed = self.noticed[m['file']]
        names = [n for n, t in self.tests.items()
                 if (m['id'] in t['reached'] or m['kind'] == 'single' and not m['probes'])
                 and (not t['grades'] or m['file'].startswith(GRADERS))]
        return sorted(names, key=lambda n: self.tests[n]['seconds'] / (1 + noticed[n]) / self.nearness(n, m['file']))

    def judge(self, m, names, budget, may_run=lambda test: True):
        """Returns the verdict of the tests `names`, what is said of it, and the tests for which no time was left."""
        begin, number = time.monotonic(), str(m['id']) if m['kind'] == 'switched' else '0'
        queue, left, hung = [(name, 1) for name in names], [], 0
        while queue:
            name, times = queue.pop(0)
            if times == 1 and time.monotonic() - begin > budget:
                left.append(name)
                continue
            if not may_run(self.tests[name]):
                return 'does not compile', '', []
            shown = self.notices(name, number, times)
            if shown is None:
                hung += 1
                if hung == 2 and self.run(name, self.limit(name))[0] == 'passed':
                    shown = f'{name} (hangs, the second)'
                queue.insert(BETWEEN, (name, 2))
            if shown:
                self.noticed[m['file']][name] += 1
                return 'caught', shown, []
        return 'survived', f'(tests that had no time: {len(left)})' if left else \
            '' if names else '(no test executes it)', left

    def judge_single(self, m):
        self.tree.plant(m, m['original'])
        verdict = self.judge(m, self.reaching(m), self.a.budget + self.a.again, self.tree.need)
        self.tree.restore(m['file'], m['original'])
        return verdict

    def say(self, m, verdict, by):
        with self.lock:
            print(f"{verdict:10} {m['file']}:{m['line']} {m['function'] or '-'} {m['operator']}: "
                  f"{m['old'][:70]} -> {m['new'][:70] or '(nothing)'}  {by}", flush=True)


class Phases:
    """Prints at the end each phase's elapsed time and processor time."""

    def __init__(self):
        self.begin, self.text = self.now(), []
        self.last = self.begin

    @staticmethod
    def now():
        return time.monotonic(), sum(os.times()[:4])

    def end(self, name):
        now = self.now()
        self.text.append(f'{name} {now[0] - self.last[0]:.0f} s ({now[1] - self.last[1]:.0f} s of CPU)')
        self.last = now

    def __str__(self):
        return f'{self.last[0] - self.begin[0]:.0f} s: ' + ', '.join(self.text)


def draw(mutants, seed, count):
    """The drawn mutants, and spare single ones, which replace those that do not compile."""
    mutants.sort(key=lambda m: (m['file'], m['start'], m['end'], m['operator'], m['new']))
    random.Random(str(seed)).shuffle(mutants)
    count = len(mutants) if count == 'all' else min(int(count), len(mutants))
    return mutants[:count], [m for m in mutants[count:] if m['kind'] == 'single'][:SPARE]


def draw_each(mutants, seed, count):
    """draw() for each room, interleaved, so that an interrupted run has judged some mutants of each room."""
    by_room = defaultdict(list)
    for m in mutants:
        by_room[room_of(m['file'])].append(m)
    drawn = [draw(some, seed, count) for _, some in sorted(by_room.items())]
    turns = itertools.zip_longest(*(d for d, _ in drawn))
    return [m for turn in turns for m in turn if m], [m for _, spare in drawn for m in spare]


def judge_all(a, tree, drawn, spare, phases):
    """Returns (mutant, verdict, detecting test) of each drawn mutant, and the number of tests used."""
    entries, results, judge = read_equivalents(a.root / EQUIVALENTS), [], Judge(tree, a)
    for number, m in enumerate(drawn + spare, 1):
        m['id'] = number
    every = drawn + spare
    for name in {m['file'] for m in every}:
        original = (tree.root / name).read_bytes().decode('latin-1')
        for m in every:
            if m['file'] == name:
                m['original'] = original
    tree.insert(every)
    check_bits(tree)
    phases.end('build')
    judge.cover(len(every) + 1)
    phases.end('tests without a mutant')

    def note(m, verdict, by):
        if verdict != 'does not compile':
            judge.say(m, verdict, by)
            results.append((m, verdict, by))
        return verdict

    def judge_switched(m):
        if not judge.ended:
            verdict, by, left = judge.judge(m, judge.reaching(m), a.budget)
            if left and a.again:
                unsure.append((m, left))
            else:
                note(m, verdict, by)

    def judge_again(both):
        m, left = both
        note(m, *judge.judge(m, left, 0 if judge.ended else a.again)[:2])

    signal.signal(signal.SIGINT, lambda *_: judge.end())
    unknown, unsure = [], []
    for m in drawn:
        known = known_as(entries, m)
        if known:
            note(m, *known)
        else:
            unknown.append(m)
    with ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(judge_switched, [m for m in unknown if m['kind'] == 'switched']))
        list(pool.map(judge_again, unsure))
    singles = [m for m in unknown if m['kind'] == 'single']
    while singles and not judge.ended:
        m = singles.pop(0)
        if note(m, *judge.judge_single(m)[:2]) == 'does not compile':
            other = next((x for x in spare if room_of(x['file']) == room_of(m['file'])), None)
            if other:
                spare.remove(other)
                singles.append(other)
    phases.end('tests of mutants')
    phases.text.append('of all tests ' + ', '.join(f'{k} {v:.0f} s' for k, v in judge.spent.most_common()))
    return results, len(judge.tests)


def print_table(what, table, end=lambda row: ''):
    width = max(map(len, table))
    print(f'\n{what:{width}} ' + ' '.join(f'{k:>10}' for k in samples.COUNTS))
    for row in sorted(table, key=lambda r: (r == 'all', r)):
        print(f'{row:{width}} ' + ' '.join(f'{table[row][k]:10}' for k in samples.COUNTS) + end(row))


def count_rooms(results):
    table = defaultdict(Counter)
    for m, verdict, _ in results:
        table[room_of(m['file'])][verdict] += 1
    return table


def report_rooms(table):
    """Prints the table by room; returns the rooms that are below their aim."""
    print_table('room', table, lambda row: f'  {samples.percent_caught(table[row]):5.1f} % (aim {ROOMS[row]})')
    return [row for row in table if samples.percent_caught(table[row]) < ROOMS[row]]


def report(results):
    """Prints the table by file; returns the percentage caught of the mutants that are not equivalent."""
    table = defaultdict(Counter)
    for m, verdict, _ in results:
        for row in (m['file'], 'all'):
            table[row][verdict] += 1
    print_table('file', table)
    operators = Counter(m['operator'] for m, _, _ in results)
    print('operators: ' + ', '.join(f'{k} {v}' for k, v in sorted(operators.items())))
    every = table['all']
    print(f'{every["caught"]} of {every["caught"] + every["survived"]} caught ({samples.percent_caught(every):.1f} %); '
          f'equivalent {100 * every["equivalent"] / max(1, len(results)):.1f} % of the sample')
    return samples.percent_caught(every)


def read_arguments():
    p = argparse.ArgumentParser(usage=__doc__.split('\n\n', 1)[1], add_help=False)
    p.add_argument('--help', '-h', action='store_true')
    p.add_argument('--root', type=Path, default=HERE.parent.parent)
    p.add_argument('--room', action='append', default=[])
    p.add_argument('--each', action='store_true')
    p.add_argument('--seed', type=int)
    p.add_argument('--count', default='150')
    p.add_argument('--at-least', type=float, default=0)
    p.add_argument('--jobs', type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument('--budget', type=float, default=180)
    p.add_argument('--again', type=float, default=0)
    p.add_argument('--slack', type=float, default=10)
    p.add_argument('--tests', default='')
    p.add_argument('--longest', type=float)
    for flag in ('--quick', '--check', '--keep', '--samples'):
        p.add_argument(flag, action='store_true')
    a = p.parse_args()
    a.root, a.room = a.root.resolve(), [x.rstrip('/') for x in a.room]
    a.longest = a.longest or (QUICK_S if a.quick else float('inf'))
    a.graders = GRADERS in a.room or a.each and not a.room
    if a.seed is None:
        a.seed = random.SystemRandom().randrange(10 ** 6)
    if not re.fullmatch(r'all|[1-9]\d*', a.count):
        fail(f'--count {a.count}: expected a number from 1, or all')
    return a


def wait_for(child):
    """Returns the exit status of a child that handles Ctrl-C itself."""
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            pass


def main():
    a = read_arguments()
    if a.help:
        print(__doc__)
        return 0
    if a.samples:
        print(samples.table(a.root, ROOMS))
        return 0
    if a.check:
        shown = samples.is_shown(a.root, ROOMS)
        return 1 if check_equivalents(a.root) or not shown else 0
    if not (a.root / 'build' / 'compile_commands.json').exists():
        fail('there is no build in build/: run tests/run.sh first')
    if not sandbox.works():
        skip('this machine allows no namespaces (unshare, ip) or no overlay')
    if os.environ.get('DDPC_MUTANTS_INSIDE') != str(os.getppid()):  # runs this program again, in a mount namespace
        os.environ['DDPC_MUTANTS_INSIDE'] = str(os.getpid())
        inner = ['unshare', '-Urm', sys.executable, __file__, '--seed', str(a.seed)]
        return wait_for(subprocess.Popen(inner + sys.argv[1:]))
    phases, few = Phases(), a.quick and a.count != 'all'
    choose = (lambda names: draw_files(a.root, names, a.seed, a.count)) if few else lambda names: names
    mutants = list_mutants(a.root, a.root / 'build', a.room, choose)
    if a.quick:
        mutants = [m for m in mutants if m['kind'] == 'switched']
    phases.end('list')
    singles = sum(m['kind'] == 'single' for m in mutants)
    drawn, spare = (draw_each if a.each else draw)(mutants, a.seed, a.count)
    print(f'{len(mutants)} mutants, of which {singles} need a build of their own; '
          f'{len(drawn)} drawn with --seed {a.seed}', flush=True)
    folder = os.open(a.root / samples.FOLDER, os.O_RDONLY) if a.keep else None  # of the tree itself, which the copy hides
    with tempfile.TemporaryDirectory() as scratch:
        tree = Tree(a.root, scratch, a.jobs, a.graders)
        results, tests = judge_all(a, tree, drawn, spare, phases)
        os.chdir('/')
    percent, by_room = report(results), count_rooms(results)
    below = report_rooms(by_room) if a.each else []
    for room in by_room if a.keep else ():
        samples.keep(folder, room, a.seed, tests, by_room[room])
    print(phases)
    return 1 if percent < a.at_least or below else 0


if __name__ == '__main__':
    sys.exit(main())
