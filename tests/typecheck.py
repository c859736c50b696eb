"""The run-time type checker of the tests: an int is as good as a float, as in type hints."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
