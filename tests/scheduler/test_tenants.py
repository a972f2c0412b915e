"""What one tenant wrote can't be told by another from what its own requests cost."""

from __future__ import annotations

import pytest
from in_process import Driver

SECRET = "The password of the third safe is written on the back of the map. "


def costs(driver: Driver, namespace: str) -> tuple[list[int], int, list[int]]:
    """The rows of each step of one request, which is what its time comes from; cached tokens; the text."""
    driver.batches.clear()
    outcome = driver.complete(SECRET * 3 + "Guess:", max_tokens=12, namespace=namespace)
    return list(driver.batches), outcome.usage.cached_tokens, outcome.ids


@pytest.mark.parametrize("speculative", ["off", "ngram"])
@pytest.mark.parametrize("running", [False, True], ids=["after it", "while it runs"])
def test_a_salt_hides_what_others_asked(running: bool, speculative: str) -> None:
    fresh = costs(Driver(speculative=speculative), "mine")
    driver = Driver(speculative=speculative)
    driver.submit("theirs", SECRET * 3 + "Guess:", max_tokens=12, namespace="theirs")
    if running:
        driver.step()
        beside = driver.complete(SECRET * 3 + "Guess:", max_tokens=12, namespace="mine")
        assert beside.usage.cached_tokens == 0 and beside.ids == fresh[2]
    else:
        driver.finish()
        assert costs(driver, "mine") == fresh
    again = costs(driver, "mine")
    assert again[1] > 0 and sum(again[0]) < sum(fresh[0])  # one's own is found
