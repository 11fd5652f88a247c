"""The cluster benchmark runs as a Ray job: a head is started, the job submitted small, the head stopped."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def head(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A Ray head of its own, with a token that only this test knows: its job server and the environment."""
    dashboard = f"http://127.0.0.1:{_free_port()}"
    environment = {
        **os.environ,
        # Head and client must agree on how they authenticate.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("RAY_ADDRESS", None)
    # A short path: the sockets below it must fit into 107 characters.
    session = Path(tempfile.gettempdir()) / f"mm-job-{os.getpid()}"
    command = [
        _ray(), "start", "--head", "--block", "--num-cpus=2", f"--port={_free_port()}",
        "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard.rpartition(':')[2]}",
        f"--object-store-memory={400 << 20}", f"--temp-dir={session}",
    ]  # fmt: skip
    with (tmp_path / "head.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield dashboard, environment
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            shutil.rmtree(session, ignore_errors=True)


def _ray() -> str:
    beside = Path(sys.executable).parent / "ray"
    return str(beside) if beside.exists() else "ray"


@pytest.mark.timeout(300)
def test_the_benchmark_runs_under_ray_job_submit(head: tuple[str, dict[str, str]]) -> None:
    address, environment = head
    submit = [_ray(), "job", "submit", f"--address={address}", "--"]
    bench = [
        sys.executable,
        str(ROOT / "bench" / "bench_cluster.py"),
        "--mode=published",
        "--images=16",
        "--json",
    ]
    deadline = time.monotonic() + 120
    while True:
        result = subprocess.run(
            [*submit, *bench], env=environment, capture_output=True, text=True, timeout=240, cwd=ROOT
        )
        # The job server comes up some seconds after the head.
        if result.returncode == 0 or "rows" in result.stdout or time.monotonic() > deadline:
            break
        told = result.stderr + result.stdout
        if "Failed to connect" not in told and "No available agent" not in told:
            break
        time.sleep(1)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    lines = result.stdout.splitlines()
    start = lines.index("[")
    rows = json.loads("\n".join(lines[start : lines.index("]", start) + 1]))
    assert {row["contender"] for row in rows} == {"pool", "core", "ActorPool pillow"}
    assert all(row["images_per_s"] > 0 for row in rows)
