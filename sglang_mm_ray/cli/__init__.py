"""The command `sglang-mm-ray`.

Exit codes, the same for every subcommand: 0 all is well, 1 the command ran but something in it failed (a
file, a comparison), 2 wrong usage, 3 the command itself could not run (no pool, no cluster), 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence

from .. import _core
from ..errors import PreprocessError, describe

EXIT_OK = 0
EXIT_FAILURES = 1
EXIT_USAGE = 2
EXIT_ERROR = 3
EXIT_INTERRUPTED = 130

# Each module has `add_parser(subparsers)`, which sets `run` on its parser.
_COMMANDS = ("preprocess", "manage", "models", "verify", "bench", "watching")

__all__ = ["EXIT_ERROR", "EXIT_FAILURES", "EXIT_INTERRUPTED", "EXIT_OK", "EXIT_USAGE", "main"]


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser = argparse.ArgumentParser(
        prog="sglang-mm-ray",
        description="Exact, fast image preprocessing for SGLang, spread over Ray.",
        epilog="Exit codes: 0 all well, 1 something failed, 2 wrong usage, 3 could not run, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_core.__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in _COMMANDS:
        importlib.import_module(f".{name}", __name__).add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`); there is nobody to tell.
        sys.stderr.close()
        return EXIT_FAILURES
    except PreprocessError as error:
        print(f"sglang-mm-ray: {describe(error)}", file=sys.stderr)
        return EXIT_ERROR
    except OSError as error:
        print(f"sglang-mm-ray: {error}", file=sys.stderr)
        return EXIT_ERROR
    except Exception:
        # A fault of ours or of Ray; code 1 would say that some file is at fault.
        traceback.print_exc()
        return EXIT_ERROR
    return code
