"""Records by schema from a folder of texts, to JSONL and CSV. Ended half-way, it goes on where it was.

sapwood run examples/extract.py FOLDER records.jsonl records.csv
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

import sapwood as sw

Short = Annotated[str, msgspec.Meta(max_length=60)]


@dataclass
class Order:
    customer: Short
    product: Short
    quantity: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    priority: Literal["normal", "urgent"]


@sw.function
def extract(s, file, text):  # type: ignore[no-untyped-def]
    s += sw.system("You read letters to a shop and write down the order as JSON.")
    s += sw.user(f"The letter:\n{text}")
    s += sw.assistant(sw.gen("order", schema=Order, max_tokens=160, temperature=0))
    s["order"] = {"file": file, **asdict(s["order"])}


def main(folder: Path, jsonl: Path, table: Path) -> None:
    letters = [{"file": path.name, "text": path.read_text()} for path in sorted(folder.glob("*.txt"))]
    if not letters:
        sys.exit(f"there are no .txt files in {folder}")
    new = extract.run_batch(letters, output=jsonl, progress_bar=sys.stderr.isatty())
    records = [json.loads(line) for line in jsonl.read_text().splitlines()]
    orders = [record["variables"]["order"] for record in records if record["error"] is None]
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["file", "customer", "product", "quantity", "priority"])
        writer.writeheader()
        writer.writerows(orders)
    print(f"{new} letters read now, {len(orders)} of {len(letters)} orders in {table}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: sapwood run examples/extract.py FOLDER RECORDS.jsonl TABLE.csv")
    main(*map(Path, sys.argv[1:]))
