"""What is evicted falls to host memory and disk, and comes back with the same bits."""

from __future__ import annotations

from pathlib import Path

from in_process import Driver, Outcome, alone

LONG = [1 + i % 200 for i in range(200)]
SETTINGS = {"max_tokens": 8, "temperature": 1.0, "seed": 3, "logprobs": 2}


def crowd(driver: Driver, count: int = 6) -> None:
    """Others that need all the room there is."""
    for i in range(count):
        driver.complete([201 + i] * 200, max_tokens=4)


def bits(outcome: Outcome) -> list[tuple[int, float | None]]:
    return [(one.id, one.logprob) for one in outcome.logprobs]


def test_evicted_prompts_come_back_from_host_memory() -> None:
    driver = Driver(num_slots=300, host_cache=100 * 2**20)
    driver.complete(LONG, **SETTINGS)
    crowd(driver)
    before = driver.num_rows
    again = driver.complete(LONG, **SETTINGS)
    assert again.usage.cached_tokens == 192 and driver.num_rows - before < 20, "whole pages of 16"
    assert bits(again) == bits(alone(LONG, **SETTINGS))


def test_they_come_back_from_disk_also_in_another_process(tmp_path: Path) -> None:
    first = Driver(num_slots=300, host_cache=400 * 1024, disk_cache=str(tmp_path))
    first.complete(LONG, **SETTINGS)
    crowd(first, 12)
    again = first.complete(LONG, **SETTINGS)
    assert again.usage.cached_tokens == 192
    first.system.close()
    second = Driver(num_slots=300, disk_cache=str(tmp_path))
    second.submit("others go on", [5] * 20, max_tokens=30)
    warm = second.complete(LONG, **SETTINGS)
    assert warm.usage.cached_tokens > 100
    assert bits(warm) == bits(again) == bits(alone(LONG, **SETTINGS))
    second.system.close()


def test_a_damaged_page_is_a_miss(tmp_path: Path) -> None:
    first = Driver(num_slots=300, host_cache=100 * 1024, disk_cache=str(tmp_path))
    first.complete(LONG, **SETTINGS)
    crowd(first, 8)
    first.system.close()
    for page in tmp_path.iterdir():
        content = bytearray(page.read_bytes())
        content[-1] ^= 1
        page.write_bytes(content)
    second = Driver(num_slots=300, disk_cache=str(tmp_path))
    outcome = second.complete(LONG, **SETTINGS)
    assert outcome.usage.cached_tokens == 0
    assert bits(outcome) == bits(alone(LONG, **SETTINGS))
    second.system.close()


def test_preempted_requests_get_their_work_back_from_host_memory() -> None:
    prompts = [[100 + i] * 48 for i in range(8)]
    plain = Driver(num_slots=220)
    swapping = Driver(num_slots=220, host_cache=100 * 2**20)
    for driver in (plain, swapping):
        for i, prompt in enumerate(prompts):
            driver.submit(f"{i}", prompt, max_tokens=80, temperature=1.0, seed=i)
        driver.finish()
    assert swapping.scheduler.stats.num_preempted
    assert swapping.num_rows < plain.num_rows, "less was computed again"
    for i, prompt in enumerate(prompts):
        assert swapping.outcomes[f"{i}"].ids == alone(prompt, max_tokens=80, temperature=1.0, seed=i).ids
