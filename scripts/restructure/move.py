#!/usr/bin/env python3
"""Moves modules and symbols as map.tsv says, and rewrites all that names them.

    python scripts/restructure/move.py [--repo DIR] [--only QUESTION ...] [--stage prepare|move|finish|all]

Run it from a clean tree with the repository's own .venv (ruff, and Python >= 3.11). Rows of map.tsv:

    module  OLD  NEW                 every symbol of OLD goes to NEW
    symbol  OLD  NEW  a,b,c          these symbols go to NEW instead
    maybe   OLD  NEW  a,b,c           the same, where there are such
    rename  OLD  a=b,c=d             names that clash, or become public
    package NEW  docstring           __init__.py of a new package
    doc     NEW  docstring           first docstring of a module made of several
    file    OLD  NEW                 any other file (assets, tests)
    drop    OLD                      an __init__.py that ends
    text    FILE OLD NEW             words in pages that no rule finds
"""
from __future__ import annotations
import argparse, ast, re, shutil, subprocess, symtable, sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent

def sh(*a, **k): return subprocess.run(a, check=True, **k)

# ---------------------------------------------------------------- the map
class Map:
    def __init__(self, path, only):
        self.modules, self.symbols, self.renames = {}, {}, {}
        self.packages, self.docs, self.files, self.drops, self.texts = {}, {}, [], [], []
        self.order = []; self.says = []; self.maybe = {}
        self.only = only
        for n, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith('#'): continue
            c = line.split('\t')
            match c[0]:
                case 'module':
                    self.order.append((c[1], c[2]))
                    self.modules[c[1]] = c[2]
                case 'symbol':
                    self.order.append((c[1], c[2]))
                    for s in c[3].split(','): self.symbols[c[1], s.strip()] = c[2]
                case 'maybe':
                    for s in c[3].split(','): self.maybe[c[1], s.strip()] = c[2]
                    self.order.append((c[1], c[2]))
                case 'rename':
                    for p in c[2].split(','):
                        a, b = p.strip().split('='); self.renames[c[1], a] = b
                case 'package':
                    self.packages[c[1]] = c[2]
                case 'says': self.says.append((c[1], c[2], c[3]))
                case 'doc': self.docs[c[1]] = c[2].replace('\\n', '\n')
                case 'file':
                    self.files.append((c[1], c[2]))
                case 'drop': self.drops.append(c[1])
                case 'text': self.texts.append(tuple(x.replace('\\n', '\n') for x in c[1:4]))
                case _: sys.exit(f'map.tsv:{n}: {line}')

    def now(self, new):
        """Whether what goes to a new module goes in this stage."""
        return not self.only or question(new) in self.only

def question(mod):
    """The stage of a new module: its question, or the package that it lies in."""
    p = mod.split('.')
    return p[2] if p[:2] == ['collscope', 'reports'] and len(p) > 2 else p[0] if p[0] == 'tests' else p[1]

# ---------------------------------------------------------------- source of one module
def mod_path(repo, mod):
    return (repo / Path(*mod.split('.'))).with_suffix('.py')

class Segment:
    def __init__(s, text, node, names, src): s.text, s.node, s.names, s.src = text, node, names, src

