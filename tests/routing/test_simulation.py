"""The simulation runs the real policy: nothing lost, repeats find their cache, only a share of keys moves."""

from __future__ import annotations

import pytest
from sim_router import Simulation, moved_keys


@pytest.mark.parametrize("zipf", [1.0, 1.3])
def test_nothing_is_lost_while_workers_die_and_join(zipf: float) -> None:
    report = Simulation(50, 4000, load=0.6, zipf=zipf, seed=3).run()
    assert report["workers"] == 50
    assert report["batches_lost"] > 0, "the run must have lost something to have shown anything"
    if zipf == 1.0:
        assert report["hit_rate"] == report["hit_rate_possible"] == 0
    else:
        # Repeats that find their worker's cache, or the image still under way, of those that could.
        assert report["hit_rate"] > 0.85 * report["hit_rate_possible"]


def test_only_the_share_of_those_who_come_and_go_moves() -> None:
    moved = moved_keys(200, keys=4000)
    assert moved["ideal"] == 0.01
    for change in ("leave", "join"):
        assert 0.002 < moved[change] < 0.025
