"""`sglang-mm-ray start`, `status` and `stop`, on a cluster of one node."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_mm_ray.cli import main
from sglang_mm_ray.cli.manage import describe_pool

STATUS: dict[str, Any] = {
    "pool": "vision",
    "model": "inkling",
    "transport": "bf16",
    "replaced_workers": 2,
    "quarantined_images": 1,
    "last_error": "",
    "workers": [
        {
            "worker_id": "w1",
            "node_id": "a" * 56,
            "state": "live",
            "threads": 4,
            "completed_images": 12345,
            "failed_images": 3,
            "waiting_images": 5,
            "running_images": 4,
            "cache": {"hits": 1, "misses": 3, "bytes": 1 << 20},
            "rss_bytes": 1 << 30,
        },
        {"worker_id": "w2", "node_id": "b" * 56, "state": "starting"},
    ],
}


def test_status_as_text() -> None:
    text = describe_pool(STATUS)
    assert "pool 'vision': model inkling, transport bf16, 2 workers replaced, 1 images in quarantine" in text
    for shown in ("w1", "12,345", "5+4", "25 %", "1.0 MiB", "1.0 GiB", "starting"):
        assert shown in text
    assert "last error: no \\x1b" in describe_pool({**STATUS, "last_error": "no \x1b CPUs"})


@pytest.mark.parametrize("command", [["status"], ["stop"], ["start"], ["bench", "--images", "1"]])
@pytest.mark.parametrize("named", ["option", "environment"])
def test_an_address_where_nobody_listens_is_said_at_once(
    command: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    def init(*_: object, **__: object) -> None:
        raise AssertionError("Ray tries for minutes, or starts a cluster that nobody named")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # Taken, so that nobody else listens there.
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address if named == "environment" else "other:1")
        options = ["--address", address] if named == "option" else []
        assert main([*command, *options]) == 3
    assert "no Ray cluster" in capsys.readouterr().err


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


def test_a_pool_from_start_to_stop(cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "pool.json"
    config.write_text(json.dumps({"warm_bytes": 0, "transport": "uint8", "start_timeout_s": 300}))
    options = ["--name", "vision", "--config", str(config), "--workers", "1", "--threads", "1"]
    assert main(["start", *options, "--allow-root", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["transport"] == "uint8"
    # A second one of that name is refused, in words.
    assert main(["start", *options]) == 3
    assert "vision" in capsys.readouterr().err

    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "vision" in shown and "uint8" in shown and "1 of 1" in shown
    assert main(["status", "--json"]) == 0
    assert [status["pool"] for status in json.loads(capsys.readouterr().out)] == ["vision"]
    assert main(["status", "--name", "vision", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [worker["state"] for worker in status["workers"]] == ["live"]
    assert main(["status", "--name", "vision"]) == 0
    assert "live" in capsys.readouterr().out

    assert main(["stop", "--name", "vision"]) == 0
    assert "stopped" in capsys.readouterr().out
    assert main(["status", "--name", "vision"]) == 3
    assert "vision" in capsys.readouterr().err
    assert main(["stop", "--name", "vision"]) == 3


def test_bench(cluster: None, photos: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workers", "1", "--threads", "1", "--json"]
    assert main(["bench", "--images", "4", "--size", "64x48", *options]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["images"] == 4 and results["core"]["images_per_s"] > 0
    assert results["pool"]["images_per_s"] > 0 and results["pool"]["workers"] == 1
    assert results["core"]["failed"] == results["pool"]["failed"] == 0


def test_bench_of_the_core_alone(photos: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--no-pool", "--images", "2", str(photos[0].parent)]) == 0
    out = capsys.readouterr().out
    assert "images/s" in out and "decode" in out and "pool" not in out
    assert main(["bench", "--no-pool", "--size", "big"]) == 3
