"""Results where they lie: an object of the store, and an image's place in it.

The images of one batch of one request share an object, since each object costs its owner, its node and its
worker as much as copying a megabyte. An object's memory is free when the last of its images is let go, and
until then it counts as a whole.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from ..deadline import within
from ..errors import DeadlineExceeded, InvalidArgument, ResultLost
from ..fields import check_seconds
from ..messages import ImageFacts
from ..stored_array import in_pieces

if TYPE_CHECKING:
    from ray import ObjectRef

__all__ = ["Account", "StoredObject", "StoredResult", "read"]


class Account(Protocol):
    """Who counts the bytes of the store. May be told from any thread, at any moment."""

    def claimed(self, size_bytes: int, timeout_s: float) -> AbstractContextManager[None]:
        """Sets bytes aside while an object is made, waiting until they are free.

        Raises:
            PoolOverloaded: they do not become free.
        """

    def adopt(self, size_bytes: int) -> None:
        """An object more exists; told while its bytes are claimed."""

    def release(self, size_bytes: int) -> None:
        """Nobody refers to an object any more."""


class StoredObject:
    """An object of the store; says when the last one lets go."""

    __slots__ = ("_values", "account", "nbytes", "node_id", "ref")

    def __init__(self, ref: Any, node_id: str, nbytes: int = 0, account: Account | None = None) -> None:
        self.ref = ref
        self.node_id = node_id
        self.nbytes = nbytes
        self.account = account
        self._values: tuple[Any, ...] | None = None

    def __del__(self) -> None:
        if self.account is not None:
            self.account.release(self.nbytes)

    def __reduce__(self) -> Any:
        # Neighbours that are pickled together share it again; nobody counts elsewhere.
        return StoredObject, (self.ref, self.node_id)

    def value(self, place: int | None, timeout_s: float) -> Any:
        """What lies at a place, or all of it."""
        import ray

        if place is None:
            return ray.get(self.ref, timeout=timeout_s)
        values = self._values
        if values is None:
            values = ray.get(self.ref, timeout=timeout_s)
            # Views, kept so that no image unpickles its neighbours again; but only where the object is in
            # memory anyway: a copy from another node must be free to go once nobody looks at it.
            if self.node_id == ray.get_runtime_context().get_node_id():
                self._values = values
        return values[place]


class StoredResult:
    """An image's tensors in the object store, shared by all who asked for it."""

    __slots__ = ("_at", "_putting", "facts")

    def __init__(self, facts: ImageFacts, stored_object: StoredObject, place: int | None = None) -> None:
        self.facts = facts
        # Together, since they change together while others read.
        self._at = (stored_object, place)
        self._putting = threading.Lock()

    @property
    def node_id(self) -> str:
        """The node that has it."""
        return self._at[0].node_id

    @property
    def at(self) -> tuple[StoredObject, int | None]:
        """The object, and the place in it of an image that shares it with others."""
        return self._at

    def own_ref(self, timeout_s: float) -> ObjectRef[Any]:
        """A reference to this image alone; one that shares an object is copied out of it, once.

        Raises:
            ResultLost: it cannot be read any more.
            PoolOverloaded: the copy has no place in the budget of the store.
        """
        with self._putting:
            stored_object, place = self._at
            if place is not None:
                value, account, size_bytes = (
                    read(self, timeout_s)[0],
                    stored_object.account,
                    self.facts.nbytes,
                )
                with account.claimed(size_bytes, timeout_s) if account is not None else nullcontext():
                    self._at = (_put(value, size_bytes, account), None)
            return self._at[0].ref  # type: ignore[no-any-return]


def _put(value: Any, size_bytes: int, account: Account | None) -> StoredObject:
    import ray

    ref = ray.put(in_pieces(value))
    if account is not None:
        account.adopt(size_bytes)
    return StoredObject(ref, ray.get_runtime_context().get_node_id(), size_bytes, account)


def read(stored: StoredResult, timeout_s: float) -> tuple[Any, StoredObject]:
    """The only tensor or a tuple of them, and the object that they lie in.

    Raises:
        ResultLost: it cannot be read any more.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    from ..cluster import is_forked

    if check_seconds("timeout_s", timeout_s) is None:
        raise InvalidArgument("timeout_s of a read must be a number of seconds")
    digest = f"sha256:{stored.facts.digest.hex()[:16]}"
    # `ray.get` would start a Ray of its own, which does not know the result.
    if is_forked():
        raise ResultLost(f"the result of image {digest} cannot be read in a forked process; read it before")
    if not ray.is_initialized():
        raise ResultLost(
            f"the result of image {digest} is lost: Ray does not run here any more; read results "
            "while the pool that started Ray is open, or call ray.init() before it"
        )
    stored_object, place = stored.at
    try:
        value = within(lambda: stored_object.value(place, timeout_s), timeout_s)
    except (GetTimeoutError, DeadlineExceeded):
        raise ResultLost(
            f"the result of image {digest} did not arrive within {timeout_s:g} s; recompute it"
        ) from None
    except (RayError, ValueError) as error:
        # A ValueError says that the reference is of another Ray session, which has ended.
        raise ResultLost(
            f"the result of image {digest} is lost ({type(error).__name__}); recompute it"
        ) from None
    if not _fits(stored.facts, value):
        raise ResultLost(f"what is stored for image {digest} is not what its facts say; recompute it")
    return value, stored_object


def _fits(facts: ImageFacts, value: Any) -> bool:
    # Facts and tensors travel apart; that they belong together is cheap to see.
    values = (value,) if len(facts.tensors) == 1 else value
    return (
        isinstance(values, tuple)
        and [getattr(array, "shape", None) for array in values] == [shape for _, _, shape in facts.tensors]
        and sum(array.nbytes for array in values) == facts.nbytes
    )
