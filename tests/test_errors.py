"""Every public error: its place in the tree, its code, and that it crosses processes whole."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from sglang_mm_ray import _core, errors


def _core_error(call: Callable[[], object]) -> BaseException:
    with pytest.raises(errors.PreprocessError) as caught:
        call()
    return caught.value


# Class -> (code, retriable, builtin bases that handlers of the published API catch).
PUBLIC: dict[type[errors.PreprocessError], tuple[str, bool, tuple[type, ...]]] = {
    errors.PreprocessError: ("preprocess_error", False, (Exception,)),
    errors.InputError: ("input_error", False, (ValueError,)),
    errors.DecodeError: ("decode_error", False, (errors.InputError,)),
    errors.UnsupportedFormat: ("unsupported_format", False, (errors.DecodeError,)),
    errors.LimitExceeded: ("limit_exceeded", False, (errors.InputError,)),
    errors.InvalidArgument: ("invalid_argument", False, (errors.InputError,)),
    errors.InternalError: ("internal_error", False, (RuntimeError,)),
    errors.SourceRefused: ("source_refused", False, (errors.InputError,)),
    errors.FetchError: ("fetch_failed", False, (ValueError,)),
    errors.PoolOverloaded: ("pool_overloaded", True, (Exception,)),
    errors.DeadlineExceeded: ("deadline_exceeded", True, (TimeoutError,)),
    errors.PoisonImage: ("poison_image", False, (errors.InputError,)),
    errors.WorkerLost: ("worker_lost", True, (Exception,)),
    errors.ResultLost: ("result_lost", True, (Exception,)),
    errors.PoolNotFound: ("pool_not_found", True, (Exception,)),
    errors.PoolClosed: ("pool_closed", False, (Exception,)),
}


def test_every_public_error_is_tested_here() -> None:
    exported = {getattr(errors, name) for name in errors.__all__}
    classes = {item for item in exported if isinstance(item, type)}
    assert classes == set(PUBLIC)
    codes = [code for code, _, _ in PUBLIC.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_place_in_the_tree(cls: type[errors.PreprocessError]) -> None:
    code, retriable, bases = PUBLIC[cls]
    assert issubclass(cls, (errors.PreprocessError, *bases))
    for base in bases:
        assert issubclass(cls, base)
    assert (cls.code, cls.retriable) == (code, retriable)


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_pickle_keeps_message_and_attributes(cls: type[errors.PreprocessError]) -> None:
    error = errors.with_context(cls("what happened"), index=3, source="photo.jpg", digest=b"\x01" * 32)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == "what happened"
    assert vars(copy) == vars(error)
    assert (copy.index, copy.source, copy.digest) == (3, "photo.jpg", b"\x01" * 32)


def test_a_fetch_error_says_itself_whether_to_retry() -> None:
    timeout = pickle.loads(pickle.dumps(errors.FetchError("timed out", retriable=True)))
    refusal = pickle.loads(pickle.dumps(errors.FetchError("answered 403", status=403)))
    assert (timeout.retriable, timeout.status) == (True, None)
    assert (refusal.retriable, refusal.status) == (False, 403)


def test_errors_of_the_core_carry_their_fields_across_pickle() -> None:
    processor = _core.processor("inkling")
    limits = _core.Limits(max_input_bytes=4)
    (error,) = processor.preprocess_batch([b"12345"], "bf16", limits)
    assert isinstance(error, errors.LimitExceeded)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.what, copy.value, copy.limit) == ("encoded size in bytes", 5, 4)
    unknown = _core_error(lambda: _core.common.image_decode_rgb(b"no image"))
    assert isinstance(unknown, errors.DecodeError)
    assert pickle.loads(pickle.dumps(unknown)).format == unknown.format
    assert isinstance(_core_error(lambda: _core.processor("no such model")), errors.InvalidArgument)


def test_helpers_word_errors_as_the_core_does() -> None:
    ours = errors.limit_exceeded("encoded size in bytes", 5, 4)
    (theirs,) = _core.processor("inkling").preprocess_batch(
        [b"12345"], "bf16", _core.Limits(max_input_bytes=4)
    )
    assert str(ours) == str(theirs)
    assert (ours.what, ours.value, ours.limit) == ("encoded size in bytes", 5, 4)
    assert str(errors.decode_error("TIFF", "cut short")) == "cannot decode TIFF image: cut short"
    assert errors.decode_error("TIFF", "cut short").format == "TIFF"


def test_context_of_an_inner_layer_wins_and_describe_shows_it() -> None:
    error = errors.with_context(errors.PoisonImage("workers die of it"), index=2)
    errors.with_context(error, index=7, source="a.png", digest=bytes(32))
    assert errors.describe(error) == f"image 2 a.png sha256:{'0' * 16}: workers die of it"
    assert errors.describe(KeyError("other")) == "'other'"


def test_ray_returns_errors_whole() -> None:
    ray_pickle = pytest.importorskip("ray.cloudpickle")
    error = errors.DeadlineExceeded("no time left")
    copy = ray_pickle.loads(ray_pickle.dumps(error))
    assert isinstance(copy, TimeoutError) and str(copy) == "no time left"
