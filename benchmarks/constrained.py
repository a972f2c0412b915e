"""Coverage, correctness, compile times and masks over a set of JSON Schemas.

    python benchmarks/constrained.py SCHEMAS --tokenizer NAME          a folder or .jsonl(.gz) in JSONSchemaBench's layout
    python benchmarks/constrained.py --suite FOLDER --tokenizer NAME   the JSON-Schema-Test-Suite, draft 2020-12

Times are CPU times of the one thread that works. A valid instance is accepted if every token of
`encode(json.dumps(instance))` is in the mask, and EOS is in the last one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sapwood.constrained import GrammarError, Vocabulary, compile
from sapwood.constrained.grammar import Matcher


@dataclass
class Result:
    """What came of one schema."""

    id: str
    error: str = ""
    compile_ms: float = 0.0
    valid_refused: list[str] = field(default_factory=list)
    invalid_accepted: list[str] = field(default_factory=list)
    mask_us: list[float] = field(default_factory=list)
    jumped: int = 0
    tokens: int = 0

    @property
    def correct(self) -> bool:
        return not (self.error or self.valid_refused or self.invalid_accepted)


def schemas(path: Path) -> Iterator[dict[str, Any]]:
    """Records with id, schema, tests: [{valid, data}]."""
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            record = json.loads(file.read_text())
            if "schema" in record:
                yield {"id": str(file.relative_to(path)), **record}
    else:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for line in lines:
                yield json.loads(line)


def replay(matcher: Matcher, ids: list[int], eos: int, mask_us: list[float]) -> str:
    """Why the text is refused; empty if it is accepted."""
    for position, id in enumerate([*ids, eos]):
        begin = time.thread_time()
        mask = matcher.mask()
        mask_us.append((time.thread_time() - begin) * 1e6)
        if not mask[id // 32] >> (id % 32) & 1:
            return f"token {position} of {len(ids)}"
        matcher.advance(id)
    return ""


def jumped_tokens(matcher: Matcher, ids: list[int]) -> int:
    """How many of the canonical ids a matcher appends by itself."""
    position = jumped = 0
    while position < len(ids):
        jump = matcher.jump()
        if jump and ids[position : position + len(jump)] != jump:
            jump = []  # the instance is in another layout
        for id in jump or ids[position : position + 1]:
            matcher.advance(id)
            position += 1
        jumped += len(jump)
    return jumped


def run_schema(record: dict[str, Any], vocabulary: Vocabulary, options: dict[str, Any]) -> Result:
    result = Result(str(record["id"]))
    eos = min(vocabulary.eos_ids)
    begin = time.thread_time()
    try:
        grammar = compile({"json_schema": record["schema"]}, vocabulary, **options)
    except GrammarError as error:
        result.error = str(error)
    result.compile_ms = (time.thread_time() - begin) * 1e3
    if result.error:
        return result
    separators = (",", ":") if options.get("whitespace") == "compact" else None
    for test in record["tests"]:
        text = json.dumps(test["data"], separators=separators)
        ids = vocabulary.encode(text)
        try:
            why = replay(grammar.matcher(), ids, eos, result.mask_us)
        except GrammarError as error:
            why = str(error)
        if test["valid"] and why:
            result.valid_refused.append(f"{why}: {text}")
        if not test["valid"] and not why:
            result.invalid_accepted.append(text)
        if test["valid"] and not why:
            result.tokens += len(ids)
            result.jumped += jumped_tokens(grammar.matcher(), ids)
    return result


def percentile(values: list[float], p: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * p))] if ordered else 0.0


def summary(results: list[Result]) -> dict[str, Any]:
    """The row of the table."""
    times = [r.compile_ms for r in results]
    masks = [us for r in results for us in r.mask_us]
    count = len(results)
    return {
        "schemas": count,
        "compiles %": round(100 * sum(not r.error for r in results) / count, 1),
        "all correct %": round(100 * sum(r.correct for r in results) / count, 1),
        "schemas with a valid one refused": sum(bool(r.valid_refused) for r in results),
        "schemas with an invalid one accepted": sum(bool(r.invalid_accepted) for r in results),
        "compile ms median / p95 / p99 / max": [round(percentile(times, p), 2) for p in (0.5, 0.95, 0.99, 1)],
        "mask us mean": round(statistics.fmean(masks), 1) if masks else None,
        "mask us median / p95 / p99 / max": [round(percentile(masks, p), 1) for p in (0.5, 0.95, 0.99, 1)],
        "jumped % of tokens": round(100 * sum(r.jumped for r in results) / max(1, sum(r.tokens for r in results)), 1),
    }


def suite_records(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each required group of tests, and the file it is in."""
    for file in sorted((folder / "tests" / "draft2020-12").glob("*.json")):
        for group in json.loads(file.read_text()):
            tests = [{"valid": test["valid"], "data": test["data"]} for test in group["tests"]]
            yield file.stem, {"id": group["description"], "schema": group["schema"], "tests": tests}


