"""An image that is preprocessed already, and looks like a PIL image to whoever carries it on.

SGLang's processors and those of Hugging Face hand images on, ask for their size, and give them to an image
processor. Only the last one wants the model's tensors, which are here. Whoever touches the pixels gets them
too: the file is then decoded in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from PIL import Image

from .backend import Feature

__all__ = ["PreparedImage"]


class PreparedImage(Image.Image):
    """A `PIL.Image.Image` of mode `RGB` whose pixels are decoded when they are first touched.

    Args:
        feature: what a pool made of it.
        read: gives the encoded file; called once, if it is needed at all.
    """

    def __init__(self, feature: Feature, read: Callable[[], bytes]) -> None:
        super().__init__()
        self._mode = "RGB"
        self.feature = feature
        self._read = read
        self._size_px = feature.source_size

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the file, in pixels."""
        if self._size_px is None:
            with Image.open(BytesIO(self._read())) as image:
                self._size_px = image.size
        return self._size_px

    def load(self) -> Any:
        """Decodes the file, unless that was done."""
        if getattr(self, "_im", None) is None:
            with Image.open(BytesIO(self._read())) as image:
                decoded = image.convert("RGB")
            self._size_px = self._size = decoded.size
            self._im = decoded.im
        return super().load()

    def __deepcopy__(self, memo: dict[int, Any]) -> PreparedImage:
        return self

    def __repr__(self) -> str:
        return f"<PreparedImage sha256:{self.feature.digest.hex()[:16]} {self.feature.grid}>"
