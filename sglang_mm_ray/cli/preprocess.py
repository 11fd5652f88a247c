"""`sglang-mm-ray preprocess`: a folder of photos to safetensors shards and a manifest."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument, PoolClosed, PreprocessError, ResultLost, with_context
from . import EXIT_FAILURES, EXIT_OK
from .options import add_address, add_pool_options, address_or_local, pool_config, positive
from .shards import MANIFEST, ImageRecord, ShardWriter
from .table import Progress, bytes_text, count_text, printable, render
from .walk import Inputs, find_images

if TYPE_CHECKING:
    from ..pool.pool import PreprocessPool

_FAILURES_SHOWN = 20


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "preprocess",
        help="images to safetensors shards and a manifest",
        description="Preprocesses images into safetensors shards and a manifest.jsonl. It runs on "
        "this machine unless a cluster is named. A file that fails is skipped; the exit code is then 1.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="an image, a folder with all images below it, or an http(s) URL",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where shards and manifest.jsonl go")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in DIR")
    parser.add_argument("--max-shard-mib", type=positive, default=512, metavar="N", help="size of a shard")
    parser.add_argument(
        "--upload",
        action="store_true",
        help="read the files here and send them, for workers without this disk",
    )
    parser.add_argument("--pool", metavar="NAME", help="use a pool that runs, with its own configuration")
    parser.add_argument("--json", action="store_true", help="the summary as one JSON object on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_pool_options(parser)
    add_address(parser, "this machine")
    parser.set_defaults(run=run)


@dataclasses.dataclass(slots=True)
class Summary:
    """What a run did, as `--json` prints it."""

    out: str
    files: int
    skipped_files: int
    processed: int = 0
    failed: int = 0
    pixels: int = 0
    patches: int = 0
    tokens: int = 0
    result_bytes: int = 0
    stored_bytes: int = 0
    shards: int = 0
    start_s: float = 0.0
    run_s: float = 0.0
    images_per_s: float = 0.0
    decoders: dict[str, int] = dataclasses.field(default_factory=dict)
    failures: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def run(arguments: argparse.Namespace) -> int:
    """Runs the subcommand; returns the exit code."""
    inputs = find_images(arguments.paths)
    summary = Summary(arguments.out, len(inputs.sources), inputs.skipped)
    if sys.stderr.isatty() and not arguments.quiet:
        print("connecting to the pool, or starting one ...", file=sys.stderr)
    start = time.monotonic()
    with _open_pool(arguments, inputs) as pool:
        summary.start_s = time.monotonic() - start
        start = time.monotonic()
        metadata = {
            "model": pool.config.model,
            "parameters": pool.config.processor().parameters_json,
            "transport": pool.config.transport,
        }
        writer = ShardWriter(
            arguments.out,
            metadata,
            max_shard_bytes=arguments.max_shard_mib << 20,
            overwrite=arguments.overwrite,
        )
        progress = Progress(len(inputs.sources), "images", shown=not arguments.quiet)
        try:
            with writer:
                try:
                    asyncio.run(_consume(pool, inputs, arguments.upload, writer, summary, progress))
                finally:
                    _note_the_rest(writer, inputs)
        finally:
            progress.close()
            summary.stored_bytes, summary.shards = writer.stored_bytes, writer.num_shards
            summary.run_s = time.monotonic() - start
            summary.images_per_s = summary.processed / summary.run_s if summary.run_s > 0 else 0.0
    if arguments.json:
        print(json.dumps(dataclasses.asdict(summary), indent=1))
    else:
        _print(summary)
    return EXIT_OK if summary.processed and not summary.failed else EXIT_FAILURES


def _open_pool(arguments: argparse.Namespace, inputs: Inputs) -> PreprocessPool:
    from ..pool.pool import PreprocessPool

    if arguments.pool is not None:
        options = ("model", "model_path", "parameters", "transport", "workers", "threads", "config")
        given = [name for name in options if getattr(arguments, name) is not None]
        if given:
            raise InvalidArgument(f"--pool has a configuration of its own; leave out --{given[0]}")
        return PreprocessPool.connect(arguments.pool, address=arguments.address)
    return PreprocessPool(config=pool_config(arguments, inputs.roots), address=address_or_local(arguments))


async def _consume(
    pool: PreprocessPool,
    inputs: Inputs,
    upload: bool,
    writer: ShardWriter,
    summary: Summary,
    progress: Progress,
) -> None:
    sources = _uploads(inputs.sources) if upload else _paths(inputs.sources)
    async for index, outcome in pool.stream(sources, on_error="return"):
        name = inputs.names[index]
        error = outcome if isinstance(outcome, PreprocessError) else None
        if error is None:
            try:
                record = _record(pool, outcome)
            except PreprocessError as lost:
                error = lost
        if error is None:
            writer.add(index, name, record)
            _count(summary, record)
        else:
            with_context(error, index=index, source=name)
            writer.fail(index, name, error)
            summary.failed += 1
            summary.failures.append({"file": name, "code": error.code, "message": str(error)})
        # Nothing may hold on to the store while the next image is awaited.
        outcome = record = None  # type: ignore[assignment]
        progress.step(failed=error is not None)


def _paths(sources: list[str]) -> Iterator[Any]:
    for source in sources:
        # A path whatever its name looks like; a URL stays text.
        yield source if source.lower().startswith(("http://", "https://")) else Path(source)


def _uploads(sources: list[str]) -> Iterator[Any]:
    for source in _paths(sources):
        # Reading a FIFO or a device would not end.
        if isinstance(source, Path) and source.is_file():
            try:
                yield source.read_bytes()
                continue
            except OSError:
                pass  # The worker says why it cannot read it either.
        yield source


def _record(pool: PreprocessPool, image: Any) -> ImageRecord:
    try:
        arrays = image.tensors()
    except ResultLost:
        image = pool.recompute(image)
        arrays = image.tensors()
    tensors = [(name, tag, arrays[name]) for name, tag, _ in image.facts.tensors]
    return ImageRecord(
        image.content_digest,
        image.height,
        image.width,
        image.grid_thw,
        image.num_tokens,
        image.decoder,
        tensors,
    )


def _count(summary: Summary, record: ImageRecord) -> None:
    summary.processed += 1
    summary.pixels += record.height * record.width
    temporal, rows, columns = record.grid
    summary.patches += temporal * rows * columns
    summary.tokens += record.num_tokens
    summary.result_bytes += record.nbytes
    summary.decoders[record.decoder] = summary.decoders.get(record.decoder, 0) + 1


def _note_the_rest(writer: ShardWriter, inputs: Inputs) -> None:
    for index, name in enumerate(inputs.names):
        if not writer.has(index):
            writer.fail(index, name, PoolClosed("the run ended before this file was processed"))


def _print(summary: Summary) -> None:
    skipped = f" ({summary.skipped_files} not named as images left out)" if summary.skipped_files else ""
    decoders = ", ".join(f"{name} {count}" for name, count in sorted(summary.decoders.items()))
    plural = "" if summary.shards == 1 else "s"
    rows = [
        ["files", count_text(summary.files) + skipped],
        ["processed", count_text(summary.processed)],
        ["failed", count_text(summary.failed)],
        ["pixels", count_text(summary.pixels)],
        ["patches", count_text(summary.patches)],
        ["tokens", count_text(summary.tokens)],
        ["bytes", f"{bytes_text(summary.stored_bytes)} in {summary.shards} shard{plural}"],
        ["decoders", decoders or "-"],
        ["time", f"{summary.run_s:.2f} s, after {summary.start_s:.2f} s to start"],
        ["images/s", f"{summary.images_per_s:.1f}"],
        ["manifest", printable(str(Path(summary.out) / MANIFEST))],
    ]
    print(render(["", "result"], rows))
    if not summary.failures:
        return
    sys.stdout.flush()
    shown = sorted(summary.failures, key=lambda failure: failure["file"])[:_FAILURES_SHOWN]
    failures = [[printable(item["file"]), item["code"], printable(item["message"])] for item in shown]
    print("\n" + render(["failed file", "code", "why"], failures))
    if summary.failed > len(shown):
        print(f"... and {summary.failed - len(shown)} more; see {MANIFEST}")
