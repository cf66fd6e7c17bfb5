from typing import Any, Optional, final

def read_job(text: str, name: str) -> JobSummary: ...
def codecs() -> list[CodecInfo]: ...
def canonical_spec(spec: str) -> str: ...
def momentum_with(uplink: str, downlink: str, momentum: float) -> float: ...
def decoded_size(frames: bytes) -> int: ...
def decode_add(frames: bytes, address: int, elements: int) -> None: ...

@final
class JobSummary:
    name: str
    mode: str
    workers: int
    shards: int
    uplink: str
    downlink: str
    shards_update: bool
    sends_weights: bool
    local_steps: int
    outer_optimizer: str
    outer_lr: float
    outer_momentum: float
    fragments: int
    fragment_delay: int
    merge_alpha: float
    merge_weights: str
    checkpoints: bool
    waits_for_all: bool

@final
class Joined:
    rank: int
    world_size: int
    first_step: int
    restored_step: int
    restored: bytes
    parameters_agree: bool

@final
class StepResult:
    step: int
    n_min: int
    n_max: int
    bundles: int
    bundles_skipped_here: int
    first_skipped_tensor: str
    without_mean: list[int]
    buffers_averaged: bool
    checkpoint_due: bool
    staleness: int
    steps_behind: int

@final
class Figures:
    step: int
    steps: int
    bytes_up: int
    bytes_down: int
    dense_bytes: int
    skipped_bundles: int
    encode_seconds: float
    decode_seconds: float
    exposed_seconds: float

@final
class CodecInfo:
    name: str
    example: str
    summary: str

@final
class Session:
    def __init__(
        self,
        job: str,
        job_name: str,
        coordinator: str,
        rank: int,
        join_timeout: float,
        token_file: str = ...,
        tls_cert: str = ...,
        tls_key: str = ...,
        tls_ca: str = ...,
        threads: int = ...,
    ) -> None: ...
    def join(self, tensors: list[tuple[str, list[int], list[int], int, bool]], parameters_sha256: bytes) -> Joined: ...
    def agree_on_parameters(self, places: list[tuple[int, int]]) -> None: ...
    def buffers_due(self) -> bool: ...
    def parts_due(self) -> list[tuple[int, int, int]]: ...
    def set_work(self, samples: int, steps: int) -> None: ...
    def submit(self, tensor: int, address: int, elements: int, type: int, scale: float) -> None: ...
    def skip(self) -> None: ...
    def wait_for_tensors(self, seconds: float) -> list[tuple[int, bool]]: ...
    def wait_for(self, seconds: float) -> Optional[StepResult]: ...
    def apply(self, tensor: int, address: int, elements: int, type: int, scale: float) -> None: ...
    def apply_update(self, tensor: int, address: int, elements: int) -> None: ...
    def save_checkpoint(self, state: bytes) -> None: ...
    def save_compressor(self, places: list[tuple[int, int]]) -> bytes: ...
    def restore_compressor(self, rest: bytes, places: list[tuple[int, int]]) -> None: ...
    def wants_weights(self, step: int, is_last: bool) -> bool: ...
    def publish_weights(self, step: int, places: list[tuple[int, int]], is_last: bool) -> None: ...
    def report_parameters(self, step: int, sha256: bytes) -> None: ...
    def leave(self) -> None: ...
    def abandon(self, reason: str) -> None: ...
    def close(self) -> None: ...
    def figures(self) -> Figures: ...
    def job(self) -> JobSummary: ...
    def take_log(self) -> list[tuple[int, str, str]]: ...

@final
class FollowedVersion:
    step: int
    term: int
    changed: int
    received_bytes: int
    def rows(self) -> list[tuple[str, list[int], int]]: ...
    def copy_to(self, address: int) -> None: ...

@final
class Follower:
    def __init__(
        self,
        address: str,
        type: int,
        patience: float,
        token_file: str = ...,
        tls_cert: str = ...,
        tls_key: str = ...,
        tls_ca: str = ...,
    ) -> None: ...
    def next(self) -> Optional[FollowedVersion]: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...
    def take_log(self) -> list[tuple[int, str, str]]: ...

@final
class Codec:
    @staticmethod
    def create(spec: str, shape: list[int], seed: int, sender: int) -> Codec: ...
    def encode(self, gradient: Any) -> bytes: ...
    def residual(self, address: int, elements: int) -> None: ...
    @property
    def spec(self) -> str: ...
