"""Code written for the published module runs on ours, with and without SGLang installed."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from sglang_mm_ray.sglang.alias import install_alias

core = install_alias()
install_alias()
from sglang.srt.multimodal._core import common, inkling
import sglang.srt.multimodal._core.common as again
import sglang.srt.multimodal._core as published

assert published is core and again is common
assert common.scaled_dims(512, 512, 2.0, 2048) == (1024, 1024)
# SHA-256 of "abc" begins ba7816bf8f01cfea (FIPS 180-2).
assert common.data_hash(b"abc") == 0xBA7816BF8F01CFEA
assert callable(inkling.preprocess_images)
# Importing SGLang itself, where it is installed, brings torch along.
assert "torch" not in sys.modules or hasattr(sys.modules["sglang"], "__file__")
print("ok")
"""


def test_the_published_import_resolves_to_our_core() -> None:
    # A process of its own: the alias changes sys.modules for good.
    result = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "ok", result.stderr[-2000:]
