"""samples.py: the kept samples of judged mutants, one row for each room and seed, in samples.csv."""
import csv
import datetime
import os

FOLDER, FILE = 'tests/mutants', 'samples.csv'
COUNTS = ('caught', 'equivalent', 'speed only', 'survived')
COLUMNS = ('room', 'date', 'seed', 'tests', *COUNTS)


def percent_caught(counts):
    could = int(counts['caught']) + int(counts['survived'])
    return 100 * int(counts['caught']) / could if could else 100


def keep(folder, room, seed, tests, counts):
    """Appends a row to the file in the open folder. tests: the number of tests that judged."""
    row = dict(counts, room=room, date=datetime.date.today().isoformat(), seed=seed, tests=tests)
    with open(FILE, 'a', opener=lambda name, flags: os.open(name, flags, dir_fd=folder)) as file:
        csv.writer(file, lineterminator='\n').writerow(row.get(column, 0) for column in COLUMNS)


def table(root, aims):
    """Returns the kept samples by room, ordered by date, as in README.md's table."""
    with open(root / FOLDER / FILE, newline='') as file:
        rows = list(csv.DictReader(file))
    lines = ['| room | aim | date | seed | tests | caught | equivalent | speed only | survived | % |', '|' + '---|' * 10]
    for room, aim in aims.items():
        for row in (x for x in rows if x['room'] == room):
            cells = [room, str(aim), *(row[x] for x in COLUMNS[1:]), f'{percent_caught(row):.0f}']
            lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def is_shown(root, aims):
    """Returns whether README.md has the current table; prints it if not."""
    shown = table(root, aims) in (root / FOLDER / 'README.md').read_text()
    if not shown:
        print('README.md has another table than tests/mutants.sh --generated --samples prints')
    return shown