def bound(node):
    """Names a top-level statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)): return [node.name]
    if isinstance(node, ast.Assign):
        return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(node, ast.AnnAssign): return [node.target.id]
    if isinstance(node, ast.AugAssign): return []
    return []

class Source:
    def __init__(self, mod, text):
        self.mod, self.text = mod, text
        self.tree = ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.doc = None; self.imports = {}; self.segments = []; self.future = False
        prev = 0
        body = self.tree.body
        for i, n in enumerate(body):
            start = n.lineno - 1
            if getattr(n, 'decorator_list', None): start = min(d.lineno for d in n.decorator_list) - 1
            end = n.end_lineno
            lead = ''.join(self.lines[prev:start]); raw = ''.join(self.lines[start:end]); prev = end
            if i == 0 and isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) and isinstance(n.value.value, str):
                self.doc = raw.rstrip('\n'); continue
            if isinstance(n, ast.ImportFrom) and n.module == '__future__': self.future = True; continue
            if isinstance(n, (ast.Import, ast.ImportFrom)):
                self.bind(n, False, lead, raw); continue
            if isinstance(n, ast.If) and isinstance(n.test, ast.Name) and n.test.id == 'TYPE_CHECKING' and not n.orelse:
                assert all(isinstance(m, (ast.Import, ast.ImportFrom)) for m in n.body), (mod, n.lineno)
                for m in n.body: self.bind(m, True, '', ''.join(self.lines[m.lineno-1:m.end_lineno]))
                self.tc_comment = lead.strip()
                continue
            self.segments.append(Segment(lead.lstrip('\n') + raw if lead.strip() else raw, n, bound(n), self)); self.segments[-1].gap = lead.startswith('\n')
        tail = ''.join(self.lines[prev:])
        if tail.strip() and self.segments: self.segments[-1].text += tail.rstrip('\n') + '\n'
        self.defs = {name: s for s in self.segments for name in s.names}
    def bind(self, n, tc, lead, raw):
        noqa = re.search(r'#\s*(noqa|type:)[^\n]*', raw)
        comment = ''.join(l for l in lead.splitlines(True) if l.lstrip().startswith('#'))
        for a in n.names:
            if isinstance(n, ast.Import):
                local = a.asname or a.name.split('.')[0]
                self.imports[local] = dict(kind='import', module=a.name, name=None, asname=a.asname, tc=tc, noqa=noqa and noqa.group(0), comment=comment)
            else:
                local = a.asname or a.name
                self.imports[local] = dict(kind='from', module=n.module, name=a.name, asname=a.asname, tc=tc, noqa=noqa and noqa.group(0), comment=comment)
            comment = ''

def used(node):
    """Names of the module that a statement uses: free ones, those of annotations, quoted types."""
    names = set()
    def table(t, top):
        for sym in t.get_symbols():
            if sym.is_referenced() and (top or sym.is_global()): names.add(sym.get_name())
        for child in t.get_children(): table(child, False)
    table(symtable.symtable(ast.unparse(node), '<segment>', 'exec'), True)
    for n in ast.walk(node):
        for a in (getattr(n, 'annotation', None), getattr(n, 'returns', None)):
            if isinstance(a, ast.AST):
                names |= {m.id for m in ast.walk(a) if isinstance(m, ast.Name)}
                for m in ast.walk(a):
                    if isinstance(m, ast.Constant) and isinstance(m.value, str): names |= words_of(m.value)
        if isinstance(n, ast.Subscript):
            for m in ast.walk(n.slice):
                if isinstance(m, ast.Constant) and isinstance(m.value, str): names |= words_of(m.value)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ('cast', 'TypeVar'):
            for m in [*n.args[:1], *(k.value for k in n.keywords if k.arg == 'bound')]:
                if isinstance(m, ast.Constant) and isinstance(m.value, str): names |= words_of(m.value)
    return names

def words_of(text):
    try: t = ast.parse(text, mode='eval')
    except SyntaxError: return set()
    return {n.id for n in ast.walk(t) if isinstance(n, ast.Name)}

# ---------------------------------------------------------------- the world
class World:
    def __init__(self, repo, m):
        self.repo, self.m = repo, m
        self.sources = {}
        touched = set(m.modules) | {o for o, _ in m.symbols}
        for mod in touched:
            p = (repo / Path(*mod.split('.'))).with_suffix('.py')
            if p.exists(): self.sources[mod] = Source(mod, p.read_text())
        for (o, s), t in m.maybe.items():
            if o in self.sources and s in self.sources[o].defs: m.symbols[o, s] = t
        moved = []
        for o, s in m.symbols:
            if o in self.sources and s not in self.sources[o].defs:
                new = self.m.renames.get((o, s), s)
                there = mod_path(repo, m.symbols[o, s])
                if there.exists() and re.search(rf'\b{new}\b', there.read_text()): moved.append((o, s)); continue
                sys.exit(f'map: {o} has no symbol {s} (renamed meanwhile?); it has {sorted(self.sources[o].defs)}')
        for key in moved: m.symbols.pop(key)
        for (o, s), t in list(m.symbols.items()):   # names of one statement go together
            if o in self.sources:
                for other in self.sources[o].defs[s].names: m.symbols.setdefault((o, other), t)
        targets = {self.default(o) for o in self.sources} | {t for (o, _), t in m.symbols.items() if o in self.sources and m.now(t)}
        for t in targets:                    # a target that stands already: its own source
            if t not in self.sources and mod_path(repo, t).exists():
                self.sources[t] = Source(t, mod_path(repo, t).read_text())
        self.targets = targets
        self.auto = {}
        for mod in touched & set(self.sources): self.route_private(mod)
    def default(self, mod):
        to = self.m.modules.get(mod, mod)
        return to if self.m.now(to) else mod
    def route_private(self, mod):
        """Private helpers of a module that is split go where all that use them go."""
        src = self.sources[mod]
        if not any(o == mod for o, _ in self.m.symbols): return
        users = defaultdict(set)
        for s in src.segments:
            for n in used(s.node) & set(src.defs):
                if n not in s.names: users[n].add(s.names[0] if s.names else None)
        free = {n for n in src.defs if n.startswith('_') and (mod, n) not in self.m.symbols}
        # one statement, one target: names of a tuple go together
        unknown = set(free)
        home = self.m.modules.get(mod, mod)
        place = lambda n: self.auto.get((mod, n)) or self.m.symbols.get((mod, n)) or home
        changed = True
        while changed:
            changed = False
            for n in sorted(unknown):
                group = set(src.defs[n].names)
                us = set().union(*(users[g] for g in group)) - group
                if not us or any(u in unknown for u in us): continue
                tos = {place(u) if u else home for u in us}
                if len(tos) == 1:
                    for g in group: self.auto[mod, g] = next(iter(tos)); unknown.discard(g)
                else:
                    for g in group: unknown.discard(g)
                    print(f'  shared: {mod}.{n} is used in {sorted(t.removeprefix("collscope.reports.") for t in tos)}, stays in {home.removeprefix("collscope.reports.")}')
                changed = True; break
    def where(self, mod, name):
        """New module of a symbol of an old module."""
        to = self.m.symbols.get((mod, name)) or self.auto.get((mod, name)) or self.m.modules.get(mod, mod)
        return to if self.m.now(to) else mod
    def called(self, mod, name):
        """Its name after the move."""
        return self.m.renames.get((mod, name), name) if self.where(mod, name) != mod else name
    def resolve(self, mod, name):
        """(module, name) as they are after the move; follows re-exports through sources."""
        if mod in self.sources:
            s = self.sources[mod]
            if name in s.defs: return self.where(mod, name), self.called(mod, name)
            if name in s.imports and s.imports[name]['kind'] == 'from':
                i = s.imports[name]
                return self.resolve(i['module'], i['name'])
        return mod, name
    def module_of(self, full):
        """New name of an old module, or None where it is no module that moves."""
        if full in self.m.modules and full in self.sources and self.default(full) != full: return self.default(full)
        return None

def rename_text(text, mapping, offset_node=None):
    """Renames Name loads/stores and definitions in a piece of source."""
    if not mapping: return text
    dedented = text
    tree = ast.parse(dedented)
    lines = dedented.splitlines(keepends=True)
    edits = []
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) and n.id in mapping:
            edits.append((n.lineno, n.col_offset, n.id))
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name in mapping:
            line = lines[n.lineno - 1]
            col = len(line[:line.index(n.name, n.col_offset + 4)].encode())
            edits.append((n.lineno, col, n.name))
        elif isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value in mapping and n.value[:1].isupper() and not n.value.isupper():
            edits.append((n.lineno, n.col_offset + 1, n.value))
        elif isinstance(n, ast.arg) and n.arg in mapping:
            sys.exit(f'rename: argument {n.arg} has the name that is renamed; choose another way\n{text[:200]}')
    if edits:
        stores = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        hit = {old: new for old, new in mapping.items() if new in stores and any(e[2] == old for e in edits) and old not in stores}
        if hit: sys.exit(f'rename: {hit}: the new name is that of a local variable; choose another')
    for lineno, col, name in sorted(set(edits), reverse=True):
        raw = lines[lineno-1].encode()
        assert raw[col:col+len(name)] == name.encode(), (lines[lineno-1], name)
        lines[lineno-1] = (raw[:col] + mapping[name].encode() + raw[col+len(name):]).decode()
    out = ''.join(lines)
    for old, new in mapping.items():          # names in docstrings and comments: `old`
        out = re.sub(rf'`{re.escape(old)}`', f'`{new}`', out)
    return out

def line_of_import(module, name, asname, noqa):
    text = f'from {module} import {name}' + (f' as {asname}' if asname and asname != name else '')
    return text + (f'  {noqa}' if noqa else '')

# ---------------------------------------------------------------- imports in any file
def rewrite_imports(world, text, mod, scope_offset=False):
    """All `from/import` statements of a file, at any depth, as they are after the move."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    edits, renames = [], {}
    all_mods = world.sources
    packages = {m.rsplit('.', 1)[0] for m in all_mods}
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.level == 0 and n.module:
            if n.module not in all_mods and not any(f'{n.module}.{a.name}' in world.m.modules for a in n.names): continue
            new, changed = [], False
            for a in n.names:
                full = f'{n.module}.{a.name}'
                to = world.module_of(full)
                if to and to != full:
                    pkg, last = to.rsplit('.', 1)
                    local = a.asname or a.name
                    new.append((pkg, last, None if local == last else local)); changed = True
                elif n.module in all_mods:
                    m2, name2 = world.resolve(n.module, a.name)
                    if (m2, name2) != (n.module, a.name): changed = True
                    if name2 != a.name and not a.asname: renames[a.name] = name2
                    new.append((m2, name2, a.asname))
                else: new.append((n.module, a.name, a.asname))
            if not changed: continue
            raw = ''.join(lines[n.lineno-1:n.end_lineno])
            noqa = re.search(r'#\s*noqa[^\n]*', raw)
            indent = raw[:len(raw)-len(raw.lstrip())]
            groups = defaultdict(list)
            for m2, n2, as2 in new:
                if m2 == mod: continue     # now of this very module
                groups[m2].append(n2 + (f' as {as2}' if as2 and as2 != n2 else ''))
            stmts = []
            for m2, names in groups.items():
                one = f'{indent}from {m2} import {", ".join(names)}'
                tail = f'  {noqa.group(0)}' if noqa else ''
                if len(one) + len(tail) > 100:
                    one = f'{indent}from {m2} import ({tail}\n' + ''.join(f'{indent}    {x},\n' for x in names) + f'{indent})'
                    tail = ''
                stmts.append(one + tail + '\n')
            if not stmts: stmts = [f'{indent}pass\n'] if False else []
            edits.append((n.lineno-1, n.end_lineno, ''.join(stmts)))
        elif isinstance(n, ast.Import):
            for a in n.names:
                to = world.module_of(a.name)
                if to and to != a.name:
                    raw = ''.join(lines[n.lineno-1:n.end_lineno])
                    edits.append((n.lineno-1, n.end_lineno, raw.replace(a.name, to)))
                    renames_attr = (a.name, to)
                    if not a.asname: raise SystemExit(f'{mod}: import {a.name} without as')
    for s, e, new in sorted(edits, reverse=True): lines[s:e] = [new]
    return ''.join(lines), renames, bool(edits)

