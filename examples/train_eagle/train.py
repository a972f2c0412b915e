"""Train an EAGLE-3 head for a model on this machine: data, training, evaluation, a folder that `--speculative` takes.

    python examples/train_eagle/train.py --model smollm2-135m --out smollm2-eagle

The whole of it takes about an hour and a half on two cores. See docs/train-eagle.md.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from data import Conversation, load, save, write
from export import read_head, write_head
from head import Head, Target, default_captures
from loss import soft_cross_entropy
from torch import Tensor, nn

from sapwood.runtime.assembly import open_model
from sapwood.runtime.client import Client

PASSES = 3  # of training-time test: how deep the head learns to guess
DECAY = 0.8  # weight of each further pass
PEAK_RATE, WARM_UP, LEAST_RATE = 1e-3, 0.04, 0.03
BATCH_TOKENS = 2048
LONGEST = 512
SKIPPED = 24  # tokens at the start of each text, always the same system prompt
HELD_OUT_SEED = 10**9


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--out", type=Path, default=Path("eagle-head"), help="folder for texts, head and card")
    parser.add_argument("--tokens", type=int, default=900_000, help="answered tokens to write as training data")
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--minutes", type=float, default=60, help="training ends after these, whatever the epochs")
    parser.add_argument("--vocab", type=int, default=8192, help="tokens that the head can guess")
    parser.add_argument("--ffn", type=int, default=1536, help="width of its feed-forward layer")
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="highest learning rate")
    parser.add_argument("--go-on", action="store_true", help="start from the head that is in the folder")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def texts(model: str, folder: Path, num_tokens: int, seed: int) -> tuple[list[Conversation], list[Conversation]]:
    """Training and held-out conversations; written unless the files are there."""
    wanted = (
        (folder / "heldout.jsonl", max(num_tokens // 36, 2000), HELD_OUT_SEED),
        (folder / "train.jsonl", num_tokens, seed),
    )
    missing = [job for job in wanted if not job[0].exists()]
    if missing:
        with Client.launch(model, max_running=128, speculative="off") as client:
            for path, count, first_seed in missing:
                partial = path.with_suffix(".partial")
                save(write(client, count, first_seed), partial, count)
                partial.rename(path)
    held_out, training = (load(path) for path, _, _ in wanted)
    known = {tuple(text.ids) for text in training}
    return training, [text for text in held_out if tuple(text.ids) not in known]


def frequent(conversations: list[Conversation], size: int) -> Tensor:
    """The ids that occur most, ascending."""
    counts = Counter(token for text in conversations for token in text.ids[SKIPPED:])
    chosen = sorted(token for token, _ in counts.most_common(size))
    total = sum(counts.values())
    print(f"{len(chosen):,} tokens make up {sum(counts[t] for t in chosen) / total:.1%} of the texts")
    return torch.tensor(chosen)


@dataclass
class Group:
    """Texts of like length, padded with 0, and what the target makes of them, once it was asked."""

    ids: Tensor  # [batch, length]
    there: Tensor  # [batch, length] which positions are text
    features: Tensor | None = None  # [batch, length, captures * hidden]
    hidden: Tensor | None = None  # [batch, length, hidden]

    def read(self, target: Target) -> tuple[Tensor, Tensor]:
        """Its features and hidden states, kept in memory: some 5 KB a token for a small model."""
        if self.features is None or self.hidden is None:
            self.features, self.hidden = target.run(self.ids)
        return self.features, self.hidden

    def learned(self, known: Tensor) -> Tensor:
        """Which entries are learned from, [batch, length - 1]: the text goes on after them, with a token the head knows."""
        mask = torch.zeros_like(self.there[:, 1:])
        mask[:, :-1] = self.there[:, 2:] & known[self.ids[:, 2:]]
        mask[:, :SKIPPED] = False
        return mask


def grouped(conversations: list[Conversation]) -> list[Group]:
    """All texts, in groups of about BATCH_TOKENS tokens."""
    parts: list[list[list[int]]] = [[]]
    for ids in sorted((text.ids[:LONGEST] for text in conversations), key=len):
        if len(ids) * (len(parts[-1]) + 1) > BATCH_TOKENS and parts[-1]:
            parts.append([])
        parts[-1].append(ids)
    groups = []
    for part in parts:
        ids = np.zeros((len(part), max(map(len, part))), np.int64)
        there = np.zeros(ids.shape, bool)
        for row, text in enumerate(part):
            ids[row, : len(text)], there[row, : len(text)] = text, True
        groups.append(Group(torch.from_numpy(ids), torch.from_numpy(there)))
    return groups


def rate(progress: float) -> float:
    """The learning rate, relative to its peak: a warm-up, then half a cosine."""
    if progress < WARM_UP:
        return progress / WARM_UP
    return LEAST_RATE + (1 - LEAST_RATE) * 0.5 * (
        1 + math.cos(math.pi * min(1.0, (progress - WARM_UP) / (1 - WARM_UP)))
    )


def train(target: Target, head: Head, conversations: list[Conversation], args: argparse.Namespace) -> None:
    """Fit the head to the target's distributions."""
    rng, groups = random.Random(args.seed), grouped(conversations)
    known = torch.zeros(target.decoder.vocab_size, dtype=torch.bool)
    known[head.vocab] = True
    optimizer = torch.optim.AdamW(head.parameters(), lr=args.rate, betas=(0.9, 0.95), weight_decay=0.01)
    total, step, began, shown = len(groups) * args.epochs, 0, time.monotonic(), np.zeros(PASSES)
    while True:
        rng.shuffle(groups)
        for group in groups:
            elapsed = (time.monotonic() - began) / 60
            progress = max(step / total, elapsed / args.minutes)
            if progress >= 1:
                return
            for part in optimizer.param_groups:
                part["lr"] = args.rate * max(rate(progress), 1e-3)
            losses = learn(target, head, group, group.learned(known))
            nn.utils.clip_grad_norm_(head.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            shown = losses if not step else 0.97 * shown + 0.03 * losses
            step += 1
            if step % 20 == 0:
                left = elapsed / progress - elapsed
                print(
                    f"step {step:5d} of {total:.0f}  loss by pass {np.round(shown, 3)}  {left:4.1f} min left",
                    flush=True,
                )


def learn(target: Target, head: Head, group: Group, mask: Tensor) -> np.ndarray:
    """Add one group's gradients; returns the mean loss of each pass."""
    features, hidden = group.read(target)
    scales = torch.tensor([DECAY**number for number in range(PASSES)])
    with torch.autocast("cpu", torch.bfloat16):
        states = head.passes(target.embed[group.ids].float(), head.project(features), PASSES)
        chosen = torch.stack([head.norm(state[mask]) for state in states])
        losses = soft_cross_entropy(chosen, head.lm_head.weight, hidden[:, 1:][mask], target.head[head.vocab], scales)
    losses.sum().backward()
    return losses.detach().numpy()


@torch.no_grad()
def evaluate(target: Target, head: Head, conversations: list[Conversation]) -> np.ndarray:
    """The chance that the guess of each depth comes true when all before it did, where the text is the target's likeliest."""
    hits, tries = np.zeros(PASSES), np.zeros(PASSES)
    for group in grouped(conversations):
        ids, there = group.ids, group.there
        features, hidden = target.run(ids)
        best = torch.cat([(h @ target.head.T).argmax(-1) for h in hidden.split(2)])[
            :, 1:
        ]  # [batch, length - 1], by entry
        with torch.autocast("cpu", torch.bfloat16):
            states = head.passes(target.embed[ids].float(), head.project(features), PASSES)
            guesses = torch.stack([head.vocab[head.lm_head(head.norm(s)).argmax(-1)] for s in states])
        follows = torch.zeros_like(best, dtype=torch.bool)
        follows[:, :-1] = (best[:, :-1] == ids[:, 2:]) & there[:, 2:]
        count = best.shape[1] - PASSES
        alive = torch.ones_like(best[:, SKIPPED:count], dtype=torch.bool)
        for depth in range(PASSES):
            alive &= follows[:, SKIPPED + depth : count + depth]
        for depth in range(PASSES):
            tries[depth] += alive.sum().item()
            at = slice(SKIPPED + depth, count + depth)
            alive &= guesses[depth][:, at] == best[:, at]
            hits[depth] += alive.sum().item()
    return hits / np.maximum(tries, 1)


def main() -> None:
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    training, held_out = texts(args.model, args.out, args.tokens, args.seed)
    model = open_model(args.model)
    target = Target(model.decoder, default_captures(len(model.decoder.layers)))
    head = Head(model.decoder, len(target.captures), frequent(training, args.vocab), args.ffn)
    if args.go_on:
        read_head(args.out, head)
    else:
        head.start_from(model.decoder)
    began = time.monotonic()
    train(target, head, training, args)
    minutes = (time.monotonic() - began) / 60
    chances = evaluate(target, head, held_out)
    expected = 1 + np.cumprod(chances).sum()
    print("acceptance by depth", np.round(chances, 3), f"-> {expected:.2f} tokens a verification with {PASSES} drafted")
    facts = {"minutes": round(minutes, 1), "acceptance": chances.round(3).tolist(), "texts": len(training)}
    write_head(args.out, model, target, head, facts)


if __name__ == "__main__":
    main()
