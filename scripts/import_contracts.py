"""Contracts of `lint-imports` that it does not ship: no circles, and one room per question.

Imports for type checking and inside of functions count like all others.
"""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class _Listed(Contract):
    """A contract whose violations are lines."""

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each violation."""
        for line in check.metadata["violations"]:
            output.print_error(line)


class NoCircles(_Listed):
    """Modules that import each other, directly or through others.

    Compiled modules, which the linter cannot see, count as their package: imports of the root
    package are left out.
    """

    type_name = "no_circles"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Whether the modules have an order."""
        roots = {module for module in graph.modules if "." not in module}
        imports = {
            module: graph.find_modules_directly_imported_by(module) - roots
            for module in graph.modules
        }
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            circle = " <- ".join(error.args[1])
            return ContractCheck(kept=False, metadata={"violations": [circle]})
        return ContractCheck(kept=True)


class OneRoomPerQuestion(_Listed):
    """Packages of a container each answer one question: numbers apart from words.

    container  the package that holds a package per question
    shared     the package of what all words share
    composer   the question that composes the words of all further questions
    words      names of the modules that word or draw; all others are answers
    below      packages that words do not import: answers read for them

    Answers import no words; words import those of no other question, but for the composer's.
    """

    type_name = "one_room_per_question"

    container = fields.StringField()
    shared = fields.StringField()
    composer = fields.StringField()
    words = fields.ListField(subfield=fields.StringField())
    below = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Whether every import keeps to its room."""
        found = defaultdict(list)
        for importer in sorted(graph.find_descendants(self.container)):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                why = self._why_not(importer, imported)
                if why:
                    found[why].append(f"{importer} -> {imported}")
        lines = [f"{why}: {line}" for why, lines in found.items() for line in lines]
        return ContractCheck(kept=not lines, metadata={"violations": lines})

    def _why_not(self, importer: str, imported: str) -> str | None:
        ours, role = self._place(importer)
        if role != "answer" and imported.startswith(tuple(f"{name}." for name in self.below)):
            return "words read what an answer should read for them"
        if not imported.startswith(f"{self.container}."):
            return None
        theirs, kind = self._place(imported)
        if kind == "answer" or (role == "words" and theirs == self.shared):
            return None
        if role == "answer":
            return "an answer imports words"
        if theirs in (ours, self.shared) or ours == self.composer:
            return None
        return "words import those of another question"

    def _place(self, module: str) -> tuple[str, str]:
        """Question of a module, and whether it is an `answer` or `words`."""
        question, _, name = module.removeprefix(f"{self.container}.").partition(".")
        wording = question == self.shared or any(fnmatch(name, words) for words in self.words)
        return question, "words" if wording else "answer"
