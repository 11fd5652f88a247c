"""An image in work takes no more memory than the README says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import images
import pytest
from peak_memory import NEEDS_PEAK
from PIL import Image

import sglang_mm_ray
from sglang_mm_ray import _core

# Measures by the kernel's high-water mark, which a write to clear_refs sets back to what is resident now.
PROBE = """
import json, sys
from pathlib import Path
from sglang_mm_ray import _core

def memory_bytes(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024

small, large = (Path(path).read_bytes() for path in sys.argv[1:3])
processor = _core.processor("inkling", sys.argv[3])
processor.preprocess_batch([small], transport=sys.argv[4])
Path("/proc/self/clear_refs").write_text("5")
before = memory_bytes("VmRSS")
[image] = processor.preprocess_batch([large], transport=sys.argv[4])
peak = memory_bytes("VmHWM") - before
print(json.dumps({"peak": peak, "width": image.width, "height": image.height}))
"""

BYTES_OF_A_VALUE = {"bf16": 2, "float32": 4, "uint8": 1}
WIDTH_PX, HEIGHT_PX = 1600, 1200


@NEEDS_PEAK
@pytest.mark.parametrize("transport", BYTES_OF_A_VALUE)
@pytest.mark.parametrize("enlarge", [False, True], ids=["size-kept", "enlarged"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
def test_peak(tmp_path: Path, transport: str, enlarge: bool, options: dict[str, bool]) -> None:
    small, large = tmp_path / "small.jpg", tmp_path / "large.jpg"
    small.write_bytes(images.encode(images.picture("RGB"), "JPEG"))
    picture = Image.fromarray(images.scene(WIDTH_PX, HEIGHT_PX))
    large.write_bytes(images.encode(picture, "JPEG", quality=90, **options))
    parameters = {"rescale_frac": 1.5, "rescale_cap": None} if enlarge else {"rescale_frac": None}
    parameters = {"rescale_cap": None, **parameters}
    package = str(Path(sglang_mm_ray.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(small), str(large), json.dumps(parameters), transport],
        env={**os.environ, "SGL_MM_RS_THREADS": "1", "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    decoded_bytes = 3 * WIDTH_PX * HEIGHT_PX
    resized_px = found["width"] * found["height"]
    assert resized_px == WIDTH_PX * HEIGHT_PX * (2.25 if enlarge else 1)
    # Whole patches, one column more than there are pixels for.
    padded_px = (found["height"] + 40) * (found["width"] + 40)
    result_bytes = 3 * BYTES_OF_A_VALUE[transport] * (resized_px if transport == "uint8" else padded_px)
    # Tables, stacks, what the decoder keeps of a few rows, and a band of patches.
    slack_bytes = 3 << 20
    # Of a progressive file that libjpeg decodes, which is there as a whole before the first row is made.
    is_whole = bool(options) and _core.build_info()["simd"] not in ("avx2", "avx512")
    coefficients_bytes = 3 * WIDTH_PX * HEIGHT_PX if is_whole else 0
    if enlarge or transport == "uint8":
        # The coefficients are gone before the result is made, but may be the larger of the two.
        bound = decoded_bytes + max(coefficients_bytes, result_bytes) + slack_bytes
    else:
        # Rows become patches as they are decoded.
        bound = coefficients_bytes + result_bytes + slack_bytes
    assert found["peak"] <= bound, f"{found['peak'] / 1e6:.1f} MB, more than {bound / 1e6:.1f} MB"


TOUCHED = """
import json, sys
from pathlib import Path
from sglang_mm_ray import _core

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

processor = _core.processor("inkling")
processor.preprocess_batch([Path(sys.argv[1]).read_bytes()])
seen = [resident()]
_core.touch_ahead(int(sys.argv[3]))
seen.append(resident())
[image] = processor.preprocess_batch([Path(sys.argv[2]).read_bytes()])
seen.append(resident())
print(json.dumps([seen[1] - seen[0], seen[2] - seen[1], image.tensors["patches"].nbytes]))
"""


@pytest.mark.parametrize(("asked_mib", "touched_mib"), [(0, 0), (96, 96), (1 << 20, 256)])
def test_results_take_memory_that_was_touched_ahead(tmp_path: Path, asked_mib: int, touched_mib: int) -> None:
    small, large = tmp_path / "small.jpg", tmp_path / "large.jpg"
    small.write_bytes(images.encode(images.picture("RGB"), "JPEG"))
    large.write_bytes(images.encode(Image.fromarray(images.scene(WIDTH_PX, HEIGHT_PX)), "JPEG"))
    package = str(Path(sglang_mm_ray.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", TOUCHED, str(small), str(large), str(asked_mib << 20)],
        env={**os.environ, "SGL_MM_RS_THREADS": "1", "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    touched, more, result_bytes = json.loads(done.stdout)
    slack_bytes = 4 << 20
    assert abs(touched - (touched_mib << 20)) < slack_bytes
    if touched_mib:
        assert more < slack_bytes < result_bytes
    else:
        assert more > result_bytes
