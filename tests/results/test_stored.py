"""Images that share an object: what is kept of it, what travels, and who waits for whom."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

from sglang_mm_ray.messages import ImageFacts
from sglang_mm_ray.results.image import ProcessedImage
from sglang_mm_ray.results.stored import StoredObject, StoredResult

SHAPE = (2, 2, 2, 3)
TENSORS = (("patches", "bfloat16", SHAPE),)


class Store:
    """Objects by reference; each read makes new views of them, as Ray does."""

    def __init__(self) -> None:
        self.objects: dict[Any, Any] = {}
        self.reads: list[Any] = []
        self.views: list[weakref.ref[Any]] = []
        self.slow: set[Any] = set()
        self.arrived = threading.Event()

    def get(self, ref: Any, timeout: float) -> Any:
        self.reads.append(ref)
        if ref in self.slow:
            assert self.arrived.wait(timeout)
        value = self.objects[ref]
        views = tuple(each[:] for each in (value if isinstance(value, tuple) else (value,)))
        self.views += map(weakref.ref, views)
        return views if isinstance(value, tuple) else views[0]

    def put(self, value: Any) -> Any:
        ref = f"own {len(self.objects)}"
        self.objects[ref] = value
        return ref

    def images(
        self, ref: Any, count: int, node_id: str, account: Any = None, nbytes: int = 0
    ) -> list[ProcessedImage]:
        self.objects[ref] = tuple(np.full(SHAPE, place, np.uint16) for place in range(count))
        stored = StoredObject(ref, node_id, nbytes, account)
        facts = [
            ImageFacts(bytes([n] * 32), n, 2, 2, (1, 1, 2), 2, TENSORS, 48, "png", {}, "computed")
            for n in range(count)
        ]
        return [
            ProcessedImage(StoredResult(each, stored, n), ("inkling", "{}"), origin="computed", times_s={})
            for n, each in enumerate(facts)
        ]

    @property
    def living_views(self) -> int:
        gc.collect()
        return sum(view() is not None for view in self.views)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get", made.get)
    monkeypatch.setattr(ray, "put", made.put)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "here"))
    return made


def test_on_its_own_node_an_object_is_read_once(store: Store) -> None:
    images = store.images("ref", 4, "here")
    assert [int(image.array().max()) for image in images] == [0, 1, 2, 3]
    assert store.reads == ["ref"]
    del images
    assert store.living_views == 0


def test_views_of_another_nodes_object_go_with_those_who_look(store: Store) -> None:
    """Or everything ever read would stay pinned in the reader's store, beside where it is counted."""
    images = store.images("ref", 4, "far")
    views = [image.array() for image in images]
    assert [int(view.max()) for view in views] == [0, 1, 2, 3]
    kept = views[2][:1]
    del views
    assert store.living_views == 1 and int(kept.max()) == 2
    del kept
    assert store.living_views == 0
    np.testing.assert_array_equal(images[3].array(), np.full(SHAPE, 3))


def test_neighbours_that_travel_together_share_their_object_again(store: Store) -> None:
    images = store.images("ref", 4, "here")
    back = pickle.loads(pickle.dumps(images))
    assert len({id(image.stored.at[0]) for image in back}) == 1
    assert [image.stored.at[1] for image in back] == [0, 1, 2, 3]
    assert [int(image.array().max()) for image in back] == [0, 1, 2, 3]
    assert len(store.reads) == 1


def test_a_slow_copy_to_an_object_of_its_own_holds_up_nobody_else(store: Store) -> None:
    slow, quick = store.images("slow", 2, "far")[0], store.images("quick", 2, "here")[1]
    store.slow.add("slow")
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(slow.feature), daemon=True)
    waiting.start()
    asking = threading.Thread(target=lambda: found.append(quick.feature), daemon=True)
    asking.start()
    asking.join(10)
    assert len(found) == 1, "it waits for another image's node"
    store.arrived.set()
    waiting.join(10)
    assert len(found) == 2 and slow.stored.at[1] is None


class Account:
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def claimed(self, size_bytes: int, timeout_s: float) -> AbstractContextManager[None]:
        return nullcontext()

    def adopt(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        self.size_bytes -= size_bytes


def test_a_view_keeps_the_object_counted_that_it_looks_into(store: Store) -> None:
    """Also after its image has moved to an object of its own."""
    account = Account(4 * 48)
    images = store.images("ref", 4, "here", account, 4 * 48)
    image, view = images[1], images[1].array()
    assert image.feature == image.feature
    del images
    assert account.size_bytes == 5 * 48 and int(view.max()) == 1
    other = image.array()
    del view
    gc.collect()
    assert account.size_bytes == 48
    del image
    assert account.size_bytes == 48
    del other
    gc.collect()
    assert account.size_bytes == 0


def test_images_of_several_tensors_share_an_object_beside_a_failure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of an image that failed holds None; the others keep theirs."""
    tensors = (("patches", "bfloat16", SHAPE), ("mask", "int64", (4,)))
    values = [(np.full(SHAPE, n, np.uint16), np.full(4, -n, np.int64)) for n in range(3)]
    store.objects["ref"] = (values[0], None, values[2])
    monkeypatch.setattr(ray, "get", lambda ref, timeout: store.objects[ref])
    shared = StoredObject("ref", "here")
    for place in (0, 2):
        facts = ImageFacts(
            bytes([place] * 32), place, 2, 2, (1, 1, 2), 2, tensors, 48 + 32, "png", {}, "computed"
        )
        made = ProcessedImage(
            StoredResult(facts, shared, place), ("toy", "{}"), origin="computed", times_s={}
        )
        for image in (made, pickle.loads(pickle.dumps(made))):
            for _ in ("shared", "on its own"):
                np.testing.assert_array_equal(image.array(), values[place][0])
                np.testing.assert_array_equal(image.array("mask"), values[place][1])
                assert [array.shape for array in image.tensors().values()] == [SHAPE, (4,)]
                own = store.objects[image.feature]
                assert isinstance(own, tuple) and image.stored.at[1] is None
