"""Features travel as tickets; the ledger lets go when all readers have them, or when their time is up."""

from __future__ import annotations

import pickle
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
from sglang_mm_ray.sglang.by_reference import PendingFeature, ReferencedTensor  # noqa: E402
from sglang_mm_ray.sglang.desk import Desk, Ledger, Ticket, take  # noqa: E402
from sglang_mm_ray.sglang.features import reader_count  # noqa: E402
from sglang_mm_ray.sglang.layout import AS_STORED, Layout  # noqa: E402
from sglang_mm_ray.sglang.settings import Settings  # noqa: E402
from sglang_mm_ray.sglang.sidecar.client import Sidecar  # noqa: E402
from sglang_mm_ray.sglang.sidecar.messages import Fetch, Preprocess, Up  # noqa: E402
from sglang_mm_ray.sglang.sidecar.results import values_by_reference  # noqa: E402

FRAMES = Layout(axis=1, copies=2, is_new=True)
BY_REFERENCE = Settings(features="reference")


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


@pytest.mark.parametrize(
    ("fields", "readers"),
    [
        ({"nnodes": 1, "tp_size": 8}, 0),
        ({"nnodes": 2, "tp_size": 8}, 8),
        ({"nnodes": 2, "tp_size": 8, "pp_size": 2}, 8),
        ({"nnodes": 2, "tp_size": 8, "dp_size": 4, "enable_dp_attention": True}, 2),
        ({"nnodes": 2, "tp_size": 4, "dp_size": 2}, 4),
    ],
)
def test_readers_follow_sglangs_own_settings(fields: dict[str, Any], readers: int) -> None:
    assert reader_count(SimpleNamespace(**fields), BY_REFERENCE) == readers
    assert reader_count(SimpleNamespace(**fields), Settings()) == 0
    assert reader_count(SimpleNamespace(**fields), Settings(features="reference", readers=3)) == 3


def _ticket(**fields: Any) -> Ticket:
    defaults = {
        "desk": "no-such-desk",
        "feature_id": "x",
        "path": (),
        "dtype": "bfloat16",
        "shape": (4, 2, 3),
    }
    return Ticket(**{**defaults, "layout": AS_STORED, "address": "127.0.0.1:1", **fields})


def test_what_travels_is_a_ticket_and_unpickling_neither_waits_nor_fails() -> None:
    ticket = _ticket()
    tensor = ReferencedTensor.of(ticket)
    assert (tensor.shape, tensor.dtype, tensor.is_cpu) == ((4, 2, 3), torch.bfloat16, False)
    message = pickle.dumps(tensor)
    assert len(message) < 1000
    for _ in range(3):
        # As SGLang sends it on: by socket, as a broadcast, from stage to stage.
        arrived = pickle.loads(message)
        assert arrived == PendingFeature(ticket)
        message = pickle.dumps(arrived)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, list[str]]]:
    """Three raylets on this machine; the address, and the ids of the two that are not the driver's."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 200 << 20})
    others = [cluster.add_node(num_cpus=2, object_store_memory=200 << 20) for _ in range(2)]
    ray.init(address=cluster.address, namespace="sglang-mm-ray", log_to_driver=False)
    cluster.wait_for_nodes()
    yield cluster.address, [node.node_id for node in others]
    ray.shutdown()
    cluster.shutdown()


@ray.remote(num_cpus=1)
class _Reader:
    """Reads on another node, as a rank's sidecar does."""

    def read(self, tickets: list[Ticket]) -> list[bytes]:
        return [
            np.asarray(ticket.layout.apply(value)).tobytes()
            for ticket, value in zip(tickets, take(tickets, 20), strict=True)
        ]


def _image(arrays: tuple[Any, ...], ref: Any, place: int | None) -> Any:
    tensors = tuple((f"t{at}", "float32", array.shape) for at, array in enumerate(arrays))
    facts = SimpleNamespace(tensors=tensors, digest=bytes(32))
    stored = SimpleNamespace(at=(SimpleNamespace(ref=ref), place))
    return SimpleNamespace(facts=facts, stored=stored, content_hash=1, grid_thw=(1, 1, 1), num_tokens=1)