def deferred(world, text, mod):
    out, renames, _ = rewrite_imports(world, text, mod)
    return rename_text(out, renames)

# ---------------------------------------------------------------- build a target
def build_target(world, target, parts):
    """Text of a new module: parts are (Source, [Segment])."""
    m = world.m
    multiple = len(parts) > 1
    runtime, checking, comments = {}, {}, {}
    bodies, defined = [], {}
    for src, segs in parts:
        ren = {name for name in src.defs if world.called(src.mod, name) != name}
        need = set()
        for s in segs: need |= used(s.node)
        local_ren = {}
        for name in sorted(need | ren):
            if name in src.defs:
                to, new = world.resolve(src.mod, name)
                if new != name: local_ren[name] = new
                if to != target and name in need:
                    runtime[new] = (('from', to, new, None), None)
            elif name in src.imports:
                i = src.imports[name]
                where = checking if i['tc'] else runtime
                if i['kind'] == 'import':
                    where[name] = (('import', i['module'], None, i['asname']), i['noqa'])
                else:
                    full = f"{i['module']}.{i['name']}"
                    to = world.module_of(full)
                    if to and to != full:
                        pkg, last = to.rsplit('.', 1)
                        where[name] = (('from', pkg, last, None if last == name else name), i['noqa'])
                    else:
                        m2, n2 = world.resolve(i['module'], i['name'])
                        if m2 == target:
                            if name != n2: local_ren[name] = n2
                            continue
                        if n2 != i['name'] and not i['asname']:
                            local_ren[name] = n2
                            where[n2] = (('from', m2, n2, None), i['noqa'])
                        else:
                            where[name] = (('from', m2, n2, i['asname']), i['noqa'])
                if i['comment']: comments[name] = i['comment']
        for s in segs:
            text = rename_text(s.text, local_ren) if not s.text.startswith((' ', '\t')) else s.text
            text = deferred(world, text, target)
            for name in s.names:
                final = local_ren.get(name, name)
                if final in defined:
                    sys.exit(f'clash in {target}: {final} of {src.mod} and of {defined[final]}; add a rename')
                defined[final] = src.mod
            bodies.append((s.node, text, s.gap))
    for name in list(checking):
        if name in runtime: checking.pop(name)
    for name in [*runtime, *checking]:
        if name in defined: sys.exit(f'clash in {target}: imported {name} and one of {defined[name]}')
    future = any(s.future for s, _ in parts)
    doc = f'"""{m.docs[target]}"""' if target in m.docs else next((s.doc for s, _ in sorted(parts, key=lambda p: world.default(p[0].mod) != target) if s.doc), '"""."""')
    def emit(d, indent=''):
        out = []
        for name, ((kind, mod, n, asname), noqa) in sorted(d.items(), key=lambda x: (x[1][0][0] == 'from', x[1][0][1], str(x[1][0][2]))):
            out.append(''.join(indent + l.strip() + '\n' for l in comments.get(name, '').splitlines()))
            if kind == 'import': out.append(f'{indent}import {mod}' + (f' as {asname}' if asname else '') + (f'  {noqa}' if noqa else '') + '\n')
            else: out.append(indent + line_of_import(mod, n, asname, noqa) + '\n')
        return ''.join(out)
    if checking: runtime['TYPE_CHECKING'] = (('from', 'typing', 'TYPE_CHECKING', None), None)
    elif 'TYPE_CHECKING' in runtime and not any('TYPE_CHECKING' in t for _, t, _ in bodies): runtime.pop('TYPE_CHECKING')
    head = doc + '\n\n'
    if future: head += 'from __future__ import annotations\n\n'
    head += emit(runtime) + '\n'
    if checking:
        c = next((getattr(s, 'tc_comment', '') for s, _ in parts if getattr(s, 'tc_comment', '')), '')
        head += (c + '\n' if c else '') + 'if TYPE_CHECKING:\n' + emit(checking, '    ') + '\n'
    # constants of a later part stand before its first function; keep order otherwise
    body, last = '', None
    for node, text, gap in bodies:
        big = isinstance(node, (ast.FunctionDef, ast.ClassDef)) or isinstance(last, (ast.FunctionDef, ast.ClassDef))
        body += ('\n\n' if big else '\n' if gap and last is not None else '') + text.strip('\n') + '\n'
        last = node
    return head + '\n' + body

