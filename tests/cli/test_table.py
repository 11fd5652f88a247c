"""Text for terminals."""

from __future__ import annotations

import io

import pytest

from sglang_mm_ray.cli.table import Progress, bytes_text, duration_text, printable, render


def test_columns_line_up() -> None:
    text = render(["format", "files"], [["PNG", "7"], ["JPEG2000", "12"]])
    assert text.splitlines() == ["format    files", "--------  -----", "PNG           7", "JPEG2000     12"]
    assert render(["a"], []) == "a\n-"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5.0 TiB")],
)
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_names_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2J\nb\x9b\udcff") == "a\\x1b[2J\\x0ab\\x9b\\udcff"
    assert printable("Zürich 写真.jpg") == "Zürich 写真.jpg"


def test_progress_is_one_line_on_terminals_and_nothing_elsewhere() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = Progress(4, "images", stream)
        for step in range(4):
            progress.step(failed=step == 2)
        assert "4/4 images" in progress.line(2.0) and "2.0/s" in progress.line(2.0)
        assert "1 failed" in progress.line(2.0)
        progress.close()
    assert file.getvalue() == ""
    assert "4/4 images" in terminal.getvalue() and "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_progress_says_how_long_it_goes_on() -> None:
    progress = Progress(10, "images", io.StringIO())
    assert "left" not in progress.line(5.0)
    progress.step()
    assert progress.line(5.0).endswith("1/10 images  0.2/s  0:45 left")
    for _ in range(9):
        progress.step()
    assert "left" not in progress.line(50.0)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65, "1:05"), (3725, "1:02:05")])
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