def _work(readers: int, address: str = "", lease_s: float = 60.0) -> Preprocess:
    return Preprocess([], "float32", {"t0": FRAMES}, readers, lease_s, address)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_readers_on_other_nodes_find_each_tensor_beside_others(
    cluster: tuple[str, list[str]], shared: bool, count: int
) -> None:
    _, nodes = cluster
    desk, rng = Desk(), np.random.default_rng(5)
    made = [tuple(rng.random((place + 2, 5), np.float32) for _ in range(count)) for place in range(3)]
    values = [arrays if count > 1 else arrays[0] for arrays in made]
    together = ray.put(tuple(values))
    images = [
        _image(arrays, together if shared else ray.put(value), place if shared else None)
        for place, (arrays, value) in enumerate(zip(made, values, strict=True))
    ]
    answers = values_by_reference(images, _work(readers=2), desk, 20)
    tickets = [ticket for answer in answers for ticket in answer.tickets]
    expected = []
    for arrays in made:
        expected.append(np.repeat(arrays[0][:, None], 2, axis=1).tobytes())
        expected += [array.tobytes() for array in arrays[1:]]
    shapes = [shape for answer in answers for _, _, shape in answer.tensors]
    assert [ticket.shape for ticket in tickets] == shapes
    assert shapes[0] == (2, 2, 5)
    readers = [
        _Reader.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for node in nodes
    ]
    for reader in readers:
        assert ray.get(reader.read.remote(tickets)) == expected
    with pytest.raises(ResultLost, match="READERS"):
        take(tickets, 20)
    for reader in readers:
        ray.kill(reader)


def test_another_desk_takes_over_from_one_that_died(cluster: tuple[str, list[str]]) -> None:
    desk = Desk()
    values = [np.arange(5.0), np.arange(7.0)]
    name, [first] = desk.hold([ray.put(values[0])], 1, 60, 20)
    ray.kill(ray.get_actor(name, namespace="sglang-mm-ray"))
    with pytest.raises(ResultLost):
        take([_ticket(desk=name, feature_id=first)], 5)
    name, [second] = desk.hold([ray.put(values[1])], 1, 60, 20)
    [found] = take([_ticket(desk=name, feature_id=second)], 20)
    assert found.tolist() == values[1].tolist()


def test_a_desk_that_is_not_there_is_a_typed_miss(cluster: tuple[str, list[str]]) -> None:
    with pytest.raises(ResultLost):
        take([_ticket()], 5)


def test_a_sidecar_reads_for_a_process_that_is_not_rays(cluster: tuple[str, list[str]]) -> None:
    address, _ = cluster
    stored = np.random.default_rng(6).random((40, 3, 1, 4, 4), np.float32)
    rows = Layout(axis=2, copies=2, is_flat=True)
    desk = Desk()
    name, ids = desk.hold([ray.put((stored, stored + 1))] * 2, 1, 60, 20)
    tickets = [
        _ticket(desk=name, feature_id=ids[0], path=(0,), layout=rows),
        _ticket(desk=name, feature_id=ids[1], path=(1,)),
    ]
    sidecar = Sidecar("", address)
    try:
        assert isinstance(sidecar.wait_for_state(60), Up)
        _, (flat, plain) = sidecar.ask(Fetch(tickets), 20).result()
        assert flat.tolist() == np.repeat(stored, 2, axis=2).reshape(40, -1).tolist()
        assert plain.tolist() == (stored + 1).tolist()
        with pytest.raises(ResultLost, match="READERS"):
            sidecar.ask(Fetch(tickets), 20).result()
    finally:
        sidecar.close()


def test_nothing_is_held_once_all_readers_and_the_sender_let_go(cluster: tuple[str, list[str]]) -> None:
    import gc

    desk = Desk()
    ref = ray.put(np.zeros(1 << 20))
    name, ids = desk.hold([ref], 1, 60, 20)
    reader = _Reader.remote()
    ray.get(reader.read.remote([_ticket(desk=name, feature_id=ids[0])]))
    ref_hex = ref.hex()
    del ref
    gc.collect()

    def referenced() -> bool:
        counts = ray._private.worker.global_worker.core_worker.get_all_reference_counts()
        return ref_hex in counts

    deadline = time.monotonic() + 20
    while referenced() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not referenced()
    ray.kill(reader)