# ---------------------------------------------------------------- strings and pages
DOTTED = re.compile(r'collscope(?:\.[a-z_0-9]+)+(?:\.[A-Za-z_]\w*)?')
def rewrite_strings(world, text):
    def sub(mt):
        full = mt.group(0)
        if world.module_of(full): return world.module_of(full)
        if '.' in full:
            mod, last = full.rsplit('.', 1)
            if mod in world.sources and last in world.sources[mod].defs:
                return '.'.join(world.resolve(mod, last))
        return full
    text = DOTTED.sub(sub, text)
    def path(mt):
        p = mt.group(0); pre = 'collscope/' if p.startswith('collscope/') else ''
        mod = 'collscope.' + p.removeprefix('collscope/').removesuffix('.py').replace('/', '.')
        to = world.module_of(mod)
        return p if not to else pre + to.removeprefix('collscope.').replace('.', '/') + '.py'
    text = re.sub(r'(?:collscope/)?(?:analysis|reports)/[\w/]+\.py', path, text)
    def short(mt):   # `reports.efficiency.answer` in a docstring
        mod = 'collscope.' + mt.group(1)
        to = world.module_of(mod)
        return mt.group(0) if not to else '`' + to.removeprefix('collscope.') + '`'
    return re.sub(r'`((?:analysis|reports)(?:\.\w+)+)`', short, text)

