"""A small model and a byte tokenizer for tests and examples: made on the spot, no files, through the whole real stack.

Its weights are random but fixed, and it prefers printable ASCII, so that its texts are text.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from sapwood.kernels.decoder import Decoder, Format, Layer, Rope, Weight
from sapwood.runtime.models.load import Model
from sapwood.runtime.tokenizer import Tokenizer
from sapwood.runtime.vocabulary import Vocabulary, encoder, recognising

NAME = "fake"
BOS, EOS, PAD = 256, 257, 258
VOCAB_SIZE = 259
CONTEXT_LENGTH = 4096
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

_HIDDEN, _FEED_FORWARD, _HEADS, _KV_HEADS, _HEAD_DIM, _LAYERS = 64, 128, 4, 2, 32, 2


def fake_model() -> Model:
    """The model; the same bits each time."""
    random = np.random.default_rng(20240229)

    frequencies = 10000 ** (-np.arange(0, _HEAD_DIM, 2) / _HEAD_DIM)

    def matrix(name: str, rows: int, columns: int) -> Weight:
        return _weight(name, random.standard_normal((rows, columns)) / np.sqrt(columns))

    def layer(number: int) -> Layer:
        return Layer(
            attn_norm=_ones(f"{number}.attn_norm"),
            wq=matrix(f"{number}.wq", _HEADS * _HEAD_DIM, _HIDDEN),
            wk=matrix(f"{number}.wk", _KV_HEADS * _HEAD_DIM, _HIDDEN),
            wv=matrix(f"{number}.wv", _KV_HEADS * _HEAD_DIM, _HIDDEN),
            wo=matrix(f"{number}.wo", _HIDDEN, _HEADS * _HEAD_DIM),
            ffn_norm=_ones(f"{number}.ffn_norm"),
            gate=matrix(f"{number}.gate", _FEED_FORWARD, _HIDDEN),
            up=matrix(f"{number}.up", _FEED_FORWARD, _HIDDEN),
            down=matrix(f"{number}.down", _HIDDEN, _FEED_FORWARD),
            rope=Rope(frequencies.astype(np.float32), interleaved=False),
        )

    head = random.standard_normal((VOCAB_SIZE, _HIDDEN)) / 2
    printable = np.zeros(VOCAB_SIZE, bool)
    printable[32:127] = True
    head[~printable] = 0  # logit 0, which the likeliest of the others always beats
    decoder = Decoder(
        num_heads=_HEADS,
        num_kv_heads=_KV_HEADS,
        head_dim=_HEAD_DIM,
        hidden_size=_HIDDEN,
        vocab_size=VOCAB_SIZE,
        norm_eps=1e-5,
        activation="silu",
        attn_scale=_HEAD_DIM**-0.5,
        embed=_weight("embed", random.standard_normal((VOCAB_SIZE, _HIDDEN))),
        layers=tuple(layer(number) for number in range(_LAYERS)),
        final_norm=_ones("final_norm"),
        head=_weight("head", head),
    )
    fingerprint = hashlib.sha256(b"sapwood fake model 1").hexdigest()[:32]
    return Model(NAME, Path(NAME), NAME, decoder, CONTEXT_LENGTH, fingerprint)


def fake_tokenizer() -> Tokenizer:
    """Every byte is a token; after them come bos, eos and pad."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    visible = _byte_alphabet()
    bytewise = tokenizers.Tokenizer(models.BPE({visible[byte]: byte for byte in range(256)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    special = {"<bos>": BOS, "<eos>": EOS, "<pad>": PAD}
    encode = encoder(bytewise)
    return Tokenizer(
        Vocabulary(
            vocab_size=VOCAB_SIZE,
            token_bytes=[bytes([byte]) for byte in range(256)] + [b""] * len(special),
            special=special,
            eos_ids=frozenset({EOS}),
            eos_id=EOS,
            bos_id=BOS,
            add_bos=True,
            chat_template=CHAT_TEMPLATE,
            fingerprint=hashlib.sha256(b"sapwood fake tokenizer 1").hexdigest()[:32],
            encode=encode,
            encode_special=recognising(special, encode),
        )
    )


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in `tokenizers`' byte-level models."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + hidden.index(byte)) for byte in range(256)]


def _weight(name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Weight:
    encoded = np.ascontiguousarray(values.astype(np.float32))
    return Weight(name, Format.F32, encoded.shape, encoded.reshape(-1, encoded.shape[-1]).view(np.uint8))


def _ones(name: str) -> Weight:
    return _weight(name, np.ones(_HIDDEN))
