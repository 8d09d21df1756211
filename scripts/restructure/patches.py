"""What a mechanical move cannot do: circles and words, as small edits with anchors.

`prepare` works on the old layout (each step a commit of its own, `move.py --stage prepare`),
`finish` on the new one.
"""
from __future__ import annotations
import re, subprocess
from pathlib import Path

class Anchor(SystemExit): pass

def edit(repo, path, *pairs):
    p = repo / path
    text = p.read_text()
    for old, new in pairs:
        if old in text: text = text.replace(old, new)
        elif new and new in text: continue
        else: raise Anchor(f'{path}: anchor not found (changed meanwhile):\n{old}')
    p.write_text(text)

def prepare(repo: Path):
    readers_take_a_database(repo)
    circle_of_the_causal_builder(repo)
    circle_of_the_report(repo)
    subprocess.run([str(repo/'.venv/bin/ruff'), 'check', '-q', '--fix', '--select', 'I,F401', 'collscope'], cwd=repo, check=True)
    subprocess.run([str(repo/'.venv/bin/ruff'), 'format', '-q', 'collscope'], cwd=repo, check=True)

def readers_take_a_database(repo):
    """Readers name no sqlite3, for types neither: they take what one opened for them."""
    reader = repo / 'collscope/parsers/reader.py'
    text = reader.read_text()
    if 'class Database(' in text: return
    text = text.replace('if TYPE_CHECKING:\n    import sqlite3\n\n', 'if TYPE_CHECKING:\n').replace('sqlite3.Connection', 'Database')
    text = text.replace('class Source(Protocol):', '''class Database(Protocol):
    """An SQLite file that somebody opened for reading: what readers use of `sqlite3.Connection`."""

    text_factory: Any

    @property
    def DatabaseError(self) -> type[Exception]:  # noqa: N802 - its name there
        """What a damaged file raises."""

    def execute(self, sql: str, /) -> Iterator[tuple[Any, ...]]:
        """Rows of a query."""


class Source(Protocol):''', 1)
    text = text.replace('from typing import TYPE_CHECKING, Protocol, TypeAlias', 'from typing import TYPE_CHECKING, Any, Protocol, TypeAlias')
    reader.write_text(text)
    for p in sorted((repo / 'collscope/parsers').rglob('*.py')):
        t = p.read_text()
        if p == reader or 'sqlite3.Connection' not in t: continue
        t = t.replace('sqlite3.Connection', 'Database')
        t = re.sub(r'(if TYPE_CHECKING:\n(?:    .*\n|\n)*?)    import sqlite3\n', r'\1', t)
        t = t.replace('if TYPE_CHECKING:\n', 'if TYPE_CHECKING:\n    from collscope.parsers.reader import Database\n', 1)
        p.write_text(t)

def circle_of_the_causal_builder(repo):
    """causal -> events, nodes -> causal: what the three share is a module of its own below them."""
    path = repo / 'collscope/timeline/causal.py'
    text = path.read_text()
    if 'class Causes(RowCauses)' in text: return
    start = text.index('class Causes:')
    add = text.index('    def add(self', start)
    state = text[start:add]
    sync0 = text.index('class Sync(')
    sync = text[sync0:start]
    on0 = text.index('def _on_stream(')
    on1 = re.search(r'\n\n\n(?=def |class |[A-Z_])', text[on0:])
    on = text[on0:on0 + on1.start() + 1] if on1 else text[on0:]
    new_state = state.replace('class Causes:\n    """What every row waits for, found trace by trace."""',
        'class RowCauses:\n    """What is known of every row: when it ran, and what it waits for, as far as found."""')
    assert new_state != state, 'Causes: docstring'
    own = text.replace(on, '').replace(sync, '').replace(state,
        'class Causes(RowCauses):\n    """What every row waits for, found trace by trace."""\n\n')
    body = '''"""What the steps of the causal graph work on: every row, and what it waits for (pure)."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.graph import NONE
from collscope.timeline.waits import CallTimes


''' + sync + new_state.rstrip() + '\n\n\n' + on.rstrip() + '\n'
    names = ['Sync', 'RowCauses']
    own = own.replace('from collscope.timeline.nodes import Nodes\n',
        'from collscope.timeline.nodes import Nodes\nfrom collscope.timeline.row_causes import RowCauses, Sync\n')
    (repo / 'collscope/timeline/row_causes.py').write_text(body)
    path.write_text(own)
    for name in ('events', 'nodes'):
        p = repo / f'collscope/timeline/{name}.py'
        t = p.read_text()
        t = re.sub(r'\nif TYPE_CHECKING:\n    from collscope.timeline.causal import Causes\n', '\n', t)
        t = t.replace('from typing import TYPE_CHECKING, ', 'from typing import ').replace('from typing import TYPE_CHECKING\n', '')
        t = re.sub(r'\bCauses\b', 'RowCauses', t)
        t = t.replace('\nfrom collscope.timeline.graph import', '\nfrom collscope.timeline.row_causes import RowCauses\nfrom collscope.timeline.graph import', 1) if '\nfrom collscope.timeline.graph import' in t else t.replace('\nimport numpy.typing as npt\n', '\nimport numpy.typing as npt\n\nfrom collscope.timeline.row_causes import RowCauses\n', 1)
        assert 'import RowCauses' in t, name
        p.write_text(t)
    subprocess.run(['git', 'add', 'collscope/timeline/row_causes.py'], cwd=repo, check=True)