def strings_of_py(world, text):
    """As rewrite_strings, outside of import statements."""
    skip = set()
    for n in ast.walk(ast.parse(text)):
        if isinstance(n, (ast.Import, ast.ImportFrom)): skip |= set(range(n.lineno, n.end_lineno + 1))
    return ''.join(l if i in skip else rewrite_strings(world, l) for i, l in enumerate(text.splitlines(True), 1))

def all_texts(repo):
    out = subprocess.run(['git', 'ls-files'], cwd=repo, check=True, capture_output=True, text=True).stdout.split('\n')
    return [repo / p for p in out if p and p.endswith(('.py', '.md', '.toml', '.txt', '.json', '.yml', '.cmake', '.sh', 'Makefile')) and not p.startswith(('samples/',)) and (repo / p).is_file()]

# ---------------------------------------------------------------- the move
def move(repo, only):
    m = Map(HERE / 'map.tsv', only)
    world = World(repo, m)
    # parts of each target, in the order of the map
    parts = defaultdict(list)
    rank = {}
    for i, (o, n) in enumerate(m.order): rank.setdefault((o, n), i)
    for src in world.sources.values():
        by = defaultdict(list)
        for s in src.segments:
            tos = {world.where(src.mod, name) for name in s.names} or {world.default(src.mod)}
            if len(tos) > 1: sys.exit(f'{src.mod}: one statement defines {s.names} of several targets')
            by[tos.pop()].append(s)
        for t, segs in by.items(): parts[t].append((src, segs))
        if not src.segments and world.default(src.mod) != src.mod: parts[world.default(src.mod)].append((src, []))
    new_texts = {}
    for t, ps in parts.items():
        ps.sort(key=lambda p: -1 if p[0].mod == t and (t, t) not in rank else rank.get((p[0].mod, t), 999))
        if len(ps) == 1 and ps[0][0].mod == t and len(ps[0][1]) == len(ps[0][0].segments): continue  # stays as it is
        if len(ps) == 1 and len(ps[0][1]) == len(ps[0][0].segments) and t not in m.docs and ps[0][0].mod != t:
            # one module as a whole: keep its text, byte for byte but for names
            src = ps[0][0]
            text, ren, _ = rewrite_imports(world, src.text, t)
            ren |= {name: world.called(src.mod, name) for name in src.defs if world.called(src.mod, name) != name}
            new_texts[t] = rename_text(text, ren)
        else:
            new_texts[t] = build_target(world, t, ps)
    gone = [mod for mod in world.sources if mod not in parts]
    # packages
    for pkg, doc in m.packages.items():
        if not m.now(pkg + '.x'): continue
        p = repo / Path(*pkg.split('.')) / '__init__.py'
        p.parent.mkdir(parents=True, exist_ok=True)
        if not p.exists(): p.write_text(f'"""{doc}"""\n')
    # git mv: the first source of a target that ends
    moved = set()
    new_paths = {}
    for t in new_texts: new_paths[t] = repo / Path(*t.split('.')).with_suffix('.py')
    for t, ps in sorted(parts.items()):
        if t not in new_texts or t in world.sources: continue
        for src, segs in ps:
            if src.mod in gone and src.mod not in moved and (world.default(src.mod) in (t, src.mod)):
                new_paths[t].parent.mkdir(parents=True, exist_ok=True)
                sh('git', 'mv', str(mod_path(repo, src.mod)), str(new_paths[t]), cwd=repo)
                moved.add(src.mod); break
    for mod in gone:
        if mod not in moved and mod_path(repo, mod).exists(): sh('git', 'rm', '-q', '-f', str(mod_path(repo, mod)), cwd=repo)
    for t, text in new_texts.items():
        new_paths[t].parent.mkdir(parents=True, exist_ok=True)
        new_paths[t].write_text(text)
    for old, new in m.files:
        if not m.now(new.replace('/', '.')): continue
        if (repo / old).exists():
            (repo / new).parent.mkdir(parents=True, exist_ok=True)
            sh('git', 'mv', old, new, cwd=repo)
    sh('git', 'add', '-A', 'collscope', 'tests', cwd=repo)
    for mod, name, doc in m.says:
        p = mod_path(repo, mod)
        if not p.exists(): continue
        text = p.read_text()
        node = next((n for n in ast.parse(text).body if getattr(n, 'name', None) == name), None)
        if node is None: print(f'  says: no {name} in {mod}'); continue
        if ast.get_docstring(node): continue
        lines = text.splitlines(keepends=True)
        lines.insert(node.body[0].lineno - 1 if not isinstance(node.body[0], ast.Expr) or True else 0, f'    """{doc}"""\n')
        p.write_text(''.join(lines))
    # everyone else
    written = set(new_paths.values())
    for p in all_texts(repo):
        text = old = p.read_text()
        if p.suffix == '.py' and p not in written:
            text = strings_of_py(world, text)
            rel = p.relative_to(repo)
            mod = '.'.join(rel.with_suffix('').parts)
            text, ren, changed = rewrite_imports(world, text, mod)
            text = rename_text(text, ren) if ren else text
        elif p.suffix == '.py': text = strings_of_py(world, text)
        elif p.name not in ('CHANGELOG.md',): text = rewrite_strings(world, text)
        if text != old: p.write_text(text)
    for file, old, new in m.texts:
        p = repo / file
        if not p.exists(): continue
        t = p.read_text()
        if old in t: p.write_text(t.replace(old, new))
    if not only:
        for d in m.drops:
            if (repo / d).exists(): sh('git', 'rm', '-q', '-f', d, cwd=repo)
    # empty old packages
    for pk in ('collscope/analysis/msccl', 'collscope/analysis', 'collscope/reports/html', 'collscope/reports/comparison'):
        q = repo / pk
        if q.is_dir() and [f.name for f in q.iterdir() if f.name not in ('__pycache__', '__init__.py')] == [] and (q/'__init__.py').exists():
            sh('git', 'rm', '-q', '-f', f'{pk}/__init__.py', cwd=repo)
        if q.is_dir() and not [f for f in q.rglob('*') if f.is_file() and f.suffix != '.pyc']: shutil.rmtree(q)
    ruff = str(repo / '.venv/bin/ruff')
    sh(ruff, 'check', '-q', '--fix', '--select', 'I', '.', cwd=repo)
    sh(ruff, 'format', '-q', '.', cwd=repo)
    sh('git', 'add', '-A', '.', cwd=repo)

