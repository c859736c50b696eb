"""YAML of unknown origin: read within bounds, or refused with what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaml import MappingNode, Node, SafeLoader

MOST_CHARACTERS = 200_000  # PyYAML reads about 100,000 in a second
MOST_LEVELS = 50  # of lists and mappings in each other
MOST_ALIASES = 1000
MOST_VALUES = 100_000  # with those that aliases repeat
MOST_BITS = 1024  # of a whole number, as many as a float can stand for
MOST_ENTRIES = 1000  # of a mapping that others were merged into


def read_yaml(text: str) -> object:
    """The value of a YAML text, or a ValueError whose message goes on after the name of the text."""
    import yaml

    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters, more than settings need: use at most {MOST_CHARACTERS:,}")
    try:
        value = yaml.load(text, Loader=_loader())
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        raise ValueError(f"is not valid YAML{f' at line {where.line + 1}' if where else ''}") from None
    except RecursionError:  # of the loader below, or of mappings that merge themselves
        raise ValueError("is nested too deeply") from None
    except ValueError as error:  # `!!int abc`, 2020-13-45
        raise ValueError(f"is not valid YAML ({error})") from None
    except (TypeError, ArithmeticError, LookupError, AttributeError):  # other values that do not fit their tag
        raise ValueError("is not valid YAML") from None
    _check_size(value)
    return value


def _loader() -> type[SafeLoader]:
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML's safe one, with bounds on what a short text can repeat."""

        aliases = depth = 0

        def compose_node(self, parent: Node | None, index: int) -> Node | None:
            self.depth += 1
            if self.depth > MOST_LEVELS:  # PyYAML takes a time that grows with the square of them
                raise RecursionError
            node = self.compose_child(parent, index)
            self.depth -= 1
            return node

        def compose_child(self, parent: Node | None, index: int) -> Node | None:
            if self.check_event(yaml.AliasEvent):
                self.aliases += 1
                if self.aliases > MOST_ALIASES:
                    raise yaml.composer.ComposerError(None, None, "too many aliases", self.peek_event().start_mark)
            return super().compose_node(parent, index)

        def flatten_mapping(self, node: MappingNode) -> None:
            super().flatten_mapping(node)
            if len(node.value) > MOST_ENTRIES:
                raise yaml.constructor.ConstructorError(None, None, "too many entries", node.start_mark)

    # What others dump their tuples as; it makes nothing but a list.
    tuples = "tag:yaml.org,2002:python/tuple"

    def as_list(loader: Loader, node: yaml.SequenceNode) -> list[object]:
        return loader.construct_sequence(node, deep=True)

    Loader.add_constructor(tuples, as_list)
    return Loader


def _check_size(value: object) -> None:
    """Look at numbers, and count what printing the value would print; a value that contains itself never ends."""
    left, count = [value], 0
    while left:
        one = left.pop()
        count += 1
        if count + len(left) > MOST_VALUES:
            raise ValueError("repeats itself without end, or nearly so")
        if isinstance(one, int) and one.bit_length() > MOST_BITS:  # Python itself refuses to print it
            raise ValueError(f"holds a whole number of {one.bit_length()} bits, more than any setting")
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set)):
            left += one
