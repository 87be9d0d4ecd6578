#!/usr/bin/env python3
"""find_mutants.py: lists all first-order mutants of C files, as JSON, one per line on stdout.

    find_mutants.py ROOT BUILD FILE...        FILE relative to ROOT; BUILD has compile_commands.json

Two kinds. A *switched* mutant replaces an expression or a statement inside a function: schemata.py
compiles many of them into one build, and a process chooses one at start. A *single* mutant is text
that the compiler needs as a constant (enumerators, array sizes, initialisers, preprocessor lines,
arguments of macros such as CHECK's condition, and everything in a header): it needs its own build.

Switched mutants come from libclang's syntax tree, single ones from the tokens of a region. Without
mutants: case labels, sizeof, static assertions, string literals (thus formats), arguments of
__builtin_ functions, which must be constants, statements whose loss only a reader or a leak
checker could see (NOISE), the last call of a noreturn function (without it the process would run
into the function that the linker placed behind), `return -2` (a status is compared with 0:
tests/lint.sh), a larger array or allocation, and swaps of arguments whose order has no effect
(SYMMETRIC; EQUALITY if it is compared with 0). Needs the PyPI package libclang; its wheel lacks the
compiler's own headers, so the flags in $MUTANTS_HEADERS are added.
"""
import json
import multiprocessing
import os
import re
import shlex
import sys
from pathlib import Path

import clang.cindex as ci
from clang.cindex import CursorKind as K, TypeKind as T

from schemata import TOKEN

RELATIONAL = {'<': ['<=', '>='], '<=': ['<', '>'], '>': ['>=', '<='], '>=': ['>', '<'],
              '==': ['!='], '!=': ['==']}
LOGICAL = {'&&': ['||'], '||': ['&&']}
ARITHMETIC = {'+': ['-'], '-': ['+'], '*': ['/'], '/': ['*'], '%': ['*'], '&': ['|'], '|': ['&'],
              '<<': ['>>'], '>>': ['<<'], '+=': ['-='], '-=': ['+='], '*=': ['/='], '/=': ['*='],
              '|=': ['&='], '&=': ['|=']}
TABLES = (('boundary', RELATIONAL), ('and_or', LOGICAL), ('arithmetic', ARITHMETIC))
ZERO = re.compile(r'(0[.0]*[fuUlL]*|NULL|false|\(\w+\)\{0\}|-1)$')
EQUALITY = ('memcmp', 'strcmp', 'strncmp')
SYMMETRIC = ('memory_grow', 'tensor_same_shape', 'same_shape', 'fmax', 'fmin', 'fmaxf', 'fminf', 'dot', 'buffer_at', 'min_size', 'smaller',
             'larger', 'larger_size', 'is')
NOISE = re.compile(r'(log_|trace_|profile_|v?f?printf|((?!device_)\w+_)?free\b)')
UNUSED = re.compile(r'\(void\)\w+(, \(void\)\w+)*$')  # silences unused parameters
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.M)
DEFINITION = re.compile(r'[ \t]*#[ \t]*(?:define[ \t]+\w+(?:\([^)]*\))?|(?:el)?if\b)')


def without_comments(text):
    """Joins the text to one line, so that __LINE__ stays correct in a file that repeats the text."""
    def keep(match):
        return ' ' if match[0].startswith(('/*', '//')) else match[0]
    return ' '.join(TOKEN.sub(keep, text).split('\n'))


def blank_words(text):
    """The text with spaces for its comments and strings: the other characters stay where they are."""
    return TOKEN.sub(lambda m: ' ' * len(m[0]) if re.match('["\'/].', m[0]) and m[0] != '/=' else m[0], text)


