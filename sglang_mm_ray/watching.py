"""What an operator watches a pool with: a Grafana dashboard and alert rules, from the table of metrics.

Each metric has one panel, whose title is its meaning. Ray exports a metric with `ray_` before its name.
Routers of several processes export the same gauges: a pool's value is their sum, and for a ratio the highest.
"""

from __future__ import annotations

from typing import Any

from .metrics import METRICS

__all__ = ["alert_rules", "dashboard", "queries"]

_PREFIX = "ray_sglang_mm_ray_"
_WINDOW = "$__rate_interval"
_QUANTILES = (0.5, 0.99)

# Of a metric's name, how Grafana writes its values; the first that fits.
_UNITS = {
    "_bytes_total": "Bps",
    "_total": "cps",
    "_seconds": "s",
    "_bytes": "bytes",
    "_ratio": "percentunit",
}

_POOL = '{pool=~"$pool"}'


def queries(name: str, selector: str = _POOL, window: str = _WINDOW) -> dict[str, str]:
    """The PromQL of a metric's panel: legend to expression.

    Args:
        name: as in `METRICS`.
        selector: which series; `{}` for all.
        window: over which a rate is taken, as `5m`.
    """
    kind, _, tags = METRICS[name]
    series = f"{_PREFIX}{name}"
    labels = ["pool", *tags]
    by = ", ".join(labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    if kind == "counter":
        return {legend: f"sum by ({by}) (rate({series}{selector}[{window}]))"}
    if kind == "histogram":
        rate = f"sum by ({by}, le) (rate({series}_bucket{selector}[{window}]))"
        return {f"{legend} p{100 * q:g}": f"histogram_quantile({q}, {rate})" for q in _QUANTILES}
    return {legend: f"{'max' if name.endswith('_ratio') else 'sum'} by ({by}) ({series}{selector})"}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it: routers, then workers, with a panel for each metric."""
    panels: list[dict[str, Any]] = []
    y = 0
    for group in ("router", "worker"):
        panels.append(_row(f"{group.capitalize()}s", y))
        y += 1
        names = [name for name in METRICS if name.startswith(f"{group}_")]
        for at, name in enumerate(names):
            panels.append(_panel(name, x=8 * (at % 3), y=y + 8 * (at // 3)))
        y += 8 * -(-len(names) // 3)
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "title": "sglang-mm-ray",
        "uid": "sglang-mm-ray",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "pool",
                    "type": "query",
                    "datasource": source,
                    "query": f"label_values({_PREFIX}router_saturation_ratio, pool)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                },
            ]
        },
        "panels": panels,
    }


def _row(title: str, y: int) -> dict[str, Any]:
    return {"type": "row", "title": title, "collapsed": False, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}}


def _panel(name: str, x: int, y: int) -> dict[str, Any]:
    _, meaning, _ = METRICS[name]
    source = {"type": "prometheus", "uid": "${datasource}"}
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "short")
    defaults: dict[str, Any] = {"unit": unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}}
    if unit == "percentunit":
        defaults["max"] = 1
    return {
        "type": "timeseries",
        "title": meaning.split(";")[0].rstrip("."),
        "description": f"{meaning} ({_PREFIX}{name})",
        "datasource": source,
        "gridPos": {"h": 8, "w": 8, "x": x, "y": y},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(queries(name).items())
        ],
    }


def alert_rules() -> dict[str, Any]:
    """The rules as a file for Prometheus's `rule_files` holds them."""
    refused = f"{_PREFIX}router_refusals_total"
    reasons = "pool_overloaded|deadline_exceeded|worker_lost|result_lost|internal_error"
    store = f"{_PREFIX}router_store_held_bytes + {_PREFIX}router_store_promised_bytes"
    return {
        "groups": [
            {
                "name": "sglang-mm-ray",
                "rules": [
                    _rule(
                        "PoolSaturated",
                        f"max by (pool) ({_PREFIX}router_saturation_ratio) > 0.9",
                        "5m",
                        "warning",
                        "The pool has nearly as many images under way as it takes; soon more are refused.",
                        "Add CPU nodes.",
                    ),
                    _rule(
                        "PoolRefusesImages",
                        f'sum by (pool, reason) (increase({refused}{{reason=~"{reasons}"}}[5m])) > 0',
                        "0m",
                        "critical",
                        "Images are refused or given up: {{ $labels.reason }}.",
                        "The page of the pool says under Errors what each reason asks for.",
                    ),
                    _rule(
                        "PoolLosesWorkers",
                        f"sum by (pool) (increase({_PREFIX}router_workers_lost_total[15m])) > 2",
                        "0m",
                        "warning",
                        "Workers die with images in work.",
                        "Look for the memory monitor in Ray's logs, and at `sglang-mm-ray status`.",
                    ),
                    _rule(
                        "PoolRetriesMuch",
                        f"sum by (pool) (rate({_PREFIX}router_retries_total[5m])) > "
                        f"0.05 * sum by (pool) (rate({_PREFIX}router_images_total[5m]))",
                        "5m",
                        "warning",
                        "More than one image in twenty is sent again.",
                        "Workers die or are busy: see the panels of retries and of saturation.",
                    ),
                    _rule(
                        "PoolStoreNearlyFull",
                        f"max by (pool) (({store}) / {_PREFIX}router_store_budget_bytes) > 0.9",
                        "5m",
                        "warning",
                        "Results hold nearly all of a router's part of the object store.",
                        "Let go of results sooner, or raise object_store_budget_bytes.",
                    ),
                ],
            }
        ]
    }


def _rule(name: str, query: str, lasting: str, severity: str, summary: str, action: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": query,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": f"{{{{ $labels.pool }}}}: {summary}", "description": action},
    }