def circle_of_the_report(repo):
    """The record knows neither its sections nor its page."""
    r = 'collscope/reports/'
    if not (repo / r / 'part.py').exists(): return
    text = (repo / r / 'sections_timeline.py').read_text()
    cut = text.index('class TimelineReport(')
    (repo / r / 'sections_timeline.py').write_text(text[:cut].rstrip() + '\n')
    edit(repo, r + 'sections_timeline.py', ('from collscope.reports.part import Part\n', ''))
    subprocess.run(['git', 'rm', '-q', '-f', r + 'part.py'], cwd=repo, check=True)
    text = (repo / r / 'model.py').read_text()
    text = text.replace('from collscope.reports.part import Part\n', '')
    text = text.replace('from collscope.reports.waiting.text import TimelineReport\n', 'from collscope.reports.waiting.answer import StoredTimeline\n')
    text = text.replace('    timeline: TimelineReport\n', '    timeline: StoredTimeline\n')
    cut = text.index('    def _repr_html_'); end = text.index('    schema: str = SCHEMA')
    text = text[:cut] + text[end:]
    cut = text.index('\n    @property\n    def parts')
    text = text[:cut].rstrip() + '\n'
    (repo / r / 'model.py').write_text(text)
    edit(repo, r + 'build.py',
         ('import Report, part_kinds', 'import Report'),
         ('    parts: dict[str, Any] = {n: kind.read(connection, run) for n, kind in part_kinds().items()}\n', ''),
         ('        **parts,\n', '        timeline=StoredTimeline.read(connection, run),\n'),
         ('from typing import Any\n', ''),
         ('from collscope.reports.calls.answer import histograms\n', 'from collscope.reports.calls.answer import histograms\nfrom collscope.reports.waiting.answer import StoredTimeline\n'))
    edit(repo, r + 'sections.py',
         ('        *(section for part in report.parts for section in part.sections()),\n', '        *timeline_section(report.timeline),\n'),
         ('from collscope.reports.rendering.share_words import', 'from collscope.reports.waiting.text import timeline_section\nfrom collscope.reports.rendering.share_words import'))
    edit(repo, r + 'render.py', ('def _record(report: Report)', '''class _Shown(Report, frozen=True, kw_only=True):
    """A report that a notebook shows as its page."""

    def _repr_html_(self) -> str:
        from collscope.reports.rendering.page import framed  # noqa: PLC0415 - for notebooks alone

        return framed(render(self, "html"))


def shown(report: Report) -> Report:
    """The report, as a page in notebooks; without the drawings that need the store."""
    return _Shown(**{name: getattr(report, name) for name in report.__struct_fields__})


def _record(report: Report)'''))
    edit(repo, 'collscope/library.py',
         ('        from collscope.reports.report.build import build_report  # noqa: PLC0415\n',
          '        from collscope.reports.report.build import build_report  # noqa: PLC0415\n        from collscope.reports.report.formats import shown  # noqa: PLC0415\n'),
         ('            return build_report(connection, run, top=None, system=system, label=label)',
          '            return shown(build_report(connection, run, top=None, system=system, label=label))'))
    text = (repo / 'docs/architecture.md').read_text()


CONTRACT = '''
[[tool.importlinter.contracts]]
name = "no circles, in imports for type checking neither"
type = "no_circles"

# Answers are numbers and codes, words and figures are made of them: of their own question alone,
# but for the report, which is composed of all.
[[tool.importlinter.contracts]]
name = "one room per question"
type = "one_room_per_question"
container = "collscope.reports"
shared = "rendering"
composer = "report"
words = [
    "text", "*_text", "words", "formats", "ci", "perfetto", "build",
    "page", "*_page", "plot", "strip", "evidence",
    "findings", "*_findings",
]
below = ["collscope.ingest", "collscope.store", "collscope.match", "collscope.parsers"]
'''

