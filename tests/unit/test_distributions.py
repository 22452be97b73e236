from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from sim.distributions import CountQuantity, Quantity, SpanQuantity, TokenQuantity


def draw(quantity: Quantity, size: int = 100_000) -> np.ndarray:
    return quantity.sample(np.random.default_rng(7), size)


LAWS = [
    5.5,
    {"dist": "constant", "value": 3, "offset": 1},
    {"dist": "uniform", "low": 2, "high": 6},
    {"dist": "exponential", "mean": 4.0},
    {"dist": "lognormal", "median": 300, "sigma": 0.5},
    {"dist": "lognormal", "mu": 6.39, "sigma": 0.4, "offset": 123},
    {"dist": "normal", "mean": 50, "sigma": 3},
    {"dist": "gamma", "mean": 2.0, "cv": 0.5},
    {"dist": "empirical", "values": (1, 2, 10), "weights": (1, 1, 2)},
    {
        "dist": "mixture",
        "weights": (0.3, 0.7),
        "parts": (4, {"dist": "gamma", "mean": 2.0, "cv": 1.0}),
        "offset": 2,
    },
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_mean_of_draws_is_the_closed_form(law: object) -> None:
    quantity = SpanQuantity.model_validate(law)
    drawn, mean = draw(quantity), quantity.mean()
    assert mean is not None
    error = drawn.std() / math.sqrt(drawn.size)
    assert abs(drawn.mean() - mean) <= 4 * error + 1e-9
    low, high = quantity.support()
    assert low <= drawn.min()
    assert drawn.max() <= high


def test_lognormal_by_median_and_by_mu_are_the_same_law() -> None:
    by_median = SpanQuantity.of({"dist": "lognormal", "median": 216, "sigma": 0.9})
    by_mu = SpanQuantity.of({"dist": "lognormal", "mu": math.log(216), "sigma": 0.9})
    assert np.allclose(draw(by_median), draw(by_mu))
    assert np.median(draw(by_median)) == pytest.approx(216, rel=0.02)


def test_clip_bites_and_leaves_no_closed_mean() -> None:
    law = {"dist": "lognormal", "median": 295, "sigma": 1.8, "min": 100, "max": 1000}
    quantity = TokenQuantity.of(law)
    drawn = draw(quantity)
    assert (drawn.min(), drawn.max()) == (100, 1000)
    assert quantity.mean() is None
    assert quantity.support() == (100, 1000)


def test_a_clip_that_never_bites_keeps_the_mean() -> None:
    law = {"dist": "uniform", "low": 1, "high": 3, "min": 0, "max": 9}
    assert SpanQuantity.of(law).mean() == 2


def test_tokens_are_whole_and_at_least_one() -> None:
    drawn = draw(TokenQuantity.of({"dist": "normal", "mean": 1, "sigma": 5}))
    assert drawn.dtype == np.int64
    assert drawn.min() == 1


def test_seconds_are_not_negative() -> None:
    assert draw(SpanQuantity.of({"dist": "normal", "mean": 0, "sigma": 5})).min() == 0


def test_the_wildest_tail_stays_finite() -> None:
    drawn = draw(TokenQuantity.of({"dist": "lognormal", "mu": 34, "sigma": 20}))
    assert drawn.max() == TokenQuantity.ceiling


def test_the_same_generator_gives_the_same_draws() -> None:
    quantity = TokenQuantity.of(LAWS[-1])  # type: ignore[arg-type]
    assert (draw(quantity, 50) == draw(quantity, 50)).all()


def test_a_constant_knows_that_it_is_one() -> None:
    assert TokenQuantity.of(3).is_constant
    assert not TokenQuantity.of(LAWS[3]).is_constant  # type: ignore[arg-type]


IMPOSSIBLE = [
    ({"dist": "lognormal", "median": 10, "sigma": -1}, "greater than or equal to 0"),
    ({"dist": "lognormal", "sigma": 1}, "either median or mu"),
    ({"dist": "lognormal", "median": 1, "mu": 0, "sigma": 1}, "either median or mu"),
    ({"dist": "lognormal", "median": 0, "sigma": 1}, "greater than 0"),
    ({"dist": "uniform", "low": 3, "high": 1}, "below low"),
    ({"dist": "uniform", "low": 1, "high": 3, "min": 5, "max": 4}, "below min"),
    ({"dist": "exponential", "mean": 0}, "greater than 0"),
    ({"dist": "empirical", "values": ()}, "at least 1 item"),
    ({"dist": "empirical", "values": (1, 2), "weights": (1,)}, "1 weights for 2 values"),
    ({"dist": "empirical", "values": (1, 2), "weights": (1, 0)}, "greater than 0"),
    ({"dist": "empirical", "values": (1, math.nan)}, "finite"),
    ({"dist": "mixture", "weights": (1,), "parts": ()}, "at least 1 item"),
    ({"dist": "mixture", "weights": (1, 1), "parts": (1,)}, "2 weights for 1"),
    ({"dist": "normal", "mean": math.inf, "sigma": 1}, "finite"),
    ({"dist": "uniform", "low": -5, "high": -1}, "at most -1"),
    ({"dist": "lognormal", "median": 5, "sigma": 1, "max": 0}, "at most 0"),
    ({"dist": "gauss", "mean": 1}, "does not match any of the expected tags"),
    ({"mean": 1}, "Unable to extract tag"),
    (-1, "at least 1"),
    (0, "at least 1"),
    (2.5, "whole number"),
    (10**12, "at most"),
    (10**400, "valid number"),
    (math.nan, "finite"),
    (math.inf, "finite"),
    (True, "number or a distribution"),
    ("5", "number or a distribution"),
    (None, "number or a distribution"),
    ((1, 2), "number or a distribution"),
]


@pytest.mark.parametrize(("law", "message"), IMPOSSIBLE, ids=lambda case: str(case)[:60])
def test_impossible_token_counts_are_refused(law: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TokenQuantity.model_validate(law)


def test_numbers_of_a_file(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    (folder / "plain.txt").write_text("# tokens\n3\n5\n\n7\n")
    (folder / "table.csv").write_text("name,tokens\na,3\nb,9\n")
    context = {"base": folder}
    law = {"dist": "file", "path": "plain.txt"}
    plain = TokenQuantity.model_validate(law, context=context)
    assert set(draw(plain).tolist()) == {3, 5, 7}
    assert plain.mean() == 5
    column = TokenQuantity.model_validate(
        {"dist": "file", "path": "table.csv", "column": "tokens"}, context=context
    )
    assert column.support() == (3, 9)
    dumped = plain.model_dump(mode="json")
    assert "path" not in dumped
    assert len(dumped["values_sha256"]) == 64


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", None, "no numbers"),
        ("1\nx\n", None, "value 2 is no number: 'x'"),
        ("1\nnan\n", None, "value 2 is out of range"),
        ("a,b\n1,2\n", "c", "no column 'c'; it has: a, b"),
    ],
)
def test_a_file_without_usable_numbers(
    tmp_path: object, text: str, column: str | None, message: str
) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "numbers.txt"
    path.write_text(text)
    with pytest.raises(ValidationError, match=message):
        TokenQuantity.model_validate({"dist": "file", "path": str(path), "column": column})


def test_counts_have_a_roof() -> None:
    with pytest.raises(ValidationError, match="at most"):
        CountQuantity.of(10**7)


def test_schema_allows_a_number_or_a_table() -> None:
    schema = TokenQuantity.model_json_schema()
    number, kinds = schema["anyOf"]
    assert number == {"type": "integer", "minimum": 1}
    assert len(kinds["oneOf"]) == 9
