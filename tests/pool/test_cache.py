"""The byte-bounded cache: whole keys, bounds, eviction, and use by many threads."""

from __future__ import annotations

import threading

from sglang_mm_ray.cache import ByteCache

OVERHEAD = 1024


def test_all_256_bits_count() -> None:
    cache: ByteCache[int] = ByteCache(10**9)
    keys = [number.to_bytes(16, "big") + b"\0" * 14 + number.to_bytes(2, "big") for number in range(60_000)]
    for number, key in enumerate(keys):
        cache.put(key, number, 0)
    assert all(cache.get(key) == number for number, key in enumerate(keys))
    same_end = b"\1" + keys[5][1:]
    assert cache.get(same_end) is None


def test_it_stays_within_its_bytes_and_drops_what_was_used_longest_ago() -> None:
    cache: ByteCache[str] = ByteCache(3 * (1000 + OVERHEAD))
    for name in "abc":
        assert cache.put(name.encode(), name, 1000)
    assert cache.get(b"a") == "a"
    cache.put(b"d", "d", 1000)
    assert cache.get(b"b") is None
    assert [cache.get(name.encode()) for name in "acd"] == ["a", "c", "d"]
    assert cache.size_bytes == cache.capacity_bytes and cache.evictions == 1


def test_a_value_larger_than_the_cache_is_not_kept_and_evicts_nothing() -> None:
    cache: ByteCache[str] = ByteCache(5000)
    cache.put(b"small", "small", 100)
    assert not cache.put(b"large", "large", 5000)
    assert cache.get(b"small") == "small" and cache.get(b"large") is None


def test_replacing_a_value_counts_its_bytes_once() -> None:
    cache: ByteCache[str] = ByteCache(10_000)
    for _ in range(50):
        cache.put(b"key", "value", 3000)
    assert len(cache) == 1 and cache.size_bytes == 3000 + OVERHEAD and cache.evictions == 0


def test_freeing_removing_clearing() -> None:
    cache: ByteCache[int] = ByteCache(10 * (1000 + OVERHEAD))
    for number in range(10):
        cache.put(bytes([number]), number, 1000)
    cache.free(2500)
    assert len(cache) == 8 and cache.get(b"\0") is None
    cache.remove(b"\5")
    cache.remove(b"unknown")
    cache.remove_if(lambda value: value in (3, 4))
    assert sorted(number for number in range(10) if cache.get(bytes([number])) is not None) == [2, 6, 7, 8, 9]
    cache.free(10**9)
    assert len(cache) == 0 and cache.size_bytes == 0
    cache.put(b"x", 1, 1)
    cache.clear()
    assert cache.size_bytes == 0


def test_threads_share_it() -> None:
    cache: ByteCache[int] = ByteCache(4 * (100 + OVERHEAD))
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(2000):
            number = (seed * 7 + step * 13) % 8
            value = cache.get(bytes([number]))
            if value is None:
                cache.put(bytes([number]), number, 100)
            elif value != number:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and cache.size_bytes == len(cache) * (100 + OVERHEAD) <= cache.capacity_bytes
