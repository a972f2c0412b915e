"""SGLang's own frontend tests, unmodified: its frontend against `sapwood serve`, and its programs on Sapwood's frontend.

    python -m venv scratch && scratch/bin/pip install --no-deps sglang && scratch/bin/pip install requests numpy tqdm pydantic pybase64 ipython
    sapwood serve smollm2-135m --logprob-layout legacy &
    scratch/bin/python benchmarks/compat/sglang_frontend.py http://127.0.0.1:8000
    python benchmarks/compat/sglang_frontend.py --wheel scratch/lib/python3.11/site-packages      # Sapwood runs the programs

The tests are `sglang.test.test_programs` of the wheel. They ask for facts that a small model does not know: a test that ends in a wrong answer is
told apart ("ran, wrong answer") from one that broke. The exit status is the number of tests that broke. Nothing of SGLang's runtime is
imported: its one use there, whether this machine has an AMD card, is answered here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import types
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Tests of a served text model, with the arguments that upstream's CI gives them.
CASES: dict[str, dict[str, Any]] = {
    "test_stream": {}, "test_stream_logprobs": {}, "test_regex": {}, "test_dtype_gen": {}, "test_select": {"check_answer": False},
    "test_parallel_decoding": {}, "test_parallel_encoding": {"check_answer": False}, "test_mt_bench": {}, "test_gen_min_new_tokens": {},
    "test_decode_int": {}, "test_decode_json": {}, "test_decode_json_regex": {}, "test_react": {}, "test_few_shot_qa": {},
    "test_expert_answer": {}, "test_tool_use": {},
}  # fmt: skip
# What these say when the model's answer is wrong, not the mechanism.
ANSWERS = {
    "test_few_shot_qa", "test_expert_answer", "test_tool_use", "test_decode_int", "test_decode_json", "test_react",
    "test_decode_json_regex",
}  # fmt: skip
# SGLang's own server has no route for what its frontend then calls, and its frontend waits for ever.
NO_ROUTE = {"test_parallel_encoding"}
FORMS = {"REGEX_INT": r"[-+]?[0-9]+[ \n]*", "REGEX_FLOAT": r"[-+]?[0-9]*\.?[0-9]+[ \n]*", "REGEX_STR": r"\"[\w\d\s]*\""}


def stand_in(name: str, **names: Any) -> None:
    """A module of SGLang's runtime that a test asks for one name."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []  # a package, so that others can lie in it
    vars(module).update(names)


def counting(encode: Callable[[str], list[int]]) -> None:
    """What test_gen_min_new_tokens counts tokens with: the model's own tokenizer."""
    tokenizer = types.SimpleNamespace(encode=encode)
    stand_in("sglang.srt.utils.hf_transformers_utils", get_tokenizer=lambda path: tokenizer)


def sglang_programs(url: str) -> types.ModuleType:
    """The wheel's tests on the wheel's frontend."""
    stand_in("sglang.srt.utils", is_hip=lambda: False)
    stand_in("sglang.srt.utils.hf_transformers_patches", apply_all=lambda: None)

    def encode(text: str) -> list[int]:
        body = json.dumps({"prompt": text}).encode()
        asked = urllib.request.Request(f"{url}/tokenize", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked) as response:
            return list(json.load(response)["tokens"])

    counting(encode)
    import sglang
    import sglang.test.test_programs as programs

    backend = sglang.RuntimeEndpoint(url)
    backend.endpoint = backend  # test_gen_min_new_tokens reads it, as a launched Runtime has it
    sglang.set_default_backend(backend)
    return programs


def sapwood_programs(wheel: Path) -> types.ModuleType:
    """The wheel's tests with `import sglang` giving Sapwood."""
    import sapwood
    from sapwood.lang.backends import default_backend

    sys.modules["sglang"] = sapwood
    for name in ("sglang.srt", "sglang.lang"):
        stand_in(name)
    stand_in("sglang.srt.utils", is_hip=lambda: False)
    stand_in("sglang.lang.ir", **FORMS)
    backend = default_backend()
    counting(backend.tokenizer.encode)
    sapwood.global_config.default_backend = types.SimpleNamespace(
        endpoint=types.SimpleNamespace(get_model_name=lambda: "the default model")
    )
    spec = importlib.util.spec_from_file_location("programs", wheel / "sglang" / "test" / "test_programs.py")
    assert spec is not None and spec.loader is not None, "there is no sglang in that folder"
    programs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(programs)
    return programs


def attempt(test: Callable[..., None], arguments: dict[str, Any]) -> str:
    try:
        test(**arguments)
    except (AssertionError, json.JSONDecodeError) as error:
        return f"ran, wrong answer: {str(error)[:80]!r}" if test.__name__ in ANSWERS else f"BROKE: {error}"
    except Exception as error:
        return f"BROKE: {type(error).__name__}: {str(error)[:160]}"
    return "passed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="a server for SGLang's frontend")
    parser.add_argument("--wheel", type=Path, help="a folder with sglang, whose programs Sapwood runs")
    parser.add_argument("--only", nargs="*", help="these tests")
    chosen = parser.parse_args()
    if (chosen.url is None) == (chosen.wheel is None):
        parser.error("give the address of a server, or --wheel")
    programs = sapwood_programs(chosen.wheel) if chosen.wheel else sglang_programs(chosen.url.rstrip("/"))
    broken = 0
    print("| test | result | s |\n| --- | --- | --- |")
    for name, arguments in CASES.items():
        if (chosen.only and name not in chosen.only) or (chosen.url and name in NO_ROUTE):
            continue
        began = time.perf_counter()
        result = attempt(getattr(programs, name), arguments)
        broken += result.startswith("BROKE")
        print(f"| {name.removeprefix('test_')} | {result} | {time.perf_counter() - began:.1f} |", flush=True)
    return broken


if __name__ == "__main__":
    sys.exit(main())
