# SPDX-License-Identifier: Apache-2.0
"""sluice.compress against NumPy, and against what error feedback promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import sluice
from sluice import compress

RANDOM = np.random.default_rng(1)


def normal(*shape: int) -> compress.FloatArray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_every_codec_has_an_example_that_works() -> None:
    found = compress.codecs()
    assert len(found) > 20
    x = normal(64, 40)
    for codec in found:
        frame = compress.encode(x, codec.example)
        assert len(frame) > 20, codec
        assert compress.encode(x, frame.spec).spec == frame.spec


def test_lossless_and_halves_are_those_of_numpy() -> None:
    x = normal(7, 11, 13)
    assert np.array_equal(compress.decode(compress.encode(x, "none")), x)
    assert np.array_equal(compress.decode(compress.encode(x, "fp16")), x.astype(np.float16).astype(np.float32))
    t = torch.from_numpy(x)
    assert np.array_equal(compress.decode(compress.encode(t, "bf16")), t.bfloat16().float().numpy())


def test_int8_is_within_half_a_level_of_its_block() -> None:
    x = normal(1000)
    decoded = compress.decode(compress.encode(x, "int8"))
    assert float(np.abs(decoded - x).max()) <= float(np.abs(x).max()) / 127 / 2 * 1.01


def test_topk_keeps_the_largest() -> None:
    x = normal(10_000)
    decoded = compress.decode(compress.encode(x, "topk_exact:1%"))
    kept = np.flatnonzero(decoded)
    assert len(kept) == 100
    assert set(kept) == set(np.argsort(-np.abs(x))[:100])


@pytest.mark.parametrize("spec", ["topk:5%+int4", "int4", "ternary:0.5", "fp16", "topk:1%"])
def test_nothing_is_lost_with_error_feedback(spec: str) -> None:
    codec = compress.Codec(spec, (40, 50))
    given, decoded = np.zeros((40, 50)), np.zeros((40, 50))
    for _ in range(20):
        gradient = normal(40, 50)
        given += gradient
        decoded += compress.decode(codec.encode(gradient))
    assert np.allclose(decoded + codec.residual, given, atol=2e-4)


def test_tensors_arrays_and_layouts_give_the_same_bytes() -> None:
    x = normal(30, 20)
    expected = compress.encode(x, "int4").data
    assert compress.encode(torch.from_numpy(x), "int4").data == expected
    assert compress.encode(np.asfortranarray(x), "int4").data == expected
    assert compress.encode(torch.from_numpy(x).requires_grad_(), "int4").data == expected
    assert compress.encode(x.astype(np.float64), "int4").data == expected


def test_seeds_and_scalars() -> None:
    x = normal(500)
    first = compress.encode(x, "int8:sr", seed=1).data
    assert compress.encode(x, "int8:sr", seed=1).data == first
    assert compress.encode(x, "int8:sr", seed=2).data != first
    assert compress.decode(compress.encode(np.float32(2.5), "none")) == np.float32(2.5)


def test_large_tensors_are_cut_into_chunks() -> None:
    x = normal(300_000)
    frame = compress.encode(x, "fp16")
    assert np.array_equal(compress.decode(frame), x.astype(np.float16).astype(np.float32))
    out = np.full(300_000, 7, dtype=np.float32)
    assert compress.decode(frame.data, out=out) is out
    assert np.array_equal(out, compress.decode(frame))


def test_the_report_of_an_error() -> None:
    x = normal(5000)
    exact = compress.error(x, "none")
    assert exact.relative_error == 0 and exact.cosine == pytest.approx(1)
    assert exact.bits_per_element == pytest.approx(32 + 160 / 5000)
    report = compress.error(x, "ternary:0.5")
    assert 0.1 < report.relative_error < 0.9 and report.bits_per_element < 2
    assert report.encode_ns > 0 and report.decode_ns > 0
    assert compress.error(np.zeros(10), "int8").cosine == 1.0


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(sluice.SluiceError, match="did you mean") as wrong:
        compress.encode(normal(5), "int9")
    assert wrong.value.code == "INVALID_ARGUMENT"
    with pytest.raises(sluice.SluiceError, match="not finite|is nan"):
        compress.encode(np.array([1.0, np.nan]), "int8")
    with pytest.raises(sluice.SluiceError, match="was made for shape"):
        compress.Codec("int8", (4,)).encode(normal(5))
    with pytest.raises(sluice.SluiceError, match="takes numbers"):
        compress.encode(np.array(["a"]), "int8")
    with pytest.raises(sluice.SluiceError, match="at least one element"):
        compress.encode(np.zeros((3, 0)), "int8")
    with pytest.raises(sluice.SluiceError):
        compress.decode(b"no frame at all, but long enough")
    damaged = bytearray(compress.encode(normal(100), "int8").data)
    damaged[40] ^= 1
    with pytest.raises(sluice.SluiceError) as refused:
        compress.decode(bytes(damaged))
    assert refused.value.code == "DATA_LOSS"
    with pytest.raises(sluice.SluiceError, match="do not hold a tensor of 7 elements"):
        compress.decode(compress.encode(normal(8), "int8").data, out=np.zeros(7, dtype=np.float32))
