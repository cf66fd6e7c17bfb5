# SPDX-License-Identifier: Apache-2.0
"""PyTorch tensors as the core takes them: an address, a number of elements, a type."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._errors import SluiceError

if TYPE_CHECKING:
    import torch

# Name, shape, strides in elements, element type, whether it is a buffer.
Row = tuple[str, list[int], list[int], int, bool]

FLOAT32 = 0


def element_type(tensor: torch.Tensor) -> int:
    """Returns the core's number of the tensor's type; float32 for a type that the core cannot read."""
    return _core_types().get(tensor.dtype, FLOAT32)


def _core_types() -> dict[torch.dtype, int]:
    """Returns the types that the core can read and write, with the core's numbers."""
    import torch

    return {torch.float32: FLOAT32, torch.bfloat16: 1, torch.float16: 2}


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Returns whether elements of these strides lie without gaps and overlaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted((st, n) for st, n in zip(strides, shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def describe(name: str, tensor: torch.Tensor) -> Row:
    """Returns the row of the tensor table for a parameter.

    Raises:
        SluiceError: The parameter cannot be exchanged. The message names it.
    """
    if not tensor.is_floating_point():
        raise SluiceError(
            f"parameter {name} has dtype {tensor.dtype}, and only floating-point parameters can be exchanged", code="INVALID_ARGUMENT"
        )
    if tensor.numel() == 0:
        raise SluiceError(f"parameter {name} has no elements: its shape is {tuple(tensor.shape)}", code="INVALID_ARGUMENT")
    shape = list(tensor.shape) or [1]
    strides = list(tensor.stride()) or [1]
    if not is_dense(shape, strides):
        strides = []
    return (name, shape, strides, element_type(tensor), False)


def _laid_as(tensor: torch.Tensor, row: Row) -> bool:
    """Returns whether the tensor lies in the host's memory as the row of the table says."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous() and not row[2]:
        return False
    strides = list(tensor.stride()) or [1]
    shape = row[1]
    return not row[2] or all(a == b for a, b, n in zip(strides, row[2], shape, strict=True) if n != 1)


def new(row: Row, dtype: torch.dtype, *, pinned: bool = False) -> torch.Tensor:
    """Returns memory of the host for a tensor as the row of the table says."""
    import torch

    if row[2]:
        return torch.empty_strided(row[1], row[2], dtype=dtype, pin_memory=pinned)
    return torch.empty(row[1], dtype=dtype, pin_memory=pinned)


def host_type(tensor: torch.Tensor) -> torch.dtype:
    """Returns the type in which the core reads or writes the tensor's values: its own if the core can, else float32."""
    import torch

    return tensor.dtype if tensor.dtype in _core_types() else torch.float32


def check_gradient(tensor: torch.Tensor, row: Row) -> None:
    """Checks that a tensor can be the gradient of a parameter.

    Raises:
        SluiceError: The tensor is sparse, or has another shape than the parameter.
    """
    import torch

    if tensor.layout != torch.strided:
        raise SluiceError(
            f"the gradient of {row[0]} is sparse, and only dense ones can be exchanged: "
            "make the layer's gradient dense (embeddings: sparse=False)",
            code="INVALID_ARGUMENT",
        )
    if (list(tensor.shape) or [1]) != row[1]:
        raise SluiceError(f"the gradient of {row[0]} has shape {tuple(tensor.shape)}, wanted {tuple(row[1])}", code="INVALID_ARGUMENT")


def to_host(tensor: torch.Tensor, row: Row) -> torch.Tensor:
    """Returns the tensor itself where the core can read it, else a copy in the host's memory that the core can read.

    Raises:
        SluiceError: The tensor is sparse, or has another shape than the parameter.
    """
    check_gradient(tensor, row)
    dtype = host_type(tensor)
    if tensor.dtype == dtype and _laid_as(tensor, row):
        return tensor
    copy = new(row, dtype)
    copy.copy_(tensor.detach().reshape(row[1]))
    return copy


def laid_out(tensor: torch.Tensor, row: Row) -> torch.Tensor:
    """Returns the values of a tensor in float32, in the host's memory, as the row of the table says."""
    import torch

    if tensor.dtype == torch.float32 and _laid_as(tensor, row):
        return tensor
    copy = new(row, torch.float32)
    copy.copy_(tensor.reshape(row[1]))
    return copy


def target_of(tensor: torch.Tensor, row: Row) -> torch.Tensor:
    """Returns where the core writes the mean: the tensor itself where it can, else a new tensor to copy from."""
    dtype = host_type(tensor)
    return tensor if tensor.dtype == dtype and _laid_as(tensor, row) else new(row, dtype)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Returns this rank's part of a tensor that FSDP shards, and any other tensor as it is."""
    part: torch.Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return part


def raw(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a dense tensor's values in row-major order."""
    import torch

    here: Any = local_part(tensor).detach().to("cpu").resolve_conj().resolve_neg().contiguous().reshape(-1)
    return memoryview(here.view(torch.uint8).numpy().data) if here.numel() else memoryview(b"")


def fill(tensor: torch.Tensor, data: memoryview) -> None:
    """Writes bytes as `raw` returns them into a dense tensor, on any device."""
    import torch

    if data:
        values = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(tensor.dtype)
        tensor.detach().copy_(values.reshape(tensor.shape))


def sha256(tensors: Sequence[torch.Tensor]) -> bytes:
    """Returns 32 bytes over the values of the tensors, in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(raw(tensor))
    return digest.digest()
