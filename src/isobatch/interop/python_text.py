"""Settings of other libraries that stand in Python: read from the syntax tree, never executed, and changed in place.

Two shapes are understood. A class whose body assigns literals and calls (`algorithm = AlgorithmCfg(gamma=0.99)`), with
the classes of the same file that it inherits from and the assignments of its `__post_init__`. A function that makes one
such value, changes it in branches that ask for the name of an environment, and returns it. Whatever is no literal is
kept as its source text.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from isobatch.errors import UsageError, near_matches
from isobatch.interop.keys import find
from isobatch.settings.parsing import SettingsByName
from isobatch.settings.safe_yaml import MOST_CHARACTERS

ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


class SourceText(str):
    """Source text of what is no literal."""

    __slots__ = ()


@dataclass
class Leaf:
    """A value and where it stands."""

    value: object
    node: ast.expr


@dataclass
class Branch:
    """Named values, and the call, dictionary or class that they stand in."""

    node: ast.AST
    parts: dict[str, Leaf | Branch] = field(default_factory=dict)

    def plain(self) -> SettingsByName:
        return {name: part.plain() if isinstance(part, Branch) else part.value for name, part in self.parts.items()}

    def put(self, names: list[str], part: Leaf | Branch) -> None:
        *way, last = names
        holder = self
        for name in way:
            inner = holder.parts.get(name)
            if not isinstance(inner, Branch):
                return  # of a value that stands in another file
            holder = inner
        holder.parts[last] = part


class ReachedError(Exception):
    """A `raise` of the code that is read."""


class Module:
    """The settings in a Python text."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise UsageError(f"the text has {len(text):,} characters: use at most {MOST_CHARACTERS:,}.")
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            where = f" at line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise UsageError(f"the text is not valid Python{where}: check it.") from None
        self.text = text
        self.classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        self.constants = {
            target.id: node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def class_settings(self, name: str, seen: tuple[str, ...] = ()) -> Branch:
        node = self.classes[name]
        branch = Branch(node)
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.classes and base.id not in (*seen, name):
                branch.parts |= self.class_settings(base.id, (*seen, name)).parts
        for statement in node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                branch.parts[statement.targets[0].id] = self.value(statement.value)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                branch.parts[statement.target.id] = self.value(statement.value)
            elif isinstance(statement, ast.FunctionDef) and statement.name == "__post_init__":
                self.run(statement.body, {"self": branch}, {})
        return branch

    def function_settings(self, name: str, env: str | None) -> Branch | None:
        """What a function returns for an environment; nothing if it returns no settings."""
        node = self.functions[name]
        arguments = {argument.arg for argument in node.args.args}
        facts = {argument: env for argument in arguments if env is not None and "env" in argument}
        try:
            made = self.run(node.body, {}, facts)
        except ReachedError:
            return None
        return made if isinstance(made, Branch) and made.parts else None

    def run(self, body: list[ast.stmt], held: dict[str, Leaf | Branch], facts: dict[str, str]) -> Leaf | Branch | None:
        """Follow assignments and branches; what is returned, if anything is."""
        for statement in body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                named = statement.value.id if isinstance(statement.value, ast.Name) else ""
                return held.get(named) or self.value(statement.value)
            if isinstance(statement, ast.Raise):
                raise ReachedError
            if isinstance(statement, ast.If):
                branch = statement.body if self.holds(statement.test, facts) else statement.orelse
                made = self.run(branch, held, facts) if facts else None  # without an environment no branch is its own
                if made is not None:
                    return made
            elif isinstance(statement, ast.Assign):
                self.assign(statement.targets[0], statement.value, held)
        return None

    def assign(self, target: ast.expr, value: ast.expr, held: dict[str, Leaf | Branch]) -> None:
        names: list[str] = []
        while isinstance(target, ast.Attribute):
            names.insert(0, target.attr)
            target = target.value
        if not isinstance(target, ast.Name):
            return
        if not names:
            held[target.id] = self.value(value)
        elif isinstance(holder := held.get(target.id), Branch):
            holder.put(names, self.value(value))

    def value(self, node: ast.expr) -> Leaf | Branch:
        if isinstance(node, ast.Call):
            made = {word.arg: word.value for word in node.keywords if word.arg}
            factory = made.get("default_factory")
            if isinstance(factory, ast.Lambda):
                return self.value(factory.body)
            if made:
                return Branch(node, {name: self.value(part) for name, part in made.items()})
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            pairs = zip(node.keys, node.values, strict=True)
            return Branch(
                node, {str(key.value): self.value(part) for key, part in pairs if isinstance(key, ast.Constant)}
            )
        return Leaf(self.literal(node), node)

    def literal(self, node: ast.expr, depth: int = 0) -> object:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            pass
        if isinstance(node, ast.Name) and node.id in self.constants and depth < 5:
            return self.literal(self.constants[node.id], depth + 1)
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and depth < 5:
            left, right = self.literal(node.left, depth + 1), self.literal(node.right, depth + 1)
            if isinstance(left, int | float) and isinstance(right, int | float):
                try:
                    return ARITHMETIC[type(node.op)](left, right)
                except ArithmeticError:
                    pass
        return SourceText(ast.get_source_segment(self.text, node) or "")

    def holds(self, test: ast.expr, facts: dict[str, str]) -> bool:
        """Whether a condition on the name of the environment is true; others count as not."""
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                return all(self.holds(value, facts) for value in values)
            case ast.BoolOp(op=ast.Or(), values=values):
                return any(self.holds(value, facts) for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.holds(operand, facts)
            case ast.Compare(left=ast.Name(id=name), ops=[operation], comparators=[other]) if name in facts:
                value = self.literal(other)
                inside = facts[name] in value if isinstance(value, list | tuple | set | str) else False
                same = facts[name] == value
                kinds = {ast.Eq: same, ast.NotEq: not same, ast.In: inside, ast.NotIn: not inside}
                return kinds.get(type(operation), False)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method), args=[prefix]) if name in facts:
                how = {"startswith": str.startswith, "endswith": str.endswith}.get(method)
                return how is not None and how(facts[name], str(self.literal(prefix)))
        return False

    def environments(self, name: str) -> list[str]:
        """The names that a function asks for, in order."""
        names = []
        for node in ast.walk(self.functions[name]):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In | ast.NotEq):
                value = self.literal(node.comparators[0])
                names += [value] if isinstance(value, str) and not isinstance(value, SourceText) else []
                names += [str(one) for one in value] if isinstance(value, list | tuple | set) else []
        return list(dict.fromkeys(names))


