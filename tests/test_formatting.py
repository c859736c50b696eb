"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from isobatch.formatting import (
    TO,
    by_magnitude,
    counted,
    fraction_text,
    number,
    rounded,
    setting_text,
    significant,
    with_interval,
)
from isobatch.statistics.bootstrap import Estimate


def test_numbers() -> None:
    assert [number(x) for x in (1234.56, -0.01, math.inf, math.nan, None)] == ["1,234.6", "0.0", "inf", "-", "-"]
    assert [significant(x) for x in (1234.56, 0.0012345, -math.inf, math.nan)] == ["1,235", "0.00123", "-inf", "-"]


def test_intervals() -> None:
    assert with_interval(Estimate(2.0, 1.5, math.inf)) == "2 [1.5, inf]"
    assert with_interval(Estimate(2.0, 1.5, 2.5), lambda x: number(x, 0), TO) == "2 (2 to 2)"
    assert with_interval(Estimate(2.0)) == "2"
    assert with_interval(Estimate(math.nan, 1.0, 2.0)) == "-"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "environment", "1 environment"), (0, "seed", "0 seeds"), (1024, "minibatch", "1,024 minibatches"),
     (2, "epoch", "2 epochs"), (1, "minibatch", "1 minibatch")],
)  # fmt: skip
def test_plurals(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4095, "4,095"), (4095.4, "4,095"), (999.7, "1,000"), (8, "8"), (0.888889, "0.889"), (1e-8, "1e-08"),
     (math.inf, "inf"), (-12345.6, "-12,346")],
)  # fmt: skip
def test_large_numbers_have_no_exponent(value: float, text: str) -> None:
    assert rounded(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0, "0.0"), (-0.04, "-0.04"), (0.523, "0.523"), (0.00012, "0.00012"), (1.456, "1.46"),
     (-9.5, "-9.50"), (500, "500.0"), (-1234.56, "-1,234.6"), (None, "-"), (math.nan, "-"), (-math.inf, "-inf")],
)  # fmt: skip
def test_digits_by_magnitude(value: float | None, text: str) -> None:
    """Returns between 0 and 1 are told apart, and nothing is -0.0."""
    assert by_magnitude(value) == text
    assert number(-0.04) == "0.0"


def test_settings_of_any_kind_have_a_text() -> None:
    assert [setting_text(x) for x in (0.00123456, 12345.6, 8, "ewma", None)] == [
        "0.001235",
        "12,346",
        "8",
        "ewma",
        "None",
    ]
    assert setting_text(0.00123456, 6) == "0.00123456"


def test_parts_of_one_are_fractions() -> None:
    assert [fraction_text(x) for x in (1 / 16, 0.25, 1, 4.0)] == ["1/16", "1/4", "1", "4"]
    assert [fraction_text(x) for x in (0.3, 1.5, 0)] == ["0.3", "1.5", "0"]
