"""A running server of SGLang, on a CPU, as its clients see it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .checkpoint import write_checkpoint

__all__ = ["Answer", "Server", "chat_body", "free_port"]

_ROOT = Path(__file__).resolve().parents[3]
_ARGUMENTS = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
    *("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
    *("--mem-fraction-static", "0.3", "--max-total-tokens", "8192", "--context-length", "8192"),
    *("--host", "127.0.0.1", "--disable-radix-cache", "--disable-overlap-schedule", "--skip-server-warmup"),
)
_ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_DISABLE_CUDNN_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
}
_START_TIMEOUT_S = 900.0


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    """HTTP status; 0 where the server did not answer."""
    body: Any
    took_s: float

    @property
    def text(self) -> str:
        """The error's message, or the whole body as JSON."""
        if isinstance(self.body, dict):
            error = self.body.get("error", self.body)
            if isinstance(error, dict) and "message" in error:
                return str(error["message"])
        return json.dumps(self.body) if not isinstance(self.body, str) else self.body

    @property
    def logprobs(self) -> list[tuple[float, ...]]:
        """Of each token: its own log-probability and those of the likeliest others."""
        tokens = self.body["choices"][0]["logprobs"]["content"]
        return [(token["logprob"], *(top["logprob"] for top in token["top_logprobs"])) for token in tokens]


def chat_body(images: Sequence[bytes | str], text: str = "What do you see?", **fields: Any) -> dict[str, Any]:
    """A chat request; encoded images become data URLs, texts are URLs as they are."""
    parts: list[dict[str, Any]] = []
    for image in images:
        url = image if isinstance(image, str) else f"data:image/png;base64,{base64.b64encode(image).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    parts.append({"type": "text", "text": text})
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": parts}],
        "max_tokens": 8,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 5,
        **fields,
    }


class Server:
    """SGLang's HTTP server over a tiny checkpoint; a context manager that ends it.

    Args:
        folder: for the checkpoint, which is written if it is not there, and the log.
        name: of the log.
        environment: further variables of the server's processes.
        arguments: further ones of `sglang.launch_server`.
        dtype: of the model.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        dtype: str = "float32",
    ) -> None:
        checkpoint = folder / "checkpoint"
        if not (checkpoint / "model.safetensors").exists():
            write_checkpoint(checkpoint)
        self.checkpoint = checkpoint
        self.port = free_port()
        self.log = folder / f"{name}.log"
        launch = str(Path(__file__).with_name("launch.py"))
        command = [sys.executable, launch, "--model-path", str(checkpoint), "--dtype", dtype, *_ARGUMENTS]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SGLANG_MM_RAY_")}
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {**inherited, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                # A group of its own, so that all of its processes end with it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process that answers HTTP and holds the connection to the pool."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the server's main process lives."""
        return self._process.poll() is None

    def read_log(self) -> str:
        """All that the server's processes wrote."""
        return self.log.read_text(errors="replace")

    def wait(self) -> Server:
        """Blocks until it answers.

        Raises:
            RuntimeError: it ended, or does not come up; with the end of its log.
        """
        until = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < until:
            if not self.is_running():
                raise RuntimeError(f"the server ended at launch:\n{self.read_log()[-3000:]}")
            if self.get("/health").status == 200:
                return self
            time.sleep(0.5)
        raise RuntimeError(f"the server did not come up:\n{self.read_log()[-3000:]}")

    def wait_for_end(self, timeout_s: float = _START_TIMEOUT_S) -> str:
        """Blocks until it ended by itself; its log.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        self._process.wait(timeout_s)
        return self.read_log()

    def get(self, path: str, timeout_s: float = 10.0) -> Answer:
        """What a GET gives."""
        return self._ask(urllib.request.Request(self._url(path)), timeout_s)

    def post(self, path: str, body: Any, timeout_s: float = 120.0) -> Answer:
        """What a POST of a JSON body gives."""
        request = urllib.request.Request(
            self._url(path), json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return self._ask(request, timeout_s)

    def chat(self, images: Sequence[bytes | str], timeout_s: float = 120.0, **fields: Any) -> Answer:
        """What a chat request with images gives, see `chat_body`."""
        return self.post("/v1/chat/completions", chat_body(images, **fields), timeout_s)

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @staticmethod
    def _ask(request: urllib.request.Request, timeout_s: float) -> Answer:
        started = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                status, data = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, data = error.code, error.read()
        except (OSError, TimeoutError) as error:
            return Answer(0, f"{type(error).__name__}: {error}", time.monotonic() - started)
        try:
            body = json.loads(data)
        except ValueError:
            body = data.decode(errors="replace")
        return Answer(status, body, time.monotonic() - started)

    def stop(self) -> None:
        """Ends all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
