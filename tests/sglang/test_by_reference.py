"""Features travel as tickets; the ledger lets go when all readers have them, or when their time is up."""

from __future__ import annotations

import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra: sglang)")
import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

from sglang_mm_ray.errors import ResultLost  # noqa: E402
from sglang_mm_ray.sglang.backend import Feature  # noqa: E402
from sglang_mm_ray.sglang.by_reference import (  # noqa: E402
    Ledger,
    ReferencedTensor,
    Ticket,
    fetch,
    open_desk,
    tensor_of,
)
from sglang_mm_ray.sglang.features import FeatureSender, reader_count  # noqa: E402
from sglang_mm_ray.sglang.settings import Settings  # noqa: E402


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_last_expected_reader_takes_the_entry_away() -> None:
    ledger = Ledger(_Clock())
    ledger.hold("a", "value", readers=2, lease_s=10)
    assert [ledger.take("a"), ledger.take("a"), ledger.take("a")] == ["value", "value", None]
    assert len(ledger) == 0


def test_a_lease_ends_for_what_nobody_fetched() -> None:
    clock = _Clock()
    ledger = Ledger(clock)
    for index in range(40):
        ledger.hold(str(index), index, readers=4, lease_s=10)
    clock.now_s += 9.9
    assert ledger.take("0") == 0
    clock.now_s += 0.2
    assert ledger.expire() == 40
    assert ledger.take("1") is None
    assert len(ledger) == 0


def test_a_cancelled_request_lets_go_at_once() -> None:
    ledger = Ledger(_Clock())
    ledger.hold("a", 1, readers=8, lease_s=10)
    ledger.drop(["a", "unknown"])
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("fields", "readers"),
    [
        ({}, 1),
        ({"tp_size": 8}, 8),
        ({"tp_size": 8, "pp_size": 2}, 16),
        ({"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}, 2),
        ({"tp_size": 4, "dp_size": 2}, 4),
    ],
)
def test_readers_follow_sglangs_own_settings(fields: dict[str, Any], readers: int) -> None:
    assert reader_count(SimpleNamespace(**fields)) == readers


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("names", [("patches",), ("patches", "mask")])
def test_a_ticket_finds_its_tensor_beside_others_and_beside_other_images(
    shared: bool, names: tuple[str, ...]
) -> None:
    held: dict[str, Any] = {}
    desk = SimpleNamespace(hold=SimpleNamespace(remote=lambda features, *_: held.update(features)))
    images = [
        {name: np.full((place + 1, 2), 10 * place + at, np.float32) for at, name in enumerate(names)}
        for place in range(3)
    ]
    values = [tuple(image.values()) if len(names) > 1 else image["patches"] for image in images]
    sender = FeatureSender(Settings(features="reference", readers=1), None)
    sender._desk = ("desk", desk)
    for place, image in enumerate(images):
        ref = tuple(values) if shared else values[place]
        path = (place,) if shared else ()
        dtypes = dict.fromkeys(names, "float32")
        feature = Feature(bytes(32), 1, (1, 1, 1), 1, image, dtypes, ref, path)
        for name in names:
            tensor = sender.tensor(feature, name)
            ticket = pickle.loads(pickle.dumps(tensor.ticket))
            [stored] = held[ticket.feature_id]
            assert torch.equal(tensor_of(stored, ticket), torch.from_numpy(image[name]))
            assert torch.equal(tensor.as_subclass(torch.Tensor), torch.from_numpy(image[name]))


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[str]]:
    """Three raylets on this machine; the ids of the two that are not the driver's."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 200 << 20})
    others = [cluster.add_node(num_cpus=2, object_store_memory=200 << 20) for _ in range(2)]
    ray.init(address=cluster.address, namespace="sglang-mm-ray", log_to_driver=False)
    cluster.wait_for_nodes()
    yield [node.node_id for node in others]
    ray.shutdown()
    cluster.shutdown()


@ray.remote(num_cpus=1)
class _Scheduler:
    """Stands in for one of SGLang's scheduler processes: it receives pickled requests."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def receive(self, message: bytes, forward: bool = False) -> tuple[bytes, list[int], str, bytes]:
        import pickle

        import torch

        feature = pickle.loads(message)
        self._kept.append(feature)
        again = pickle.dumps(feature) if forward else b""
        plain = feature[:1]
        assert type(plain) is torch.Tensor, "operations give plain tensors"
        bits = feature[:, 0].contiguous().view(torch.int16).numpy().tobytes()
        return bits, list(feature.shape), str(feature.dtype), again

    def finish(self) -> None:
        self._kept.clear()