def finish(repo: Path):
    new = Path(__file__).parent / 'new'
    for p in new.rglob('*'):
        if p.is_file() and '__pycache__' not in p.parts:
            to = repo / p.relative_to(new); to.parent.mkdir(parents=True, exist_ok=True); to.write_text(p.read_text())
    text = (repo / 'pyproject.toml').read_text()
    text = text.replace('include_external_packages = true\nexclude_type_checking_imports = true\n',
        'include_external_packages = true\ncontract_types = [\n    "no_circles: scripts.import_contracts.NoCircles",\n    "one_room_per_question: scripts.import_contracts.OneRoomPerQuestion",\n]\n')
    text = text.replace('    "reports",\n    "analysis",\n', '    "reports",\n')
    start = text.index('[[tool.importlinter.contracts]]\nname = "reports word answers') if 'reports word answers' in text else None
    if start is not None:
        end = text.find('[[tool.importlinter.contracts]]', start + 10)
        text = text[:start] + CONTRACT.lstrip('\n') + '\n' + text[end:]
    # every contract that looks at indirect imports
    text = re.sub(r'# Compiled modules, which the linter cannot see and takes for their package\.\nignore_imports = \[\n(?:    "[^"]+",\n)+\]',
                  '# Compiled modules, which the linter cannot see and takes for their package.\nignore_imports = ["collscope.** -> collscope"]', text)
    text = text.replace('''# What PyTorch calls process groups, in its traces and in its recorder.
ignore_imports = [
''', '''# What PyTorch calls process groups, in its traces and in its recorder; compiled modules, as above.
ignore_imports = [
    "collscope.** -> collscope",
''')
    text = text.replace('exhaustive_ignores = ["__main__"]\n', 'exhaustive_ignores = ["__main__"]\n# Compiled modules, which the linter cannot see and takes for their package.\nignore_imports = ["collscope.** -> collscope"]\n')
    (repo / 'pyproject.toml').write_text(text)
    # findings by the names of their questions
    p = repo / 'collscope/reports/report/findings.py'
    t = p.read_text()
    names = {'rules_calls': 'calls', 'rules_sources': 'coverage', 'rules_judgement': 'efficiency', 'rules_measurements': 'measured', 'rules_fabric': 'fabric', 'rules_environment': 'settings', 'rules_timeline': 'waiting'}
    for old, short in names.items(): t = re.sub(rf'\b{old}\b', f'of_{short}', t)
    t = t.replace('''A rule is a pure function from a report to findings; adding one is a function in the file of its
subject (sources, fabric, environment, calls, judgement, timeline) and a line in that file's RULES.''',
'''A rule is a pure function from a report to findings; adding one is a function in the `findings` of
the question whose answer it judges, and a line in that file's RULES.''')
    t = re.sub(r'import \(\n    (\w+ as \w+),\n\)', r'import \1', t)
    p.write_text(t)
    def soft(path, *pairs):
        p = repo / path
        t = p.read_text()
        for old, new_ in pairs:
            if old not in t:
                if new_ not in t: print(f'  finish: {path}: not there, look by hand: {old[:70]!r}')
            t = t.replace(old, new_)
        p.write_text(t)
    soft('collscope/reports/__init__.py', ('"""Reports: what a run\'s collectives are, from the store\'s views to text, tables and JSON."""', '"""One package for each question: its answer in numbers, and the answer in words and figures."""'))
    soft('schemas/findings.md', ('`collscope/reports/rules_*.py`, in `RULES` there', '`collscope/reports/QUESTION/findings.py`, in `RULES` there'))
    soft('docs/architecture.md',
        ('''   ▼
 analysis/    one question each: share, efficiency, compare, check, …   numbers and codes, no prose
   │
   ▼
 reports/     words, tables, pictures: one file per question, one per format
''', '''   ▼
 reports/     one package for each question: share, waiting, efficiency, compare, predict, …
   answer       numbers and codes; further modules of the answer beside it
   rendering/   what all words share: tables, formats, the page, drawing
   text, page   the answer in words and figures; findings: rules over it
   report/      the composer: all questions of one run
'''),
        ('Imports go down this drawing and never up; `make imports` checks it.', 'Data flows down this drawing; imports point up. `make imports` checks it.'),
        ('a question a function of `analysis/` that returns a frozen record,\nand a section of the report with data of its own a class of `reports/part.py`.', 'a question a package\nof `reports/` whose answer is a frozen record.'),
        ('1. **`analysis/` writes no sentences.** `reports/` turns its codes into words.', '1. **An answer writes no sentences.** Its `text` and `page` turn its codes into words; those of another question never do.'),
        ('| finding | **1** | a rule in one of `reports/rules_*.py` |', '| finding | **1** | a rule in the `findings.py` of the question whose answer it judges |'),
        ('| section of the report | 1 or **2** | `reports/report/text.py`; with data of its own a `Part`, and a field of `Report` in `reports/report/answer.py` |', '| section of the report | 1 or **2** | `reports/report/text.py`; with data of its own a field of `Report` in `reports/report/answer.py` |'))
    ruff = str(repo / '.venv/bin/ruff')
    subprocess.run([ruff, 'check', '-q', '--fix', '--select', 'I', '.'], cwd=repo, check=True)
    subprocess.run([ruff, 'format', '-q', '.'], cwd=repo, check=True)
    subprocess.run(['git', 'add', '-A', '.'], cwd=repo, check=True)
