"""The CPU matmuls against numpy on independently decoded weights, and against themselves, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from encoded_weights import FLOAT_FORMATS, INTEGER_FORMATS, block_inputs, dequantized, random_weight
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from sapwood.kernels import _cpu

Floats = NDArray[np.float32]
ROW_COUNTS = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33, 63, 64, 65, 130]


@pytest.fixture(params=_cpu.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _cpu.current_isa()
    _cpu.set_isa(request.param)
    yield request.param
    _cpu.set_isa(before)


def packed(name: str, rows: NDArray[np.uint8], in_size: int) -> _cpu.PackedMatrix:
    return _cpu.PackedMatrix(name, rows, in_size, 1)


def product(weights: _cpu.PackedMatrix, x: Floats, columns: tuple[int, int] | None = None) -> Floats:
    """x @ weights.T in a poisoned output."""
    begin, end = columns or (0, weights.shape[0])
    out = np.full((len(x), weights.shape[0]), np.nan, np.float32)
    _cpu.gemm(weights, _cpu.Activations.of(weights, x), out, begin, end)
    return out


def random_rows(rows: int, in_size: int, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, in_size), dtype=np.float32) * rng.uniform(0.1, 10, (rows, 1)).astype(np.float32)


def int8_activations(x: Floats) -> NDArray[np.float64]:
    """What is left of x after quantization to 8 bits by groups of 32."""
    groups = x.reshape(len(x), -1, 32)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    q = np.rint(groups * inverse)
    return (q.astype(np.float64) * (largest / np.float32(127))).reshape(x.shape)


def bf16_activations(x: Floats) -> NDArray[np.float64]:
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)
    return rounded.view(np.float32).astype(np.float64)


def expected(name: str, rows: NDArray[np.uint8], x: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The product in float64, and the size of its terms, to which rounding errors are relative."""
    weights = dequantized(name, rows).astype(np.float64)
    if name in FLOAT_FORMATS:
        weights, acts = bf16_activations(weights.astype(np.float32)), bf16_activations(x)
    else:
        acts = int8_activations(x)
    return acts @ weights.T, np.abs(acts) @ np.abs(weights).T


@pytest.mark.parametrize("name", INTEGER_FORMATS)
def test_packing_moves_bits_and_loses_none(name: str) -> None:
    in_size = 3 * block_inputs(name)
    rows = random_weight(name, 37, in_size)
    weights = packed(name, rows, in_size)
    out = np.full(in_size, np.nan, np.float32)
    for row, reference in enumerate(dequantized(name, rows)):
        weights.dequantize_row(row, out)
        np.testing.assert_array_equal(out, reference)


@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_float_formats_are_kept_as_bfloat16(name: str) -> None:
    rows = random_weight(name, 19, 33)
    weights = packed(name, rows, 33)
    out = np.full(33, np.nan, np.float32)
    for row, reference in enumerate(dequantized(name, rows)):
        weights.dequantize_row(row, out)
        np.testing.assert_array_equal(out, bf16_activations(reference).astype(np.float32))


@pytest.mark.parametrize("name", FLOAT_FORMATS + INTEGER_FORMATS)
def test_products_match_numpy_for_odd_shapes(name: str, isa: str) -> None:
    for out_size, blocks, num_rows in [(1, 1, 1), (16, 2, 4), (37, 3, 17), (83, 1, 130), (160, 5, 9)]:
        in_size = 64 * blocks + blocks % 2 if name in FLOAT_FORMATS else block_inputs(name) * blocks
        rows, x = random_weight(name, out_size, in_size), random_rows(num_rows, in_size)
        reference, size = expected(name, rows, x)
        got = product(packed(name, rows, in_size), x)
        assert np.all(np.abs(got - reference) <= 2e-6 * size + 1e-30)


@pytest.mark.parametrize("name", FLOAT_FORMATS[:1] + INTEGER_FORMATS)
def test_a_row_has_the_same_bits_in_any_company(name: str, isa: str) -> None:
    in_size = 256 * 2
    weights = packed(name, random_weight(name, 100, in_size), in_size)
    x = random_rows(max(ROW_COUNTS), in_size)
    alone = np.concatenate([product(weights, x[r : r + 1]) for r in range(len(x))])
    for num_rows in ROW_COUNTS:
        np.testing.assert_array_equal(product(weights, x[:num_rows]), alone[:num_rows])
        np.testing.assert_array_equal(product(weights, x[-num_rows:]), alone[-num_rows:])


