"""`python -m sglang_mm_ray.cli`."""

import sys

from . import main

sys.exit(main())
