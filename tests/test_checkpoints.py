"""Folders of checkpoints: the class that transformers names decides the family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_mm_ray import _core
from sglang_mm_ray.checkpoints import family_of_folder
from sglang_mm_ray.cli import main
from sglang_mm_ray.errors import InvalidArgument

GOLDEN = Path(__file__).parents[1] / "bench/golden/families"
# Golden values that carry another model's class, or are of a family that serves them under its own name.
OTHERS = {"gemma3n", "gemma3_pan_and_scan", "llava", "llava_hf"}


def named_variants() -> list[tuple[str, str, dict[str, Any]]]:
    """Golden parameters that name their class: family, variant, parameters."""
    found = []
    for path in sorted(GOLDEN.glob("*.json")):
        if path.stem in OTHERS or path.stem not in _core.processor_names():
            continue
        for name, variant in json.loads(path.read_text())["variants"].items():
            if "image_processor_type" in variant["parameters"]:
                found.append((path.stem, name, variant["parameters"]))
    return found


def folder(tmp_path: Path, **files: dict[str, Any]) -> Path:
    for name, fields in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(fields))
    return tmp_path


def test_there_are_many() -> None:
    assert len({family for family, _, _ in named_variants()}) > 15


@pytest.mark.parametrize(("family", "variant", "parameters"), named_variants())
def test_the_class_names_the_family(
    family: str, variant: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    found, fields = family_of_folder(folder(tmp_path, preprocessor_config=parameters))
    assert (found, fields) == (family, parameters)
    assert _core.processor(found, json.dumps(fields)).name == family


def test_the_model_decides_where_the_class_is_anothers(tmp_path: Path) -> None:
    image = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 448, "crop_size": 448}
    model = {"model_type": "internvl_chat", "max_dynamic_patch": 6, "vision_config": {"patch_size": 14}}
    family, fields = family_of_folder(folder(tmp_path, preprocessor_config=image, config=model))
    assert family == "internvl" and fields["max_dynamic_patch"] == 6
    assert _core.processor(family, json.dumps(fields)).plan(448, 448 * 7)["grid"][1:] == (6, 1)


def test_a_backend_in_the_class_is_the_backend(tmp_path: Path) -> None:
    found = family_of_folder(
        folder(tmp_path, preprocessor_config={"image_processor_type": "SiglipImageProcessorPil"})
    )
    assert found == ("siglip", {"image_processor_type": "SiglipImageProcessorPil", "backend": "pil"})


def test_the_new_files_name_is_read_too(tmp_path: Path) -> None:
    fields = {"image_processor": {"image_processor_type": "PixtralImageProcessor"}}
    assert family_of_folder(folder(tmp_path, processor_config=fields)) == ("pixtral", fields)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no preprocessor_config.json"),
        ({"preprocessor_config": {"image_processor_type": "Nobody"}}, "no family here knows"),
    ],
)
def test_what_is_not_known_is_said(files: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=said):
        family_of_folder(folder(tmp_path, **files))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidArgument, match=r"config\.json cannot be read"):
        family_of_folder(tmp_path)


def test_models_lists_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in rows] == _core.processor_names()
    tokens = {row["model"]: row["tokens"] for row in rows}
    # 280 soft tokens hold 16 x 16 squares of 48 pixels; Gemma 3 has 256 whatever the size.
    assert (tokens["gemma4"], tokens["gemma3"]) == (256, 256)
    assert main(["models"]) == 0
    assert "pixel_values" in capsys.readouterr().out
