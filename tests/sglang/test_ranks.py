"""Ranks on real pickled broadcasts: what is lost fails one request, the same one in all ranks."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra: sglang)")
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sglang_mm_ray.sglang.by_reference import ReferencedTensor
from sglang_mm_ray.sglang.desk import Desk, Ticket
from sglang_mm_ray.sglang.layout import Layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

RANKS = 2
FRAMES = Layout(axis=1, copies=2, is_new=True)


class Ranks:
    """Processes that are no process of Ray's, as SGLang's schedulers are."""

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self._folder = folder
        self.sidecars: list[int] = []
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        program = str(Path(__file__).with_name("rank.py"))
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", program, str(rank), str(RANKS), str(folder / "meeting")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
            for rank in range(RANKS)
        ]
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"

    def receive(self, requests: list[Any]) -> list[str]:
        """What became of each request, which must be the same in all ranks."""
        message = self._folder / f"{time.monotonic_ns()}.pickle"
        message.write_bytes(pickle.dumps(requests))
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{message}\n")
            process.stdin.flush()
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            answers.append(json.loads(process.stdout.readline()))
        self.sidecars = [answer["sidecar"] for answer in answers]
        found: list[str] = answers[0]["requests"]
        assert [answer["requests"] for answer in answers] == [found] * RANKS, "ranks disagree"
        return found

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


class Scene:
    """A cluster of two nodes, and requests whose features lie on the second or on the driver's own."""

    def __init__(self, folder: Path) -> None:
        head = {"num_cpus": 2, "object_store_memory": 100 << 20}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.other = self.cluster.add_node(num_cpus=2, object_store_memory=100 << 20)
        ray.init(address=self.cluster.address, log_to_driver=False)
        self.cluster.wait_for_nodes()
        self.desk = Desk()
        self.ranks = Ranks(folder, self.cluster.address)
        self._seed = 0

    def request(self, *, readers: int = RANKS, lease_s: float = 60.0, ref: Any = None) -> tuple[Any, str]:
        """A request of two images, too large for a message of Ray's, and what each rank should have of it."""
        self._seed += 1
        arrays = [np.random.default_rng([self._seed, at]).random((300, 200), np.float32) for at in range(2)]
        wanted = hashlib.sha256()
        for array in arrays:
            wanted.update(np.repeat(array[:, None], 2, axis=1).tobytes())
        reference = ref(tuple(arrays)) if ref else ray.put(tuple(arrays))
        name, ids = self.desk.hold([reference] * 2, readers, lease_s, 20)
        items = []
        for place, feature_id in enumerate(ids):
            ticket = Ticket(name, feature_id, (place,), "float32", (300, 2, 200), FRAMES, self.ranks.address)
            items.append(SimpleNamespace(feature=ReferencedTensor.of(ticket)))
        request = SimpleNamespace(rid=str(self._seed), mm_inputs=SimpleNamespace(mm_items=items))
        request.address = self.ranks.address
        return request, wanted.hexdigest()

    def on_the_other_node(self, value: Any) -> Any:
        put = ray.remote(num_cpus=1)(lambda given: given)
        affinity = NodeAffinitySchedulingStrategy(self.other.node_id, soft=False)
        reference = put.options(scheduling_strategy=affinity, max_retries=0).remote(value)
        ray.wait([reference], fetch_local=False, timeout=60)
        return reference

    def kill_desk(self) -> None:
        assert self.desk._open is not None
        ray.kill(self.desk._open[1])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("ranks"))
    yield scene
    scene.ranks.close()
    ray.shutdown()
    scene.cluster.shutdown()


def _serves(scene: Scene, within_s: float = 0.0) -> None:
    """A request is right, after as many failures as the time allows."""
    until = time.monotonic() + within_s
    while True:
        request, wanted = scene.request()
        [found] = scene.ranks.receive([request])
        if found == wanted or time.monotonic() > until:
            break
        assert found == "failed"
        time.sleep(0.5)
    assert found == wanted


def test_all_ranks_get_the_same_bits(scene: Scene) -> None:
    near, near_wanted = scene.request()
    far, far_wanted = scene.request(ref=scene.on_the_other_node)
    assert scene.ranks.receive([near, far]) == [near_wanted, far_wanted]


def test_a_feature_that_one_rank_misses_fails_in_all(scene: Scene) -> None:
    short, _ = scene.request(readers=1)
    good, wanted = scene.request()
    assert scene.ranks.receive([short, good]) == ["failed", wanted]


def test_a_lease_that_ended_fails_its_request_alone(scene: Scene) -> None:
    late, _ = scene.request(lease_s=0.01)
    time.sleep(0.1)
    good, wanted = scene.request()
    assert scene.ranks.receive([good, late]) == [wanted, "failed"]


def test_a_desk_that_died_fails_what_it_held(scene: Scene) -> None:
    held, _ = scene.request()
    scene.kill_desk()
    good, wanted = scene.request()
    assert scene.ranks.receive([held, good]) == ["failed", wanted]


def test_a_rank_whose_sidecar_died_comes_back(scene: Scene) -> None:
    _serves(scene)
    os.kill(scene.ranks.sidecars[0], signal.SIGKILL)
    request, _ = scene.request()
    assert scene.ranks.receive([request]) == ["failed"]
    _serves(scene, 120)


def test_a_node_that_died_takes_only_what_lay_there(scene: Scene) -> None:
    far, _ = scene.request(ref=scene.on_the_other_node)
    scene.cluster.remove_node(scene.other, allow_graceful=False)
    # On one machine a sidecar may have joined by the raylet that is gone, which takes it along.
    _serves(scene, 120)
    good, wanted = scene.request()
    assert scene.ranks.receive([far, good]) == ["failed", wanted]
