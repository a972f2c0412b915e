"""The native plan means what the reference means, and its bits don't depend on what shares the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decoders import HIDDEN, VOCAB, decoder, int32, run

from sapwood.kernels import open_plan
from sapwood.kernels._cpu import available_isas, current_isa, set_isa
from sapwood.kernels.decoder import Format
from sapwood.kernels.plan import Batch, DraftTail, Plan

KINDS = ["llama", "gemma", "qwen"]
LENGTH = 300  # more than one range of attention
RNG = np.random.default_rng(7)
IDS = RNG.integers(0, VOCAB, LENGTH).tolist()
TABLE = int32(RNG.permutation(LENGTH + 50)[:LENGTH])


def cpu(kind: str, fmt: Format = Format.Q8_0, threads: int = 2, captures: tuple[int, ...] = ()) -> Plan:
    return open_plan(decoder(kind, fmt), num_slots=LENGTH + 50, max_rows=320, threads=threads, captures=captures)


@pytest.mark.parametrize("fmt", [Format.F32, Format.Q8_0])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_reference_s(kind: str, fmt: Format) -> None:
    reference = open_plan(decoder(kind, fmt), backend="reference", num_slots=LENGTH + 50)
    expected = run(reference, IDS, TABLE, 0, LENGTH)
    got = run(cpu(kind, fmt), IDS, TABLE, 0, LENGTH)
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error < 0.04, error


@pytest.mark.parametrize("isa", available_isas())
def test_every_instruction_set_means_the_same(isa: str) -> None:
    before = current_isa()
    best = run(cpu("gemma"), IDS, TABLE, 0, 100)
    try:
        set_isa(isa)
        got = run(cpu("gemma"), IDS, TABLE, 0, 100)
    finally:
        set_isa(before)
    assert np.abs(got - best).max() / np.abs(best).max() < 0.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 64, 299])
def test_bits_do_not_depend_on_chunks(kind: str, chunk: int) -> None:
    whole = run(cpu(kind), IDS, TABLE, 0, LENGTH)
    plan = cpu(kind)
    pieces = [run(plan, IDS, TABLE, at, min(at + chunk, LENGTH)) for at in range(0, LENGTH, chunk)]
    assert np.array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_threads(kind: str) -> None:
    assert np.array_equal(
        run(cpu(kind, threads=1), IDS, TABLE, 0, LENGTH), run(cpu(kind, threads=3), IDS, TABLE, 0, LENGTH)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", [1, 6, 15])
def test_bits_do_not_depend_on_the_other_rows_and_what_they_share(kind: str, others: int) -> None:
    """Sequences that share a prefix by slots, each with a token of its own at the end."""
    plan = cpu(kind)
    alone = run(plan, IDS, TABLE, 0, LENGTH)[-1]
    shared, last = TABLE[: LENGTH - 1], LENGTH - 1
    free = [slot for slot in range(LENGTH + 50) if slot not in TABLE][:others]
    tables = [TABLE, *(int32([*shared, slot]) for slot in free)]
    rows = len(tables)
    batch = Batch(
        int32([IDS[last], *range(others)]), int32([last] * rows), int32([t[last] for t in tables]),
        int32(range(rows)), tables, int32(range(rows)),
    )  # fmt: skip
    assert np.array_equal(plan.run(batch).logits[0], alone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_tree_computed_in_one_batch_has_the_bits_of_each_of_its_sequences(kind: str, seed: int) -> None:
    """Branches leave a trunk at random points; whoever comes first computes a shared slot, in any order of rows."""
    rng = np.random.default_rng(seed)
    free = iter(rng.permutation(900).tolist())
    texts = [rng.integers(0, VOCAB, 290).tolist()]
    tables = [[next(free) for _ in texts[0]]]
    for _ in range(4):
        parent = int(rng.integers(len(texts)))
        branch, size = int(rng.integers(1, len(texts[parent]))), int(rng.integers(1, 40))
        texts.append(texts[parent][:branch] + rng.integers(0, VOCAB, size).tolist())
        tables.append(tables[parent][:branch] + [next(free) for _ in range(size)])
    rows, seen = [], set()
    for sequence, table in enumerate(tables):
        rows += [(sequence, position) for position, slot in enumerate(table) if slot not in seen]
        seen.update(table)
    rows = [rows[i] for i in rng.permutation(len(rows))]
    tips = [rows.index((sequence, len(table) - 1)) for sequence, table in enumerate(tables)]
    batch = Batch(
        int32([texts[s][p] for s, p in rows]), int32([p for _, p in rows]), int32([tables[s][p] for s, p in rows]),
        int32([s for s, _ in rows]), [int32(table) for table in tables], int32(tips),
    )  # fmt: skip
    plan = open_plan(decoder(kind), num_slots=900, max_rows=512, threads=2)
    together = plan.run(batch).logits.copy()
    for ids, table, logits in zip(texts, tables, together, strict=True):
        alone = run(cpu(kind, threads=1), ids, int32(range(len(table))), 0, len(table))
        assert np.array_equal(alone[-1], logits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_tree_has_the_bits_of_each_of_its_lines(kind: str) -> None:
    start = 290
    masks = [0b00001, 0b00011, 0b00101, 0b01011, 0b10101]  # a root, two children, a grandchild of each
    tokens = [3, 5, 7, 11, 13]
    lines = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]
    plan = cpu(kind)
    run(plan, IDS, TABLE, 0, start)
    free = [slot for slot in range(LENGTH + 50) if slot not in TABLE[:start]][:5]
    table = int32([*TABLE[:start], *free])
    positions = int32([start + len(line) - 1 for line in lines])
    batch = Batch(int32(tokens), positions, int32(free), int32([0] * 5), [table], int32(range(5)))
    batch.drafts = {0: DraftTail(start, np.asarray(masks, np.uint64))}
    got = plan.run(batch).logits.copy()
    for row, line in enumerate(lines):
        ids = [*IDS[:start], *(tokens[i] for i in line)]
        straight = int32([*TABLE[:start], *(free[i] for i in line)])
        assert np.array_equal(run(plan, ids, straight, start, len(ids))[-1], got[row])


def test_a_row_with_no_slot_reads_but_does_not_write() -> None:
    plan = cpu("llama")
    whole = run(plan, IDS, TABLE, 0, 50)
    records = plan.kv.read(TABLE[:50])
    batch = Batch(int32([IDS[49]]), int32([49]), int32([-1]), int32([0]), [TABLE], int32([0]))
    assert np.array_equal(plan.run(batch).logits[0], whole[-1])
    assert np.array_equal(plan.kv.read(TABLE[:50]), records)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [7, LENGTH])
def test_nothing_is_read_that_was_not_written(kind: str, chunk: int) -> None:
    """Keys, values, the plan's own buffers and the logits are full of NaN before."""
    expected = run(cpu(kind), IDS, TABLE, 0, LENGTH)
    plan = cpu(kind)
    every = int32(range(plan.kv.num_slots))
    plan.kv.write(every, np.full((len(every), plan.kv.bytes_per_slot), 0xFF, np.uint8))
    rows = int32(range(LENGTH))
    nowhere = np.full(LENGTH, -1, np.int32)
    poisoned = plan.run(Batch(rows % VOCAB, rows, nowhere, rows * 0, [every], rows)).logits
    assert np.isnan(poisoned[-1]).any()
    poisoned[:] = np.nan
    pieces = [run(plan, IDS, TABLE, at, min(at + chunk, LENGTH)) for at in range(0, LENGTH, chunk)]
    assert np.array_equal(np.concatenate(pieces), expected)