def run_suite(folder: Path, vocabulary: Vocabulary) -> dict[str, Any]:
    """Counts by file; a group that does not compile fails with all of its tests."""
    table: dict[str, list[int]] = {}
    notes: list[str] = []
    for name, record in suite_records(folder):
        result = run_schema(record, vocabulary, {})
        total = len(record["tests"])
        refused, accepted = len(result.valid_refused), len(result.invalid_accepted)
        row = table.setdefault(name, [0, 0, 0, 0, 0])
        passed = 0 if result.error else total - refused - accepted
        for i, value in enumerate((total, passed, total if result.error else 0, accepted, refused)):
            row[i] += value
        if not result.correct:
            notes.append(f"{name}: {record['id']}: {result.error or result.invalid_accepted or result.valid_refused}")
    sums = [sum(row[i] for row in table.values()) for i in range(5)]
    return {
        "columns": ["tests", "passed", "not compiled", "wrongly accepted", "wrongly refused"],
        "files": table,
        "all": sums,
        "passed %": round(100 * sums[1] / sums[0], 1),
        "notes": notes,
    }


def load_vocabulary(name: str) -> Vocabulary:
    """A tokenizer of Sapwood's, or a `tokenizer.json`."""
    if name.endswith(".json"):
        from tokenizers import Tokenizer

        from sapwood.constrained import HuggingFaceVocabulary

        tokenizer = Tokenizer.from_file(name)
        eos = next(id for token in ("<|im_end|>", "</s>", "<eos>") if (id := tokenizer.token_to_id(token)) is not None)
        return HuggingFaceVocabulary(tokenizer, [eos])
    from sapwood.runtime.tokenizer import load_tokenizer

    return load_tokenizer(name)


def plot(results: list[Result], path: str) -> None:
    """Distributions of compile and mask times."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for axes, values, label in (
        (left, [r.compile_ms for r in results], "compile, ms"),
        (right, [us for r in results for us in r.mask_us], "mask, µs"),
    ):
        ordered = sorted(values)
        axes.plot(ordered, [100 * (i + 1) / len(ordered) for i in range(len(ordered))])
        axes.set(xscale="log", xlabel=label, ylabel="% within")
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemas", nargs="?", type=Path)
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--tokenizer", default="smollm2-135m")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--whitespace", choices=("flexible", "compact"), default="flexible")
    parser.add_argument("--fixed-order", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="print every schema that is not all correct")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot")
    args = parser.parse_args()
    vocabulary = load_vocabulary(args.tokenizer)
    compile({"choices": ["warm"]}, vocabulary)
    report: dict[str, Any] = {}
    if args.suite:
        report["suite"] = run_suite(args.suite, vocabulary)
    if args.schemas:
        records = list(schemas(args.schemas))
        records = records[: args.limit or len(records)]
        options = {"whitespace": args.whitespace, "any_order": not args.fixed_order}
        results = [run_schema(record, vocabulary, options) for record in records]
        report["schemas"] = summary(results)
        if args.verbose:
            for r in results:
                if not r.correct:
                    print(r.id, *[x[:300] for x in (r.error, *r.valid_refused, *r.invalid_accepted) if x], sep="\n    ")
        if args.plot:
            plot(results, args.plot)
    notes = report.get("suite", {}).pop("notes", [])
    if args.verbose:
        print(*notes, sep="\n")
    print(json.dumps(report, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