@lru_cache(maxsize=4)
def parsed(text: str) -> Module:
    return Module(text)


def is_python(text: str) -> bool:
    """Whether a text is Python with a class or a function in it."""
    try:
        module = parsed(text)
    except UsageError:
        return False
    return bool(module.classes or module.functions)


@lru_cache(maxsize=4)
def entries(text: str, mark: str) -> list[str]:
    """The classes, and the functions with the environments that they ask for, whose settings hold a name `mark`."""
    module, names = parsed(text), []
    for name in module.classes:
        if _has(module.class_settings(name), mark):
            names.append(name)
    for name in module.functions:
        made = [env for env in module.environments(name) if _has(module.function_settings(name, env), mark)]
        if made:
            names += [f"{name}:{env}" for env in made]
        elif _has(module.function_settings(name, None), mark):
            names.append(name)
    return names


def _has(branch: Branch | None, mark: str) -> bool:
    return branch is not None and find(branch.plain(), (mark,)) is not None


def find_settings(text: str, mark: str, entry: str | None) -> tuple[Branch, str]:
    """The settings of an entry and its full name: `Class`, `function`, `function:environment`, or the environment."""
    known = entries(text, mark)
    if not known:
        raise UsageError(f"no class and no function of the file has a setting {mark!r}: check which file it is.")
    fits = [name for name in known if entry in (name, name.partition(":")[0], name.partition(":")[2])]
    if entry is None and len(known) == 1:
        fits = known
    module = parsed(text)
    if entry is not None and not fits:  # an environment that no branch asks for
        plain = [name for name in module.functions if _has(module.function_settings(name, entry), mark)]
        fits = [f"{name}:{entry}" for name in plain]
    if entry is None and not fits:
        raise UsageError(f"env is missing: the file has settings for {', '.join(known)}; give --env NAME.")
    if not fits:
        hint = near_matches(entry or "", [*known, *(name.partition(":")[2] for name in known)])
        raise UsageError(f"env={entry!r} is not in the file{hint or '; use one of ' + ', '.join(known) + '.'}")
    name, _, env = fits[0].partition(":")
    branch = module.class_settings(name) if name in module.classes else module.function_settings(name, env or None)
    assert branch is not None
    return branch, fits[0]