class _SlowlyTaken(OrderedDict[str, Any]):
    """Gives the other readers time while one of them has an entry in hand."""

    def pop(self, *args: Any) -> Any:
        entry = super().pop(*args)
        time.sleep(0.02)
        return entry


def test_readers_that_take_at_the_same_time_all_get_it() -> None:
    ledger = Ledger()
    ledger._held = _SlowlyTaken()
    ledger.hold("a", "value", readers=8, lease_s=60)
    with ThreadPoolExecutor(8) as readers:
        assert list(readers.map(ledger.take, ["a"] * 8)) == ["value"] * 8
    assert ledger.take("a") is None


def _sender(readers: int) -> tuple[FeatureSender, Any, np.ndarray]:
    settings = Settings(features="reference", readers=readers, timeout_s=20, lease_s=60)
    patches = np.random.default_rng(5).integers(0, 1 << 15, (40, 40, 40, 3), np.uint16)
    ref = ray.put(patches)
    feature = Feature(bytes(32), 1, (1, 5, 8), 40, {"patches": ray.get(ref)}, {"patches": "bfloat16"}, ref)
    return FeatureSender(settings, None), feature, patches


def test_readers_on_other_nodes_get_the_same_bits_for_a_small_message(cluster: list[str]) -> None:
    sender, feature, patches = _sender(readers=4)
    tensor = sender.tensor(feature, "patches", "inkling", 2)
    assert tensor.shape == (40, 2, 40, 40, 3)
    message = pickle.dumps(tensor)
    assert len(message) < 1000 < patches.nbytes // 100
    schedulers = [
        _Scheduler.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for node in cluster
        for _ in range(2)
    ]
    # As SGLang sends it: to the first by socket, and from there to the others as a broadcast.
    bits, shape, dtype, again = ray.get(schedulers[0].receive.remote(message, True))
    assert len(again) < 1000
    replies = [(bits, shape, dtype, b""), *ray.get([s.receive.remote(again) for s in schedulers[1:]])]
    for found, shape, dtype, _ in replies:
        assert found == patches.tobytes()
        assert shape == [40, 2, 40, 40, 3]
        assert dtype == "torch.bfloat16"
    with pytest.raises(ResultLost, match="READERS"):
        pickle.loads(message)
    for scheduler in schedulers:
        ray.kill(scheduler)


def test_a_reader_that_overtakes_the_sender_waits_for_it(cluster: list[str]) -> None:
    _, feature, patches = _sender(readers=2)
    hold_later = threading.Timer(0.2, lambda: desk.hold.remote({"late": [feature.ref]}, 2, 60.0))
    name, desk = open_desk()
    ticket = Ticket(name, "late", (), "bfloat16", "stored", 1, "auto", 5.0)
    hold_later.start()
    with ThreadPoolExecutor(2) as readers:
        found = list(readers.map(fetch, [ticket, ticket]))
    hold_later.join()
    for tensor in found:
        assert tensor.as_subclass(torch.Tensor).view(torch.int16).numpy().tobytes() == patches.tobytes()
    ray.kill(desk)


def test_a_desk_without_the_feature_is_a_typed_miss(cluster: list[str]) -> None:
    ticket = Ticket("no-such-desk", "x", (), "bfloat16", "stored", 1, "auto", 5.0)
    lost = pickle.dumps(ReferencedTensor.wrap(torch.zeros(1), ticket, None))
    with pytest.raises(ResultLost):
        pickle.loads(lost)


def test_nothing_is_held_once_all_readers_and_the_sender_let_go(cluster: list[str]) -> None:
    import gc
    import time

    sender, feature, _ = _sender(readers=1)
    tensor = sender.tensor(feature, "patches", "inkling", 2)
    [reader] = [_Scheduler.remote()]
    ray.get(reader.receive.remote(pickle.dumps(tensor)))
    assert sender._desk is not None
    assert ray.get(sender._desk[1].held.remote()) == 0
    ref_hex = feature.ref.hex()
    del tensor, feature
    ray.get(reader.finish.remote())
    gc.collect()

    def referenced() -> bool:
        counts = ray._private.worker.global_worker.core_worker.get_all_reference_counts()
        return ref_hex in counts

    deadline = time.monotonic() + 20
    while referenced() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not referenced()
    ray.kill(reader)
