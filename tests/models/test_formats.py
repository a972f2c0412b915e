"""Every format dequantizes to what the reference implementation (the `gguf` package) gives."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Format, Weight
from sapwood.kernels.formats import BLOCKS, dequantize, row_bytes


@pytest.mark.parametrize("fmt", list(Format))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_blocks_mean_the_same_numbers(fmt: Format) -> None:
    rows, width = 3, 512
    data = np.random.default_rng(1).integers(0, 256, (rows, row_bytes(fmt, width)), dtype=np.uint8)
    got = dequantize(Weight("w", fmt, (rows, width), data))
    expected = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[fmt.value])
    assert got.dtype == np.float32 and got.shape == (rows, width)
    np.testing.assert_array_equal(got, expected.reshape(rows, width))


def test_a_width_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ModelError, match="256 doesn't divide"):
        row_bytes(Format.Q4_K, 300)


def test_block_sizes_are_the_specification_s() -> None:
    for fmt, sizes in BLOCKS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[fmt.value]] == sizes
