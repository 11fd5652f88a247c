"""The dashboard and the alert rules: of every metric, and answered by a Prometheus that scrapes a pool."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pooling import photo, png

from sglang_mm_ray.cli import main
from sglang_mm_ray.metrics import METRICS
from sglang_mm_ray.watching import alert_rules, dashboard, queries

PREFIX = "ray_sglang_mm_ray_"


def rules() -> list[dict[str, Any]]:
    return [rule for group in alert_rules()["groups"] for rule in group["rules"]]


def metrics_of(query: str) -> set[str]:
    named = {name.removesuffix("_bucket") for name in re.findall(rf"{PREFIX}(\w+)", query)}
    assert named
    return named


def test_every_metric_has_one_panel() -> None:
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    shown = [metrics_of(" ".join(target["expr"] for target in panel["targets"])) for panel in panels]
    assert sorted(name for names in shown for name in names) == sorted(METRICS)
    assert all(len(names) == 1 for names in shown)


def test_panels_do_not_overlap() -> None:
    taken = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells


def test_the_rules_ask_for_metrics_that_there_are() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 5
    for rule in rules():
        assert metrics_of(rule["expr"]) <= set(METRICS), rule["alert"]


def test_the_command_writes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--out", str(tmp_path / "new")]) == 0
    written = [json.loads(Path(line).read_text()) for line in capsys.readouterr().out.splitlines()]
    assert written == [dashboard(), alert_rules()]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Asks a Prometheus that scrapes a pool on which every kind of event has happened."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no `prometheus` here; Debian's package of that name has it")
    import ray

    import sglang_mm_ray as smr
    from sglang_mm_ray.metrics import RouterMetrics

    folder = tmp_path_factory.mktemp("prometheus")
    exported, served = free_port(), free_port()
    (folder / "alerts.yml").write_text(json.dumps(alert_rules()))
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "ray", "static_configs": [{"targets": [f"127.0.0.1:{exported}"]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=300 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _metrics_export_port=exported,
    )
    server = subprocess.Popen(
        [
            program,
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{served}",
            "--log.level=error",
        ],
    )

    def answer(path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{served}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as reply:
            return json.load(reply)["data"]

    try:
        with smr.PreprocessPool(model="inkling") as pool:
            # What a sound pool does not show of itself.
            mishaps = RouterMetrics(pool.config, "mishaps")

            def go_on(turn: int) -> None:
                images = [png(photo(seed)) for seed in range(8 * turn, 8 * turn + 8)]
                pool.preprocess([*images, b"no image"], on_error="return", timeout_s=300)
                mishaps.count("router_retries_total", reason="busy")
                mishaps.count("router_workers_lost_total")
                time.sleep(1)

            answer.go_on = go_on  # type: ignore[attr-defined]
            yield answer
    finally:
        server.terminate()
        server.wait()
        ray.shutdown()


@pytest.mark.timeout(400)
def test_every_panel_is_answered(ask: Any) -> None:
    wanted = [(name, query) for name in METRICS for query in queries(name, "{}", "30s").values()]
    silent = wanted
    for turn in range(60):
        ask.go_on(turn)
        try:
            silent = [item for item in wanted if not ask("query", query=item[1])["result"]]
        except OSError:
            continue  # Not up yet.
        if not silent:
            break
    assert silent == []
    # The tags that a legend names are there.
    for name, (_, _, tags) in METRICS.items():
        for query in queries(name, "{}", "30s").values():
            for series in ask("query", query=query)["result"]:
                assert set(series["metric"]) == {"pool", *tags}, name


def test_prometheus_has_taken_every_rule(ask: Any) -> None:
    loaded = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in loaded] == [rule["alert"] for rule in rules()]
    assert all(rule["health"] in {"ok", "unknown"} for rule in loaded), loaded
