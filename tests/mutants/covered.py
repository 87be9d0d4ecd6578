#!/usr/bin/env python3
"""covered.py: lists the entries of the hand-written catalogue that a generated operator also makes.

    tests/mutants/covered.py        with the requirements of mutants.sh --generated

An entry is covered if its file has the same tokens, without parentheses, as with some generated mutant, or if it
deletes a check whose condition drop_check makes false. Entries that change two places are never covered.
"""
import sys
from collections import defaultdict

import generated
import schemata


def tokens_of(text):
    words = (m[0] for m in schemata.TOKEN.finditer(text))
    return [w for w in words if not w.startswith(('/*', '//')) and w not in ('(', ')')]


def without_double_not(words):
    return [w for w, following in zip(words, words[1:] + ['']) if not (w == '!' == following)]


def read_catalogue(folder):
    """Returns (room, name, file, [(find, with), ...]) of each entry."""
    for path in sorted(folder.glob('*.txt')):
        entry, key = None, ''
        for line in path.read_text().splitlines():
            if line.startswith('#') or not line.strip():
                continue
            if not line[0].isspace():
                key, _, line = line.partition(':')
                if key == 'mutant':
                    if entry:
                        yield entry
                    entry = dict(room=path.stem, name=line.strip(), find=[], file='')
                    entry['with'] = []
                elif key in ('find', 'with'):
                    entry[key].append('')
            if entry and key == 'file':
                entry['file'] = line.strip()
            elif entry and key in ('find', 'with'):
                entry[key][-1] += ' ' + line.strip()
        if entry:
            yield entry


def replace(words, old, new):
    """Returns the tokens with the sequence `old` replaced, or None."""
    for i in range(len(words) - len(old) + 1):
        if words[i:i + len(old)] == old:
            return words[:i] + new + words[i + len(old):]
    return None


def is_made(entry, text, mutants):
    before = tokens_of(text)
    if len(entry['find']) != 1:
        return None
    by_hand = replace(before, tokens_of(entry['find'][0]), tokens_of((entry['with'] + [''])[0]))
    if by_hand is None or by_hand == before:
        return None
    shorter, by_hand = len(before) - len(by_hand), without_double_not(by_hand)
    for m in mutants:
        at, old, new = (len(tokens_of(text[:m['start']])), tokens_of(m['old']), tokens_of(m['new']))
        if m['operator'] == 'drop_check':  # from `if` to the end of its statement
            if shorter > len(old) and before[at - 1] == 'if' and \
                    by_hand == without_double_not(before[:at - 1] + before[at - 1 + shorter:]):
                return m
        elif without_double_not(before[:at] + new + before[at + len(old):]) == by_hand:
            return m
    return None


def main():
    root = generated.HERE.parent.parent
    mutants = defaultdict(list)
    for m in generated.list_mutants(root, root / 'build', []):
        mutants[m['file']].append(m)
    entries, covered = list(read_catalogue(generated.HERE)), 0
    for entry in entries:
        if entry['room'] == 'equivalence' or not mutants[entry['file']]:
            continue
        text = (root / entry['file']).read_bytes().decode('latin-1')
        m = is_made(entry, text, mutants[entry['file']])
        if m:
            covered += 1
            print(f"{entry['room']:12} {entry['name']:44} {m['operator']}: {m['file']}:{m['line']}")
    print(f'{covered} of {len(entries)} entries are made by a generated operator, too')


if __name__ == '__main__':
    sys.exit(main())
