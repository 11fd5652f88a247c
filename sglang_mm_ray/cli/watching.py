"""`sglang-mm-ray dashboard`: what Grafana and Prometheus need to watch the pools of a cluster."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..watching import alert_rules, dashboard
from . import EXIT_OK

DASHBOARD = "grafana-dashboard.json"
# JSON is YAML too, and what Prometheus reads as `rule_files`.
RULES = "prometheus-alerts.yml"


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "dashboard",
        help="a Grafana dashboard and Prometheus alert rules",
        description=f"Writes {DASHBOARD}, for Grafana's import, and {RULES}, for Prometheus's rule_files.",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where they go")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the subcommand; returns the exit code."""
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((DASHBOARD, dashboard()), (RULES, alert_rules())):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(folder / name)
    return EXIT_OK
