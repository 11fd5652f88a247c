"""A short run of the chaos; `tests/chaos.py` says how to run it for minutes."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(900)
def test_every_result_is_right_and_nothing_leaks_whatever_dies(capsys: pytest.CaptureFixture[str]) -> None:
    import ray
    from chaos import Chaos

    if ray.is_initialized():
        ray.shutdown()
    seconds = float(os.environ.get("SGLANG_MM_RAY_CHAOS_SECONDS", "25"))
    chaos = Chaos(seed=int(os.environ.get("SGLANG_MM_RAY_CHAOS_SEED", "7")), seconds=seconds)
    told = chaos.run()
    with capsys.disabled():
        print("\n" + chaos.percentiles())
    assert told["images right"] > 0 and told["requests"] > 0
    assert sum(told[fault] for fault in ("kill_worker", "stop_worker", "lose_node", "kill_controller")) > 0
