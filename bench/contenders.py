"""Where the contenders of the benchmarks come from: the peer's compiled core, and pillow-simd.

Both are looked for in the environment first and else fetched once with pip into a cache folder. pillow-simd
has Pillow's module name, so it can only run in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

from bench_parity import load_peer

from sglang_mm_ray import _core

PEER = "sglang==0.5.23"
PEER_VARIABLE = "SGLANG_MULTIMODAL_SO"
PILLOW_SIMD_VARIABLE = "PILLOW_SIMD_DIR"


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "sglang-mm-ray" / "bench"
    path.mkdir(parents=True, exist_ok=True)
    return path


def pip(*arguments: str, **environment: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"pip {arguments[0]} failed: {last}", file=sys.stderr)
    return done.returncode == 0


def peer_path() -> Path | None:
    """The extension module that SGLang ships, or None if it cannot be had here."""
    if named := os.environ.get(PEER_VARIABLE):
        return Path(named)
    folder = cache_dir() / PEER.replace("==", "-")
    version = f"cpython-{sys.version_info.major}{sys.version_info.minor}-"
    found = sorted(folder.glob(f"_multimodal.{version}*.so"))
    if not found and pip("download", "--no-deps", "--dest", str(folder), PEER):
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if Path(name).name.startswith("_multimodal."):
                        (folder / Path(name).name).write_bytes(archive.read(name))
            wheel.unlink()
        found = sorted(folder.glob(f"_multimodal.{version}*.so"))
    return found[0] if found else None


def peer() -> ModuleType | None:
    path = peer_path()
    return load_peer(path) if path else None


def pillow_simd_dir() -> Path | None:
    """A folder with pillow-simd in it, built here from source if need be; None if it does not build.

    It chooses its instructions when it is compiled, and takes SSE4 unless told otherwise, which is a third
    slower than what it can do: so it is told to take AVX2 if the CPU has that.
    """
    if named := os.environ.get(PILLOW_SIMD_VARIABLE):
        return Path(named)
    avx2 = "avx2" in _core.build_info()["simd_available"]
    folder = cache_dir() / ("pillow-simd-avx2" if avx2 else "pillow-simd")
    if not (folder / "PIL").is_dir():
        target = ("install", "--no-deps", "--no-binary", ":all:", "--no-cache-dir", "--target", str(folder))
        pip(*target, "pillow-simd", **({"CC": "cc -mavx2"} if avx2 else {}))
    return folder if (folder / "PIL").is_dir() else None


RESIZE = """
import json, sys, time
import numpy as np
from PIL import Image
assert "post" in Image.__version__ or "simd" in Image.__version__.lower(), Image.__version__
source, out, resample, rounds = json.loads(sys.argv[1])
random = np.random.default_rng(7)
image = Image.fromarray(random.integers(0, 256, (source[1], source[0], 3), dtype=np.uint8))
seconds = []
for _ in range(rounds):
    started = time.process_time()
    image.resize(out, resample)
    seconds.append(time.process_time() - started)
print(json.dumps(seconds))
"""


def pillow_simd_resize(
    folder: Path, source: tuple[int, int], out: tuple[int, int], resample: int, rounds: int
) -> list[float]:
    """Seconds of the CPU for each resize of noise from `source` to `out` (width, height), by pillow-simd."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", RESIZE, json.dumps([source, out, resample, rounds])],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        print(f"pillow-simd: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return []
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def libjpeg_turbo(data: bytes) -> Any:
    """A call that decodes `data` into a buffer that is reused, or None without simplejpeg."""
    try:
        import simplejpeg
    except ImportError:
        return None
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    buffer = bytearray(height * width * 3)
    return lambda: simplejpeg.decode_jpeg(data, "RGB", buffer=buffer)
