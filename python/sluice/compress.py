# SPDX-License-Identifier: Apache-2.0
"""Codecs without a job: what a codec does to a tensor, on NumPy arrays and PyTorch tensors.

A codec spec is the line that a job file has, such as ``"int8"`` or ``"topk:1%+int4"`` (docs/compression.md lists them).
Neither a server nor PyTorch is needed.

    >>> import numpy as np, sluice.compress
    >>> frame = sluice.compress.encode(np.ones(1000, dtype=np.float32), "int8")
    >>> float(sluice.compress.decode(frame)[0])
    1.0
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _sluice
from ._errors import SluiceError

__all__ = ["Codec", "CodecInfo", "Frame", "Report", "codecs", "decode", "encode", "error"]

FloatArray = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class CodecInfo:
    """A codec.

    Attributes:
        name: The first word of its specs.
        example: A whole spec that works.
        summary: One line about it.
    """

    name: str
    example: str
    summary: str


@dataclasses.dataclass(frozen=True)
class Frame:
    """An encoded tensor.

    Attributes:
        data: The bytes that would travel (docs/wire-format.md).
        shape: The shape of the tensor that was encoded.
        spec: The codec spec in its canonical form.
    """

    data: bytes
    shape: tuple[int, ...]
    spec: str

    def __len__(self) -> int:
        """Returns the number of bytes."""
        return len(self.data)


@dataclasses.dataclass(frozen=True)
class Report:
    """What one encoding of a tensor loses and costs.

    Attributes:
        bits_per_element: Bits that travel for each element.
        relative_error: ``|x - decoded|^2 / |x|^2``; 0 for a tensor of zeros.
        cosine: The cosine of the angle between x and what was decoded; 1 for a tensor of zeros.
        encode_ns: Nanoseconds for each element to encode it.
        decode_ns: Nanoseconds for each element to decode it.
    """

    bits_per_element: float
    relative_error: float
    cosine: float
    encode_ns: float
    decode_ns: float


def codecs() -> list[CodecInfo]:
    """Returns all codecs, in the order in which ``sluice codecs`` prints them."""
    return [CodecInfo(c.name, c.example, c.summary) for c in _sluice.codecs()]


def _as_array(x: Any) -> FloatArray:
    """Returns `x` as a C-contiguous float32 array; shares its memory where it is one."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        x = x.detach().to("cpu", torch.float32).numpy()
    array = np.asarray(x)
    if array.dtype.kind not in "fiu":
        raise SluiceError(
            f"a codec takes numbers, and this array has dtype {array.dtype}: convert it to float32", code="INVALID_ARGUMENT"
        )
    if array.size == 0:
        raise SluiceError(f"a codec takes at least one element, and the shape is {array.shape}", code="INVALID_ARGUMENT")
    return np.ascontiguousarray(array, dtype=np.float32)


def _dimensions(shape: Sequence[int]) -> list[int]:
    return [int(n) for n in shape] or [1]


class Codec:
    """One sender's encodings of one tensor, step by step.

    What compression drops of a gradient stays in `residual`, and goes out in a later step, as the spec says. This is error
    feedback: Karimireddy et al. (2019), "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", arXiv:1901.09847.
    docs/compression.md says where the papers of the codecs are cited.

    Args:
        spec: A codec spec.
        shape: The shape of the tensor. Some codecs see a matrix in it.
        seed: Of codecs that round at random. Equal seeds give equal frames.
        sender: The rank of the sender, by which random numbers differ.

    Raises:
        SluiceError: The spec is wrong; the message points at the character.
    """

    def __init__(self, spec: str, shape: Sequence[int], *, seed: int = 0, sender: int = 0) -> None:
        self._shape = tuple(int(n) for n in shape)
        self._core = _sluice.Codec.create(spec, _dimensions(shape), seed, sender)

    @property
    def spec(self) -> str:
        """The codec spec in its canonical form."""
        return self._core.spec

    def encode(self, gradient: Any) -> Frame:
        """Encodes the gradient of the next step.

        Args:
            gradient: A NumPy array or a PyTorch tensor of the codec's shape.

        Returns:
            The frame that a sender would send.

        Raises:
            SluiceError: The shape is another one, or an element is not finite. The codec has not changed then.
        """
        array = _as_array(gradient)
        if array.shape != self._shape:
            raise SluiceError(
                f"the codec was made for shape {self._shape}, and this tensor has {array.shape}", code="INVALID_ARGUMENT"
            )
        return Frame(self._core.encode(array), self._shape, self.spec)

    @property
    def residual(self) -> FloatArray:
        """What was dropped so far and will be sent later, float32, in the codec's shape. It is a copy."""
        residual = np.zeros(self._shape, dtype=np.float32)
        self._core.residual(residual.ctypes.data, residual.size)
        return residual


def encode(x: Any, spec: str, *, seed: int = 0) -> Frame:
    """Encodes a tensor once, without a memory of earlier steps.

    Args:
        x: A NumPy array or a PyTorch tensor of numbers. It is converted to float32.
        spec: A codec spec.
        seed: Of codecs that round at random.

    Returns:
        The frame. `decode` reads it.

    Raises:
        SluiceError: The spec is wrong, or an element of `x` is not finite.
    """
    array = _as_array(x)
    return Codec(spec, array.shape, seed=seed).encode(array)


def decode(frame: Frame | bytes, *, out: FloatArray | None = None) -> FloatArray:
    """Returns what a receiver reads from a frame.

    Args:
        frame: A `Frame`, or bytes of one or more frames. Bytes give a flat array.
        out: Where the values go: a C-contiguous float32 array of the right size. By default a new array.

    Raises:
        SluiceError: The bytes are no frames, or `out` does not fit.
    """
    data = frame.data if isinstance(frame, Frame) else frame
    if out is None:
        shape = frame.shape if isinstance(frame, Frame) else (_sluice.decoded_size(data),)
        out = np.zeros(shape, dtype=np.float32)
    elif out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
        raise SluiceError("`out` must be a writeable, C-contiguous array of float32", code="INVALID_ARGUMENT")
    else:
        out.fill(0)
    _sluice.decode_add(data, out.ctypes.data, out.size)
    return out


def error(x: Any, spec: str, *, seed: int = 0) -> Report:
    """Measures what one encoding of a tensor loses and costs.

    Args:
        x: A NumPy array or a PyTorch tensor.
        spec: A codec spec.
        seed: Of codecs that round at random.

    Returns:
        Bits, error, angle and times of the encoding.

    Raises:
        SluiceError: As `encode`.
    """
    array = _as_array(x)
    began = time.perf_counter_ns()
    frame = encode(array, spec, seed=seed)
    encoded = time.perf_counter_ns()
    decoded = decode(frame).astype(np.float64).ravel()
    ended = time.perf_counter_ns()
    exact = array.astype(np.float64).ravel()
    norm, sent = math.sqrt(float(exact @ exact)), math.sqrt(float(decoded @ decoded))
    lost = exact - decoded
    same = norm == 0 and sent == 0
    return Report(
        bits_per_element=8 * len(frame) / array.size,
        relative_error=float(lost @ lost) / norm**2 if norm > 0 else 0.0,
        cosine=1.0 if same else float(exact @ decoded) / (norm * sent) if norm > 0 and sent > 0 else 0.0,
        encode_ns=(encoded - began) / array.size,
        decode_ns=(ended - encoded) / array.size,
    )