def test_records_move_between_slots_and_plans() -> None:
    plan, other = cpu("gemma"), cpu("gemma")
    run(plan, IDS, TABLE, 0, 40)
    elsewhere = int32(range(100, 140))
    other.kv.write(elsewhere, plan.kv.read(TABLE[:40]))
    table = int32([*elsewhere, 7])
    assert np.array_equal(run(other, IDS, table, 40, 41), run(plan, IDS, TABLE, 40, 41))
    assert plan.kv.layout == other.kv.layout


def test_hidden_states_and_captures_are_the_reference_s() -> None:
    captures = (0, 2)
    batch = Batch(
        int32(IDS[:20]), int32(range(20)), TABLE[:20], int32([0] * 20), [TABLE], int32([19]), want_hidden=True
    )
    got = cpu("llama", Format.F32, captures=captures).run(batch)
    reference = open_plan(decoder("llama", Format.F32), backend="reference", num_slots=400, captures=captures).run(
        batch
    )
    assert got.hidden is not None and got.features is not None
    assert reference.hidden is not None and reference.features is not None
    assert got.features.shape == (20, 2 * HIDDEN)
    np.testing.assert_allclose(got.features, reference.features, atol=0.15)
    np.testing.assert_allclose(got.hidden, reference.hidden, atol=0.2)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ids": int32([VOCAB])}, "token id"),
        ({"slots": int32([10_000])}, "slot"),
        ({"positions": int32([5])}, "position"),
        ({"sequences": int32([1])}, "sequence"),
        ({"logit_rows": int32([1])}, "output"),
        ({"tables": [int32([10_000])]}, "table"),
        ({"tables": [int32([-1])]}, "table"),
    ],
)
def test_what_would_be_out_of_bounds_is_refused(change: dict[str, np.ndarray], what: str) -> None:
    batch = Batch(int32([1]), int32([0]), int32([0]), int32([0]), [int32([0])], int32([0]))
    for name, value in change.items():
        setattr(batch, name, value)
    with pytest.raises(ValueError, match=what):
        cpu("llama").run(batch)


def test_the_real_model_agrees_with_the_reference(smollm2_path: Path) -> None:
    from pydoc_data.topics import topics

    from sapwood.runtime.models.load import load_model
    from sapwood.runtime.tokenizer import load_tokenizer

    model = load_model(smollm2_path).decoder
    ids = load_tokenizer(smollm2_path).encode(topics["assert"] + topics["with"])[:320]
    table = int32(range(320))
    logits = [run(open_plan(model, backend=b, num_slots=320), ids, table, 0, 320) for b in ("cpu", "reference")]  # type: ignore[arg-type]
    agree = (logits[0].argmax(1) == logits[1].argmax(1)).mean()
    losses = []
    for values in logits:
        values = values[:-1].astype(np.float64)
        picked = values[np.arange(len(values)), ids[1:]]
        losses.append((np.log(np.exp(values - values.max(1, keepdims=True)).sum(1)) + values.max(1) - picked).mean())
    assert agree > 0.95
    assert abs(np.exp(losses[0] - losses[1]) - 1) < 0.01


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_number_stays_so_in_every_logit(kind: str, isa: str) -> None:
    """Also behind a cap on logits (gemma)."""
    before = current_isa()
    try:
        set_isa(isa)
        plan = cpu(kind, Format.F32)
        run(plan, IDS, TABLE, 0, 40)
        plan.kv.write(TABLE[20:21], np.full((1, plan.kv.bytes_per_slot), 0xFF, np.uint8))
        assert np.isnan(run(plan, IDS, TABLE, 40, 41)).all()
    finally:
        set_isa(before)
