"""The closed form for two unknowns against scipy's solver for any number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from reshape_controller.fits.convergence import solve
from tests.support.gate import examples


@given(
    points=st.lists(
        st.tuples(st.floats(0.0, 1.0), st.floats(0.15, 1.0), st.floats(0.2, 1.0)),
        min_size=5,
        max_size=20,
        unique_by=lambda point: round(point[0], 2),
    ),
    b2=st.floats(0.0, 0.1),
)
@settings(max_examples=examples(200), deadline=None)
def test_the_closed_form_is_the_non_negative_least_squares(
    points: list[tuple[float, float, float]], b2: float
) -> None:
    steps, gaps, weight = (np.array(column) for column in zip(*points, strict=True))
    rest = gaps - b2
    row = weight * rest**2
    matrix = np.stack([steps * row, row], axis=1)
    _, expected = nnls(matrix, row / rest)
    found = solve(steps, gaps, weight, np.array([b2]))[0]
    assert np.all(found >= 0.0)
    assert np.linalg.norm(matrix @ found - row / rest) == pytest.approx(
        expected, rel=1e-6, abs=1e-9
    )
