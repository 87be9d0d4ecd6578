"""schemata.py: inserts mutants into C files, so that one build holds many (mutant schemata).

A switched mutant becomes a branch on a number that every process reads once, at start, from
$DDPC_MUTANT: `(mutant_(17) ? (a <= b) : (a < b))`, `{ if (!mutant_(18)) { f(x); } }`. A process
without that variable runs the program as it was written. If $DDPC_MUTANT_COVER names a file, byte N
of it becomes 1 when mutant N is reached; the mapping is shared, so a rank that is killed counts, too.
A single mutant has no branch here; its probes only note that its function was called.
"""
import re

# A token or a comment of C.
TOKEN = re.compile(r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|/\*.*?\*/|//[^\n]*|[A-Za-z_]\w*'''
                   r'''|\.?\d(?:[eEpP][-+]|[\w.])*|<<=?|>>=?|->|\+\+|--|&&|\|\||[-+*/%<>=!&|]=?|\S''', re.S)

PRELUDE = '''#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static int mutant_chosen_ = 0;
static volatile unsigned char *mutant_map_ = 0;
__attribute__((constructor(101))) static void mutant_start_(void) {
    const char *id = getenv("DDPC_MUTANT"), *cover = getenv("DDPC_MUTANT_COVER");
    mutant_chosen_ = id ? atoi(id) : 0;
    int file = cover ? open(cover, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(0, @SIZE@, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) mutant_map_ = map;
    close(file);
}
__attribute__((unused)) static inline int mutant_(int id) {
    if (__builtin_expect(mutant_map_ != 0, 0)) mutant_map_[id] = 1;
    return mutant_chosen_ == id;
}
#line 1 "@FILE@"
'''


class Point:
    """A piece of text with branches; mutants of its parts are inside the last branch."""

    def __init__(self, start, end):
        self.start, self.end = start, end
        self.alternatives, self.deleted_by, self.truth, self.inside = [], [], False, []


def points_of(mutants):
    points = {}
    for m in mutants:
        if m['kind'] == 'single':
            for at in m['probes']:
                points.setdefault((at, at, False), Point(at, at)).alternatives.append((m['id'], ''))
            continue
        statement = m.get('statement', False)
        point = points.setdefault((m['start'], m['end'], statement), Point(m['start'], m['end']))
        if statement:
            point.deleted_by.append(m['id'])
        else:
            point.alternatives.append((m['id'], m['new']))
            point.truth = point.truth or m.get('truth', False)
    return sorted(points.values(), key=lambda p: (p.start, p.end > p.start, -p.end, not p.deleted_by))


def nested(points):
    top, stack = [], []
    for point in points:
        while stack and not (point.start >= stack[-1].start and point.end <= stack[-1].end):
            stack.pop()
        (stack[-1].inside if stack else top).append(point)
        if point.end > point.start:
            stack.append(point)
    return top


def compose(text, start, end, points):
    out, at = [], start
    for p in points:
        out.append(text[at:p.start])
        inner = compose(text, p.start, p.end, p.inside)
        if p.start == p.end:
            out += [f' (void)mutant_({number});' for number, _ in p.alternatives]
        elif p.deleted_by:
            chosen = ' || '.join(f'mutant_({number})' for number in p.deleted_by)
            out.append(f'{{ if (!({chosen})) {{ {inner} }} }}')
        else:
            branches = ''.join(f'mutant_({number}) ? ({new}) : ' for number, new in p.alternatives)
            out.append(f'({branches}{"!!" if p.truth else ""}({inner}))')
        at = p.end
    return ''.join(out) + text[at:end]


def insert(text, path, mutants, size):
    """The text of the file with branches for its mutants, whose ids are below size."""
    prelude = PRELUDE.replace('@SIZE@', str(size)).replace('@FILE@', str(path))
    return prelude + compose(text, 0, len(text), nested(points_of(mutants)))


def plant(text, mutant):
    """The text of the file with a single mutant instead."""
    return text[:mutant['start']] + mutant['new'] + text[mutant['end']:]