def neighbours(literal):
    """The replacements of a literal: an integer plus and minus 1, a floating-point number plus 1; from a million on,
    where no test detects a difference of 1, twice the number."""
    integer = re.fullmatch(r'(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)', literal)
    if integer:
        value = int(integer[1], 8 if re.match(r'0\d', integer[1]) else 0)
        return [f'{new}{integer[2]}' for new in (value + 1, value - 1) if new >= 0]
    digits = literal.rstrip('fFlL')  # a hexadecimal literal ends with a decimal exponent
    suffix = literal[len(digits):]
    value = float.fromhex(digits) if digits.startswith('0x') else float(digits)
    return [f'({literal} * 2.0{suffix})' if value >= 1e6 else f'({literal} + 1.0{suffix})']


class Source:
    """One file; self.mutants is the list of its mutants."""

    def __init__(self, root, name, flags):
        self.path, self.name = str(Path(root, name)), name
        self.text = Path(self.path).read_bytes().decode('latin-1')  # libclang's offsets are bytes
        self.lines = self.text.split('\n')
        self.mutants, self.bodies, self.function, self.body = [], [], '', None
        self.returns, self.seen = True, set()  # of the function: whether it does
        options = ci.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
        unit = ci.Index.create().parse(self.path, flags, options=options)
        errors = [d for d in unit.diagnostics if d.severity >= ci.Diagnostic.Error
                  and d.location.file and d.location.file.name.startswith(root)]
        if errors:  # a missing library's header, or one of the compiler's own that libclang does not understand
            print(f'left out: {name}: {errors[0].spelling}', file=sys.stderr)
            return
        mine = [c for c in unit.cursor.get_children() if self.is_here(c)]
        self.directives = [m.span() for m in DIRECTIVE.finditer(self.text)]
        self.macros = {self.span(c): c.spelling for c in mine if c.kind == K.MACRO_INSTANTIATION}
        functions = [c for c in mine if c.kind == K.FUNCTION_DECL and c.is_definition()]
        if not name.endswith('.h'):
            self.bodies = [b.extent.start.offset + 1 for c in functions for b in self.body_of(c)]
        self.visit_definitions(mine)
        for start, end in self.directives:
            begin = DEFINITION.match(self.text[start:end])
            if begin:
                self.single_region(start + begin.end(), end)
        for c in functions:
            for body in self.body_of(c):
                self.function, self.body = c.spelling, body.extent.start.offset + 1
                self.returns = 'noreturn' not in c.type.spelling and \
                    '_Noreturn' not in self.text[c.extent.start.offset:self.body]
                self.visit_function(body)

    def body_of(self, function):
        """The function's body in a list; empty for a prototype and for a function that a macro defines."""
        return [c for c in function.get_children() if c.kind == K.COMPOUND_STMT
                and self.text[c.extent.start.offset:c.extent.start.offset + 1] == '{']

    def is_here(self, c):
        return c.extent.start.file is not None and c.extent.start.file.name == self.path

    @staticmethod
    def span(c):
        return c.extent.start.offset, c.extent.end.offset

    def text_of(self, c):
        start, end = self.span(c)
        return self.text[start:end]

    def in_macro(self, c):
        """Whether an edge of c is inside a macro's use, or c contains a directive: such text cannot be repeated."""
        start, end = self.span(c)
        if not self.is_here(c) or start >= end:
            return True
        for a, b in self.macros:
            if a <= start < b and not (start == a and end > b) or \
                    a < end <= b and not (start < a and end == b):
                return True
        return any(a < end and start < b for a, b in self.directives)

    # ---- noting a mutant

    def add(self, start, end, operator, new, **more):
        if (start, end, new, operator) in self.seen:
            return
        self.seen.add((start, end, new, operator))
        line = self.text.count('\n', 0, start)
        self.mutants.append(dict(
            file=self.name, line=line + 1, function=self.function, operator=operator,
            text=' '.join(self.lines[line].split()), old=' '.join(self.text[start:end].split()),
            new=without_comments(new or ''), start=start, end=end, kind=more.pop('kind', 'switched'), **more))

    def single(self, start, end, operator, new):
        probes = [self.body] if self.body else self.bodies
        self.add(start, end, operator, new, kind='single', probes=probes)

    def single_region(self, start, end, smaller_only=False):
        """The mutants of a region's tokens. (A larger array is equivalent.)"""
        tokens = [m for m in TOKEN.finditer(self.text, start, end)
                  if not m[0].startswith(('/*', '//', '\\'))]
        for i, token in enumerate(tokens):
            word, before = token[0], tokens[i - 1][0] if i else ''
            if word[0].isdigit():
                for new in neighbours(word)[smaller_only:]:
                    self.single(*token.span(), 'constant', new)
            elif word in ('true', 'false'):
                self.single(*token.span(), 'constant', 'false' if word == 'true' else 'true')
            elif word == '!':
                self.single(*token.span(), 'drop_not', '')
            binary = re.match(r'[\w)\]]', before) and not re.match(r'[)*,]', tokens[i + 1][0]) \
                if i + 1 < len(tokens) else False
            for operator, table in TABLES:
                for new in table.get(word, []) if binary else []:
                    self.single(*token.span(), operator, new)

    # ---- what needs a build of its own

    def visit_definitions(self, cursors):
        outer_end = 0
        for (start, end), name in sorted(self.macros.items()):
            inside = self.text[start:end]
            if start >= outer_end and '(' in inside and not name.startswith('va_'):
                outer_end = end
                first = inside.index('(')
                last = self.end_of_argument(inside, first + 1) if name == 'CHECK' else len(inside)
                self.in_function_of(start, cursors)
                self.single_region(start + first, start + last)
        for c in cursors:
            self.function, self.body = '', None
            if c.kind == K.FUNCTION_DECL and c.is_definition():
                self.in_function_of(c.extent.start.offset, cursors)
                for body in self.body_of(c) if self.name.endswith('.h') else []:
                    self.single_region(*self.span(body))
            self.visit_definition(c)
        self.function, self.body = '', None

    def in_function_of(self, offset, cursors):
        self.function, self.body = '', None
        for c in cursors:
            if c.kind == K.FUNCTION_DECL and c.extent.start.offset <= offset < c.extent.end.offset:
                self.function = c.spelling
                for body in self.body_of(c) if not self.name.endswith('.h') else []:
                    self.body = body.extent.start.offset + 1

    @staticmethod
    def end_of_argument(text, at):
        depth = 0
        for token in TOKEN.finditer(text, at):
            if token[0] == ',' and depth == 0:
                return token.start()
            depth += (token[0] in '([{') - (token[0] in ')]}')
        return len(text)

    def visit_definition(self, c):
        start, end = self.span(c)
        if c.kind == K.STATIC_ASSERT:
            return
        if c.kind == K.ENUM_DECL:
            self.single_region(start, end)
            return
        if c.kind in (K.VAR_DECL, K.FIELD_DECL):
            declared = blank_words(self.text[start:end])
            equals = declared.find('=')
            for size in re.finditer(r'\[([^\]]+)\]', declared[:equals] if equals >= 0 else declared):
                self.single_region(start + size.start(1), start + size.end(1), smaller_only=True)
            constant = not self.body or c.storage_class == ci.StorageClass.STATIC
            if constant and equals >= 0 and c.kind == K.VAR_DECL:
                self.single_region(start + equals + 1, end)
        for child in c.get_children():
            self.visit_definition(child)

    # ---- what can be switched: the syntax tree of a function

    def visit_function(self, c, parent=None):
        if self.name.endswith('.h'):
            return
        kind, children = c.kind, list(c.get_children())
        if kind in (K.CXX_UNARY_EXPR, K.TYPE_REF, K.ENUM_DECL, K.STRUCT_DECL, K.UNION_DECL,
                    K.STATIC_ASSERT, K.TYPEDEF_DECL) or kind.is_attribute():
            return
        if kind == K.VAR_DECL:
            children = self.initialiser(c, children)
        if kind.is_expression() and kind not in (K.INIT_LIST_EXPR, K.COMPOUND_LITERAL_EXPR) and \
                self.in_macro(c) and self.text_of(c) not in ('true', 'false'):
            return
        if kind == K.INIT_LIST_EXPR and re.fullmatch(r'\{\s*0?\s*\}', self.text_of(c)):
            return
        if kind == K.UNEXPOSED_EXPR and self.text_of(c).startswith('['):  # [designator] = value
            children = children[-1:]
        if kind in (K.CALL_EXPR, K.UNEXPOSED_EXPR) and re.match(r'__(builtin|atomic|sync)_', self.text_of(c)):
            return
        if kind == K.CASE_STMT:
            self.deletion(children[-1])
            children = children[1:]
        else:
            self.mutate(c, kind, children, parent)
        for child in children:
            self.visit_function(child, c)

    def initialiser(self, c, children):
        constant = c.storage_class in (ci.StorageClass.STATIC, ci.StorageClass.EXTERN)
        last = children[-1] if children and not constant else None
        if last is None or not last.kind.is_expression():
            return []
        return [last] if '=' in self.text[c.location.offset:last.extent.start.offset] else []

    def mutate(self, c, kind, children, parent):
        if kind == K.COMPOUND_STMT:
            for child in children if self.returns or parent else children[:-1]:
                self.deletion(child)
        elif kind == K.IF_STMT:
            for child in children[1:]:
                self.deletion(child)
            self.condition(children[0], len(children) == 2 and self.leaves_function(children[1]))
        elif kind in (K.WHILE_STMT, K.FOR_STMT, K.LABEL_STMT, K.DEFAULT_STMT) and children:
            self.deletion(children[-1])
        elif kind == K.CONDITIONAL_OPERATOR:
            self.condition(children[0])
        elif kind in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            self.binary(c, children)
        elif kind == K.UNARY_OPERATOR and self.text_of(c).startswith('!'):
            self.add(*self.span(c), 'drop_not', f'!!({self.text_of(children[0])})')
        elif kind == K.CALL_EXPR and not NOISE.match(self.text_of(c)):
            self.swap(c)
        elif kind in (K.INTEGER_LITERAL, K.FLOATING_LITERAL):
            self.literal(c, parent)

    def literal(self, c, parent):
        word = self.text_of(c)
        if word in ('true', 'false'):
            self.add(*self.span(c), 'constant', '0' if word == 'true' else '1')
        elif not self.in_macro(c) and not (parent and parent.type.get_canonical().kind == T.POINTER):
            before = self.text[:self.span(c)[0]][-200:]
            smaller_only = re.search(r'((\breturn|[?] 0 :) -|\bmemory_(zalloc|grow)\([^;]*\+ )$', before)
            for new in neighbours(word)[1 if smaller_only else 0:]:
                self.add(*self.span(c), 'constant', new)

    def binary(self, c, children):
        (start, end), left, right = self.span(c), *children
        a, b = left.extent.end.offset, right.extent.start.offset
        word = without_comments(self.text[a:b]).strip()
        types = [x.type.get_canonical().kind for x in children]
        pointers = [t in (T.POINTER, T.INCOMPLETEARRAY, T.CONSTANTARRAY) for t in types]
        for operator, table in TABLES:
            if operator == 'arithmetic' and pointers[1]:
                continue
            for new in table.get(word, []):
                changed = self.text[a:b].replace(word, new, 1)
                self.add(start, end, operator, self.text[start:a] + changed + self.text[b:end])
        if word in LOGICAL:
            self.condition(left)
            self.condition(right)

    def condition(self, c, checks_error=False):
        """Makes c true or false. The opposite of a comparison is among the boundary mutants, and ! is dropped."""
        if self.in_macro(c):
            return
        inner = c
        while inner.kind in (K.UNEXPOSED_EXPR, K.PAREN_EXPR) and len(list(inner.get_children())) == 1:
            inner = next(inner.get_children())
        (start, end), text = self.span(c), self.text_of(c)
        if checks_error:
            self.add(start, end, 'drop_check', f'(({text}), 0)', truth=True)
        if inner.kind != K.BINARY_OPERATOR and not self.text_of(inner).startswith('!'):
            self.add(start, end, 'negate', f'!({text})', truth=True)

    def leaves_function(self, c):
        if c.kind in (K.RETURN_STMT, K.GOTO_STMT, K.BREAK_STMT, K.CONTINUE_STMT):
            return True
        children = list(c.get_children())
        return c.kind == K.COMPOUND_STMT and bool(children) and self.leaves_function(children[-1])

    def deletion(self, c):
        """Drops a statement: a call or an assignment."""
        inner = c
        while inner.kind in (K.CSTYLE_CAST_EXPR, K.UNEXPOSED_EXPR) and list(inner.get_children()):
            inner = list(inner.get_children())[-1]
        (start, end), text = self.span(c), self.text_of(inner)
        semicolon = re.compile(r'\s*;').match(self.text, end)
        if inner.kind not in (K.CALL_EXPR, K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR,
                              K.UNARY_OPERATOR) or self.in_macro(c) or not semicolon:
            return
        if UNUSED.match(text):
            return
        if inner.kind == K.CALL_EXPR and (NOISE.match(text) or text.startswith('va_')):
            return
        value = text.split('=', 1)[1].strip() if inner.kind == K.BINARY_OPERATOR and '=' in text else ''
        reset = text.startswith('memset') or ZERO.match(value)
        self.add(start, semicolon.end(), 'drop_reset' if reset else 'delete', None, statement=True)

    def swap(self, c):
        """Swaps neighbouring arguments of one type (not of variadic functions, because of their formats)."""
        args, callee = list(c.get_arguments()), next(iter(c.get_children()), None)
        kind = callee.type.get_canonical() if callee is not None else None
        if kind is not None and kind.kind == T.POINTER:
            kind = kind.get_pointee()
        if kind is None or kind.kind != T.FUNCTIONPROTO or kind.is_function_variadic():
            return
        types = [t.get_canonical().spelling for t in kind.argument_types()]
        (start, end), text = self.span(c), self.text
        if c.spelling in SYMMETRIC or c.spelling in EQUALITY and \
                re.match(r'\s*[!=]= 0', self.text[end:end + 9]):
            return
        for a, b, type_a, type_b in zip(args, args[1:], types, types[1:]):
            if type_a != type_b or self.in_macro(a) or self.in_macro(b) or \
                    self.text_of(a) == self.text_of(b):
                continue
            (a0, a1), (b0, b1) = self.span(a), self.span(b)
            if start <= a0 < a1 <= b0 < b1 <= end:
                swapped = text[start:a0] + text[b0:b1] + text[a1:b0] + text[a0:a1] + text[b1:end]
                self.add(start, end, 'swap', swapped)


