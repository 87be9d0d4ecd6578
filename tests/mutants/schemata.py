"""schemata.py: inserts mutants into C files, so that one build holds many (mutant schemata).

A switched mutant becomes a branch on a number that every process reads once, at start, from
$DDPC_MUTANT: `(mutant_(17) ? (a <= b) : (a < b))`, `{ if (!mutant_(18)) { f(x); } }`. A process
without that variable runs the program as it was written. If $DDPC_MUTANT_COVER names a file, byte N
of it becomes 1 when mutant N is reached; the mapping is shared, so a rank that is killed counts, too.
A single mutant has no branch here; its probes only note that its function was called.
"""
import mmap
import os
import re

# A token or a comment of C.
TOKEN = re.compile(r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|/\*.*?\*/|//[^\n]*|[A-Za-z_]\w*'''
                   r'''|\.?\d(?:[eEpP][-+]|[\w.])*|<<=?|>>=?|->|\+\+|--|&&|\|\||[-+*/%<>=!&|]=?|\S''', re.S)

# Stands at the top of each file. It includes no header: a file may have names of its own that a header declares, such
# as `open`; __open and __close are the C library's second names.
PRELUDE = '''extern char *mutant_getenv_(const char *) __asm__("getenv");
extern int mutant_atoi_(const char *) __asm__("atoi");
extern int mutant_open_(const char *, int, ...) __asm__("__open");
extern void *mutant_mmap_(void *, unsigned long, int, int, int, long) __asm__("mmap");
extern int mutant_close_(int) __asm__("__close");
static int mutant_chosen_ = 0;
static volatile unsigned char *mutant_map_ = 0;
__attribute__((constructor(101))) static void mutant_start_(void) {
    const char *id = mutant_getenv_("DDPC_MUTANT");
    const char *cover = mutant_getenv_("DDPC_MUTANT_COVER");
    mutant_chosen_ = id ? mutant_atoi_(id) : 0;
    int file = cover ? mutant_open_(cover, @O_RDWR@ | @O_CLOEXEC@) : -1;
    if (file < 0) return;
    void *map = mutant_mmap_(0, @SIZE@, @PROT_READ@ | @PROT_WRITE@, @MAP_SHARED@, file, 0);
    if (map != (void *)-1) mutant_map_ = map;
    mutant_close_(file);
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
    """Returns the file's text with branches for its mutants, whose ids are below size."""
    prelude = PRELUDE.replace('@SIZE@', str(size)).replace('@FILE@', str(path))
    for module in os, mmap:
        prelude = re.sub('@((O|PROT|MAP)_[A-Z]+)@', lambda m: str(getattr(module, m[1], m[0])), prelude)
    return prelude + compose(text, 0, len(text), nested(points_of(mutants)))


def plant(text, mutant):
    """Returns the file's text with one single mutant in place of the original."""
    return text[:mutant['start']] + mutant['new'] + text[mutant['end']:]