def refresh_editable(repo):
    if (repo / '.venv').is_symlink(): return
    """The editable install lists every file of the package: list those that there are now."""
    for p in repo.glob('.venv/lib/python3*/site-packages/_editable_skbc_collscope.py'):
        text = p.read_text()
        at = text.rindex('\ninstall(') + 1
        call = ast.parse(text[at:].strip()).body[0].value
        args = [ast.literal_eval(a) for a in call.args]
        known, _native, places, packages = args[:4]
        root = repo / 'collscope'
        args[0] = {'.'.join(f.relative_to(repo).with_suffix('').parts).removesuffix('.__init__'): str(f)
                   for f in sorted(root.rglob('*.py'))}
        folders = {f.parent for f in root.rglob('*.py')} | {f.parent for f in root.rglob('*.toml')}
        keep = {k: v for k, v in places.items() if any(not str(x).startswith('/') for x in v)}
        args[2] = {'.'.join(d.relative_to(repo).parts): [str(d)] for d in sorted(folders)} | keep
        args[3] = sorted('.'.join(f.parent.relative_to(repo).parts) for f in root.rglob('__init__.py'))
        p.write_text(text[:at] + 'install(' + ', '.join(map(repr, args)) + ')\n')

def main():
    a = argparse.ArgumentParser()
    a.add_argument('--repo', type=Path, default=Path.cwd())
    a.add_argument('--only', nargs='*', default=[])
    a.add_argument('--stage', default='all', choices=('prepare', 'move', 'finish', 'all', 'venv'))
    o = a.parse_args()
    repo = o.repo.resolve()
    if subprocess.run(['git', 'status', '--porcelain', '-uno'], cwd=repo, capture_output=True, text=True).stdout.strip() and o.stage in ('prepare', 'all'):
        sys.exit('the tree is not clean')
    sys.path.insert(0, str(HERE))
    if o.stage == 'venv': return refresh_editable(repo)
    import patches
    if o.stage in ('prepare', 'all'): patches.prepare(repo)
    if o.stage in ('move', 'all'): move(repo, set(o.only))
    if o.stage in ('finish', 'all') and not o.only: patches.finish(repo)
    refresh_editable(repo)

if __name__ == '__main__':
    main()
