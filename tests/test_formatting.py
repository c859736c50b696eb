"""Numbers as text."""

import math

from isobatch.formatting import TO, number, significant, with_interval
from isobatch.statistics.bootstrap import Estimate


def test_numbers() -> None:
    assert [number(x) for x in (1234.56, -0.01, math.inf, math.nan, None)] == ["1,234.6", "0.0", "inf", "-", "-"]
    assert [significant(x) for x in (1234.56, 0.0012345, -math.inf, math.nan)] == ["1,235", "0.00123", "-inf", "-"]


def test_intervals() -> None:
    assert with_interval(Estimate(2.0, 1.5, math.inf)) == "2 [1.5, inf]"
    assert with_interval(Estimate(2.0, 1.5, 2.5), lambda x: number(x, 0), TO) == "2 (2 to 2)"
    assert with_interval(Estimate(2.0)) == "2"
    assert with_interval(Estimate(math.nan, 1.0, 2.0)) == "-"