def edit(text: str, mark: str, after: Mapping[str, object], entry: str | None) -> str:
    """The text with the values that `after` has otherwise, and new ones in the calls that they belong to.

    What a class inherits becomes its own, in its `__post_init__`, if it has one; else it changes where it stands.
    """
    branch, name = find_settings(text, mark, entry)
    hook = _post_init(branch.node)
    assignments: list[str] = []
    changes = []
    for way, leaf, value in _changed(branch, branch.plain(), after):
        if isinstance(leaf, Leaf) and hook and not _inside(leaf.node, branch.node):
            assignments.append(f"self.{'.'.join(way)} = {value!r}")
        elif isinstance(leaf, Leaf):
            changes.append((*_span(text, leaf.node), repr(value)))
        else:
            changes.append(_insertion(text, leaf.node, way[-1], value))
    if assignments and hook:
        last = hook.body[-1]
        end = _end(text, last)
        changes.append((end, end, "".join(f"\n{' ' * last.col_offset}{line}" for line in assignments)))
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    if find_settings(text, mark, name)[0].plain() != dict(after):
        raise UsageError(f"the settings of {name} cannot be changed in place: write their values out as numbers.")
    return text


def _post_init(node: ast.AST) -> ast.FunctionDef | None:
    body = node.body if isinstance(node, ast.ClassDef) else []
    return next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == "__post_init__"), None)


def _inside(node: ast.expr, owner: ast.AST) -> bool:
    assert isinstance(owner, ast.ClassDef)
    return owner.lineno <= node.lineno <= (owner.end_lineno or 0)


def side_effects(before: str, after: str, mark: str, entry: str | None) -> list[str]:
    """Other entries whose settings changed too."""
    names = [name for name in entries(before, mark) if name != find_settings(before, mark, entry)[1]]
    return [n for n in names if find_settings(before, mark, n)[0].plain() != find_settings(after, mark, n)[0].plain()]


def excerpt(text: str, mark: str, entry: str | None) -> str:
    """The lines of the class or the function that settings stand in."""
    name = find_settings(text, mark, entry)[1].partition(":")[0]
    module = parsed(text)
    node = module.classes.get(name) or module.functions[name]
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno]) + "\n"


def _changed(
    branch: Branch, before: Mapping[str, object], after: Mapping[str, object], way: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Leaf | Branch, object]]:
    """The names of what changes, where it stands (or, if it is new, what it belongs to), and its new value."""
    for name, value in after.items():
        part, known = branch.parts.get(name), before.get(name)
        if name in before and known == value:
            continue
        if isinstance(part, Branch) and isinstance(known, Mapping) and isinstance(value, Mapping):
            yield from _changed(part, known, value, (*way, name))
        else:
            yield (*way, name), part if isinstance(part, Leaf) else branch, value


def _insertion(text: str, node: ast.AST, name: str, value: object) -> tuple[int, int, str]:
    """A new keyword at the end of a call, or a new line at the end of a class's assignments."""
    if isinstance(node, ast.Call) and node.keywords:
        last = node.keywords[-1]
        end = _span(text, last.value)[1]
        alone = text[: _index(text, last.lineno, last.col_offset)].rpartition("\n")[2]
        separator = f",\n{alone}" if not alone.strip() and last.lineno > node.lineno else ", "
        return end, end, f"{separator}{name}={value!r}"
    if isinstance(node, ast.ClassDef):
        last_line = [s for s in node.body if isinstance(s, ast.Assign | ast.AnnAssign)][-1]
        end = _end(text, last_line)
        return end, end, f"\n{' ' * last_line.col_offset}{name} = {value!r}"
    raise UsageError(f"{name}={value!r} cannot be added to the file: write it there, with any value.")


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    return _index(text, node.lineno, node.col_offset), _end(text, node)


def _end(text: str, node: ast.expr | ast.stmt) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _index(text, node.end_lineno, node.end_col_offset)


def _index(text: str, line: int, column: int) -> int:
    """Where a place of the syntax tree is in the text; its columns count bytes."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())
