"""Runs SGLang's own frontend, and its own tests of it, against `sapwood serve`; prints a table.

    python -m venv /tmp/sgl && /tmp/sgl/bin/pip install torch triton pyzmq pillow requests numpy tqdm psutil pybase64
    /tmp/sgl/bin/pip install --no-deps sglang==0.5.23
    sapwood serve --port 30000 &
    /tmp/sgl/bin/python benchmarks/compat/sglang_frontend.py http://127.0.0.1:30000

The tests that need a model which knows things (capitals, sums) are run too and marked: the default model is small.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import types
import urllib.request

import sglang as sgl
from sglang.test import test_programs

MUST = [
    "stream",
    "regex",
    "dtype_gen",
    "select",
    "parallel_decoding",
    "mt_bench",
    "gen_min_new_tokens",
    "stream_logprobs",
]
NEED_A_GOOD_MODEL = [
    "few_shot_qa",
    "decode_int",
    "expert_answer",
    "tool_use",
    "react",
    "decode_json",
    "decode_json_regex",
]
ARGUMENTS = {"select": {"check_answer": False}}


class ServerTokenizer:
    """What test_gen_min_new_tokens counts with. (SGLang loads a tokenizer from a Hugging Face folder; ours is in a GGUF file.)"""

    def __init__(self, url: str) -> None:
        self._url = url

    def encode(self, text: str) -> list[int]:
        body = json.dumps({"prompt": text, "add_special_tokens": False}).encode()
        request = urllib.request.Request(f"{self._url}/tokenize", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            tokens: list[int] = json.load(reply)["tokens"]
            return tokens


def run(name: str) -> str:
    """ "passed", or why not."""
    try:
        getattr(test_programs, f"test_{name}")(**ARGUMENTS.get(name, {}))
    except AssertionError as error:
        return f"wrong answer: {str(error).splitlines()[0] if str(error) else traceback.extract_tb(error.__traceback__)[-1].line}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return "passed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:30000")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    backend = sgl.RuntimeEndpoint(options.url)
    backend.endpoint = backend  # test_gen_min_new_tokens looks for a Runtime's endpoint
    sgl.set_default_backend(backend)
    stand_in = types.ModuleType("sglang.srt.utils.hf_transformers_utils")
    stand_in.get_tokenizer = lambda path: ServerTokenizer(options.url)  # type: ignore[attr-defined]
    sys.modules[stand_in.__name__] = stand_in
    rows = []
    for name in MUST + NEED_A_GOOD_MODEL:
        began = time.perf_counter()
        rows.append(
            {"test": name, "must": name in MUST, "result": run(name), "seconds": round(time.perf_counter() - began, 2)}
        )
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(f"{row['test']:22}{'' if row['must'] else '(knowledge) ':13}{row['seconds']:6.2f} s  {row['result']}")
    return int(any(row["must"] and row["result"] != "passed" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