def flags_by_file(root, build):
    """Returns {file relative to root: flags for libclang}."""
    table = {}
    for entry in json.loads(Path(build, 'compile_commands.json').read_text()):
        words, flags = shlex.split(entry['command']), []
        for word, following in zip(words, words[1:] + ['']):
            if word in ('-I', '-isystem', '-D', '-include'):
                flags += [word, following]
            elif word.startswith(('-I', '-D', '-std=', '-U')):
                flags.append(word)
        path = os.path.relpath(os.path.join(entry['directory'], entry['file']), root)
        table.setdefault(path, flags + shlex.split(os.environ.get('MUTANTS_HEADERS', '')))
    return table


def mutants_of(job):
    root, name, flags = job
    return Source(root, name, flags).mutants


def main():
    root, build, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    table = flags_by_file(root, build)
    jobs = []
    for name in names:
        if name.endswith('.h'):  # a header has the flags of a source file in its folder
            beside = [x for x in sorted(table) if os.path.dirname(x) == os.path.dirname(name)]
            flags = ['-xc'] + table[beside[0]] if beside else None
        else:
            flags = table.get(name)
        if flags:
            jobs.append((root, name, flags))
    with multiprocessing.Pool() as pool:
        for mutants in pool.imap(mutants_of, jobs):
            for mutant in mutants:
                print(json.dumps(mutant))


if __name__ == '__main__':
    main()
