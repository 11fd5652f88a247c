"""`sglang-mm-ray verify`: is the core pixel-identical to the installed Pillow on these files?"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import math
from typing import Any

from ..sources.policy import SourcePolicy
from ..verification import verify
from . import EXIT_FAILURES, EXIT_OK
from .options import positive
from .table import Progress, printable, render
from .walk import find_files


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "verify",
        help="compare the core with the installed Pillow over any files",
        description="Decodes every file with the core and with the installed Pillow and compares verdict, "
        "pixels and time. Exit code 0 if they agree on every file.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder with all below it")
    parser.add_argument("--jobs", type=positive, default=1, help="files at a time (times are best with 1)")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="a decoder hangs after so long")
    parser.add_argument(
        "--damaged", type=positive, default=0, metavar="N", help="compare N damaged copies of each file too"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the first damaged copy")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of tables")
    parser.add_argument(
        "--verbose", action="store_true", help="a line for every file, not only differing ones"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the subcommand; returns the exit code."""
    paths = list(find_files(arguments.paths))
    progress = Progress(len(paths) * (1 + arguments.damaged), "files")
    reports = []
    for report in verify.verify(
        paths,
        SourcePolicy(),
        timeout_s=arguments.timeout_s,
        jobs=arguments.jobs,
        damaged_copies=arguments.damaged,
        first_seed=arguments.seed,
    ):
        reports.append(report)
        progress.step(failed=not report.good)
    progress.close()
    agree = all(report.good for report in reports)
    if arguments.json:
        summary = {"agree": agree, "formats": summarise(reports), "files": [_file(item) for item in reports]}
        print(json.dumps(summary, indent=1))
    else:
        _print(reports, agree, arguments.verbose)
    return EXIT_OK if agree and reports else EXIT_FAILURES


def summarise(reports: list[verify.FileReport]) -> list[dict[str, Any]]:
    """One record a format: how many files of each verdict, and how much faster than Pillow the core is.

    `speed_ratio` is the geometric mean over the files of Pillow's time by ours.
    """
    groups: dict[str, list[verify.FileReport]] = collections.defaultdict(list)
    for report in reports:
        groups[report.format].append(report)
    records = []
    for name, group in sorted(groups.items()):
        ratios = [item.pillow_s / item.core_s for item in group if item.core_s > 0 and item.pillow_s > 0]
        records.append(
            {
                "format": name,
                "files": len(group),
                "verdicts": dict(collections.Counter(item.verdict for item in group)),
                "decoders": sorted({item.decoder for item in group if item.decoder}),
                "speed_ratio": math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None,
            }
        )
    return records


def _print(reports: list[verify.FileReport], agree: bool, verbose: bool) -> None:
    for report in reports:
        if verbose or not report.good:
            print(
                f"{printable(report.path)}: {report.format}: {report.verdict}. {report.detail}".rstrip(". ")
            )
    rows = []
    for record in summarise(reports):
        verdicts = record["verdicts"]
        differing = sum(count for verdict, count in verdicts.items() if verdict not in verify.GOOD)
        ratio = record["speed_ratio"]
        counts = [verdicts.get(name, 0) for name in (verify.EQUAL, verify.REFUSED_ALIKE, verify.NOT_LISTED)]
        rows.append(
            [
                record["format"],
                str(record["files"]),
                *(str(count) for count in counts),
                str(differing),
                f"{ratio:.2f}x" if ratio else "-",
                " ".join(record["decoders"]),
            ]
        )
    header = ["format", "files", "equal", "refused alike", "left out", "differing", "speed", "decoders"]
    print(render(header, rows))
    good = sum(report.good for report in reports)
    print(
        f"\n{good} of {len(reports)} files alike. "
        + ("No difference." if agree else "THERE ARE DIFFERENCES.")
    )


def _file(report: verify.FileReport) -> dict[str, Any]:
    return dataclasses.asdict(report)