@pytest.mark.parametrize("name", FLOAT_FORMATS[:1] + INTEGER_FORMATS)
def test_a_range_of_columns_has_the_same_bits_and_leaves_the_others_alone(name: str, isa: str) -> None:
    weights = packed(name, random_weight(name, 131, 256), 256)
    for num_rows in (1, 3, 70):
        x = random_rows(num_rows, 256)
        whole = product(weights, x)
        for begin, end in [(0, 16), (16, 96), (48, 131), (128, 131), (64, 64)]:
            part = product(weights, x, (begin, end))
            np.testing.assert_array_equal(part[:, begin:end], whole[:, begin:end])
            assert np.isnan(part[:, :begin]).all() and np.isnan(part[:, end:]).all()


@pytest.mark.parametrize("name", INTEGER_FORMATS)
def test_integer_formats_have_the_same_bits_in_every_instruction_set(name: str) -> None:
    weights = packed(name, random_weight(name, 50, 512), 512)
    x = random_rows(20, 512)
    before, results = _cpu.current_isa(), []
    for isa_name in _cpu.available_isas():
        _cpu.set_isa(isa_name)
        results.append(product(weights, x))
    _cpu.set_isa(before)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("name", ["F32", "Q4_1", "Q6_K"])
def test_accumulating_adds_to_what_is_there(name: str, isa: str) -> None:
    weights = packed(name, random_weight(name, 40, 256), 256)
    x = random_rows(5, 256)
    before = random_rows(5, 40, seed=2)
    out = before.copy()
    _cpu.gemm(weights, _cpu.Activations.of(weights, x), out, 0, 40, accumulate=True)
    np.testing.assert_array_equal(out, before + product(weights, x))


def test_packing_with_threads_gives_the_same_matrix() -> None:
    rows, x = random_weight("Q4_K", 530, 256), random_rows(2, 256)
    alone, shared = (_cpu.PackedMatrix("Q4_K", rows, 256, threads) for threads in (1, 3))
    np.testing.assert_array_equal(product(alone, x), product(shared, x))


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0"])
def test_a_row_of_zeros_gives_zeros(name: str, isa: str) -> None:
    weights = packed(name, random_weight(name, 32, 64), 64)
    x = random_rows(3, 64)
    x[1] = 0
    assert not product(weights, x)[1].any()


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(INTEGER_FORMATS),
    out_size=st.integers(1, 70),
    blocks=st.integers(1, 3),
    num_rows=st.integers(1, 130),
    scale=st.floats(1e-20, 1e20),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_magnitude_matches_numpy(
    name: str, out_size: int, blocks: int, num_rows: int, scale: float, seed: int
) -> None:
    in_size = block_inputs(name) * blocks
    rows = random_weight(name, out_size, in_size, seed)
    x = random_rows(num_rows, in_size, seed) * np.float32(scale)
    reference, size = expected(name, rows, x)
    assert np.all(np.abs(product(packed(name, rows, in_size), x) - reference) <= 2e-6 * size + 1e-30)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 256"):
        _cpu.PackedMatrix("Q4_K", np.zeros((1, 18), np.uint8), 32, 1)
    with pytest.raises(ValueError, match="unknown weight format"):
        _cpu.PackedMatrix("Q9_X", np.zeros((1, 18), np.uint8), 32, 1)
    with pytest.raises(ValueError, match="wrong number of bytes"):
        _cpu.PackedMatrix("Q4_0", np.zeros((1, 17), np.uint8), 32, 1)
    weights = packed("Q4_0", random_weight("Q4_0", 32, 64), 64)
    with pytest.raises(ValueError, match="range of columns"):
        product(weights, random_rows(1, 64), (8, 32))


def test_an_unknown_instruction_set_is_refused_and_changes_nothing() -> None:
    before = _cpu.current_isa()
    with pytest.raises(ValueError, match="unknown instruction set 'mmx'"):
        _cpu.set_isa("mmx")
    assert _cpu.current_isa() == before
    assert before in _cpu.available_isas()
