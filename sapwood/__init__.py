"""Sapwood: a runtime for programs over language models. Public names, resolved at first use.

This file knows nothing of how anything works: it only says where each name lives, so that
`import sapwood` stays light (no torch, no numpy, no backend).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapwood.errors import SapwoodError as SapwoodError
    from sapwood.lang.backends import (
        flush_cache as flush_cache,
        get_server_info as get_server_info,
        set_default_backend as set_default_backend,
    )
    from sapwood.lang.choices import (
        greedy_token_selection as greedy_token_selection,
        token_length_normalized as token_length_normalized,
        unconditional_likelihood_normalized as unconditional_likelihood_normalized,
    )
    from sapwood.lang.expressions import (
        assistant as assistant,
        assistant_begin as assistant_begin,
        assistant_end as assistant_end,
        gen as gen,
        gen_bool as gen_bool,
        gen_float as gen_float,
        gen_int as gen_int,
        gen_string as gen_string,
        select as select,
        separate_reasoning as separate_reasoning,
        system as system,
        system_begin as system_begin,
        system_end as system_end,
        user as user,
        user_begin as user_begin,
        user_end as user_end,
    )
    from sapwood.lang.openai import OpenAI as OpenAI
    from sapwood.lang.program import Function as Function, function as function
    from sapwood.lang.search import likelihood as likelihood
    from sapwood.lang.sglang import (
        Runtime as Runtime,
        RuntimeEndpoint as RuntimeEndpoint,
        global_config as global_config,
        image as image,
        video as video,
    )
    from sapwood.lang.state import (
        ProgramError as ProgramError,
        ProgramState as ProgramState,
        ProgramStateGroup as ProgramStateGroup,
    )
    from sapwood.lang.tools import ToolCall as ToolCall, describe_tools as describe_tools
    from sapwood.runtime.client import Client as Client
    from sapwood.runtime.messages import Sampling as Sampling

__version__ = "0.1.0"

_PLACES = {
    "sapwood.lang.program": ["Function", "function"],
    "sapwood.lang.expressions": [
        "assistant", "assistant_begin", "assistant_end", "gen", "gen_bool", "gen_float", "gen_int", "gen_string", "select",
        "separate_reasoning", "system", "system_begin", "system_end", "user", "user_begin", "user_end",
    ],
    "sapwood.lang.choices": [
        "greedy_token_selection", "token_length_normalized", "unconditional_likelihood_normalized",
    ],
    "sapwood.lang.openai": ["OpenAI"],
    "sapwood.lang.search": ["likelihood"],
    "sapwood.lang.sglang": ["Runtime", "RuntimeEndpoint", "global_config", "image", "video"],
    "sapwood.lang.tools": ["ToolCall", "describe_tools"],
    "sapwood.lang.state": ["ProgramError", "ProgramState", "ProgramStateGroup"],
    "sapwood.lang.backends": ["flush_cache", "get_server_info", "set_default_backend"],
    "sapwood.runtime.client": ["Client"],
    "sapwood.runtime.messages": ["Sampling"],
    "sapwood.errors": ["SapwoodError"],
}  # fmt: skip
_HOME = {name: module for module, names in _PLACES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sapwood' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
