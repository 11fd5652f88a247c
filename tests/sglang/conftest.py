"""SGLang's own processors, built without a model or a GPU; skipped by name where SGLang is missing."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest


def _installed(distribution: str) -> bool:
    # By its metadata: this very folder, seen from its parent, would be found as a package of the name.
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


NEEDS_SGLANG = pytest.mark.skipif(
    not _installed("sglang"), reason="sglang is not installed (pip install sglang==0.5.23)"
)


@pytest.fixture(scope="session")
def server_args() -> Iterator[Any]:
    """SGLang's settings, published to its process-wide context as a launch would."""
    import sglang.srt.runtime_context as runtime_context
    from sglang.srt.server_args import ServerArgs

    saved = runtime_context.snapshot_context()
    args = ServerArgs(
        model_path="none",
        device="cpu",
        skip_tokenizer_init=True,
        mm_process_config={},
        mm_io_worker_num=4,
        mm_processor_worker_num=1,
    )
    runtime_context.get_context().set_server_args(args)
    yield args
    runtime_context.restore_context(saved)


@pytest.fixture(scope="session")
def inkling_config() -> SimpleNamespace:
    """An Inkling checkpoint's configuration with the vision tower on and the audio tower off."""
    return SimpleNamespace(
        architectures=["InklingForConditionalGeneration"],
        vision_config=SimpleNamespace(decoder_dmodel=64, patch_size=40),
        audio_config=None,
        image_token_id=None,
    )


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    """`monkeypatch` for a whole module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    """A pool that an operator would have started, named `sglang-test`.

    It has all CPUs, so it must be gone before another module starts a pool of its own.
    """
    import sglang_mm_ray as smr

    pool = smr.PreprocessPool.start("sglang-test", model="inkling", num_workers=1, address="local")
    yield pool
    pool.stop()
