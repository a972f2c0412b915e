"""Step 1: conversations of which the model writes both sides, so that no data set has to be downloaded.

A chat model that is shown an empty user turn writes a user's question itself (the method of Magpie, Xu et al. 2024,
arXiv:2406.08464). Those questions, and tasks built around texts that the model wrote before (summaries, edits, JSON, code),
are then answered at several temperatures. Texts that run in circles are dropped.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from sapwood.errors import SapwoodError
from sapwood.runtime.client import Client, Completion
from sapwood.runtime.messages import GrammarSpec, Sampling

CONCURRENCY = 128
TEMPERATURES = (0.0, 0.0, 0.0, 0.3, 0.7, 1.0)  # greedy answers are what drafts are asked for most
LONGEST = 640  # tokens of a conversation
END_OF_TURN = "<|im_end|>"
ENOUGH_PASSAGES = 50  # before tasks are built around them
LOOP_NGRAM, MOST_LOOPING = 8, 0.3  # a text whose n-grams repeat more than that runs in circles

ABOUT_TEXT = (
    "Summarize the following text in two sentences.\n\n{text}",
    "Summarize this:\n\n{text}",
    "Rewrite the following text in simpler words:\n\n{text}",
    "Correct the spelling and grammar of this text and return the whole text:\n\n{text}",
    "Write a title for this text:\n\n{text}",
    "List the main points of this text as bullet points:\n\n{text}",
    "Translate the tone of this text to a formal one:\n\n{text}",
    "{text}\n\nWhat is the most important statement above, and why?",
    "Repeat the following text exactly:\n\n{text}",
    "Extract the names, places and dates in this text as JSON.\n\n{text}",
)
TOPICS = [
    "a small bakery",
    "the ocean",
    "a train journey",
    "photosynthesis",
    "the Roman Empire",
    "electric cars",
    "sleep",
    "chess",
    "volcanoes",
    "gardening",
    "the moon landing",
    "a lost dog",
    "coffee",
    "black holes",
    "a job interview",
    "the water cycle",
    "bees",
    "jazz",
    "a city in winter",
    "vaccines",
    "sorting algorithms",
    "bicycles",
    "the Great Wall of China",
    "budgeting",
    "friendship",
    "machine learning",
    "tea",
    "glaciers",
    "Shakespeare",
    "a detective",
    "the human heart",
    "recycling",
    "football",
    "a dragon",
    "the stock market",
    "public libraries",
    "bread",
    "whales",
    "the printing press",
    "deserts",
    "a birthday party",
    "time zones",
    "robots",
    "the Amazon rainforest",
    "painting",
    "a lighthouse",
    "mathematics",
]
WRITE = (
    "Write a short story about {topic}.",
    "Write a poem about {topic}.",
    "Explain {topic} to a child.",
    "Explain {topic} in detail.",
    "Write an email about {topic}.",
    "Give me five tips on {topic}.",
    "Write a dialogue between two friends about {topic}.",
    "What are the advantages and disadvantages of {topic}?",
    "Write a Python program that has to do with {topic}.",
    "Tell me three facts about {topic}.",
    "Why is {topic} important?",
    "Compare {topic} with {other}.",
    "Describe {topic} as JSON with the keys name, description, category and tags.",
    "Write a product description for {topic}.",
    "Write a quiz with three questions on {topic}.",
)
CODE = (
    "Write a Python function that {task}.",
    "Write a JavaScript function that {task}.",
    "How do I write code that {task}? Show an example.",
)
TASKS = [
    "reverses a string",
    "checks whether a number is prime",
    "sorts a list of dictionaries by a key",
    "counts the words of a file",
    "computes the Fibonacci numbers",
    "removes duplicates from a list",
    "merges two sorted lists",
    "parses a date",
    "reads a CSV file",
    "finds the largest element",
    "validates an email address",
    "flattens a nested list",
    "computes a factorial",
    "converts Celsius to Fahrenheit",
    "implements a stack",
    "searches a binary tree",
    "downloads a page",
    "rolls dice",
    "groups anagrams",
    "computes the mean and the median",
]
JSON_FIELDS = (
    ("name", {"type": "string", "maxLength": 30}),
    ("title", {"type": "string", "maxLength": 40}),
    ("summary", {"type": "string", "maxLength": 80}),
    ("category", {"enum": ["science", "history", "daily life", "technology", "art"]}),
    ("year", {"type": "integer", "minimum": 1000, "maximum": 2100}),
    ("price", {"type": "number", "minimum": 0, "maximum": 10000}),
    ("rating", {"type": "integer", "minimum": 1, "maximum": 5}),
    ("is_available", {"type": "boolean"}),
    ("tags", {"type": "array", "items": {"type": "string", "maxLength": 16}, "minItems": 1, "maxItems": 4}),
    ("country", {"type": "string", "maxLength": 20}),
    ("status", {"enum": ["new", "in progress", "done"]}),
    ("description", {"type": "string", "maxLength": 60}),
)


@dataclass
class Conversation:
    """Token ids, and which of them the model answered (those are learned)."""

    ids: list[int]
    answers: list[tuple[int, int]]  # half-open ranges of `ids`
    kind: str

    def line(self) -> str:
        return json.dumps({"ids": self.ids, "answers": self.answers, "kind": self.kind})


def runs_in_circles(ids: list[int]) -> bool:
    """Whether n-grams of the text repeat too often."""
    grams = Counter(tuple(ids[i : i + LOOP_NGRAM]) for i in range(len(ids) - LOOP_NGRAM + 1))
    total = sum(grams.values())
    return total > 0 and 1 - len(grams) / total > MOST_LOOPING


class Writer:
    """Has the model write conversations."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._passages: list[str] = ["The sun rose over the valley, and the village woke slowly to the sound of bells."]
        self._render = client.tokenizer.render
        self._end = client.tokenizer.encode(END_OF_TURN, special=True)

    def _answered(self, messages: list[dict[str, str]], sampling: Sampling) -> tuple[list[int], Completion]:
        prompt = self._render(messages, add_generation_prompt=True)
        ids = self._client.tokenizer.encode(prompt, special=True)
        return ids, self._client.generate(ids, sampling)

    def question(self, seed: int) -> str:
        """A user's question, written by the model itself."""
        marker = "\x00here\x00"
        prompt = self._render([{"role": "user", "content": marker}], add_generation_prompt=False)
        before = prompt.split(marker)[0]
        sampling = Sampling(max_tokens=120, temperature=1.0, top_p=0.95, seed=seed)
        return self._client.generate(before, sampling).text.strip()

    def conversation(self, seed: int) -> Conversation | None:
        """One or two questions with their answers; None if what was written is of no use."""
        rng = random.Random(seed)
        kind, question, grammar = self._task(rng, seed)
        if not question:
            return None
        messages = [{"role": "user", "content": question}]
        answers: list[tuple[int, int]] = []
        ids: list[int] = []
        for turn in range(2 if rng.random() < 0.25 and grammar is None else 1):
            if turn:
                messages.append({"role": "user", "content": self.question(seed + turn)})
            sampling = Sampling(
                max_tokens=300,
                temperature=rng.choice(TEMPERATURES),
                seed=seed,
                grammar=grammar,
                jump=grammar is not None,
            )
            prompt, answer = self._answered(messages, sampling)
            if len(prompt) > LONGEST or prompt[: len(ids)] != ids or runs_in_circles(answer.ids):
                break
            ids = prompt + answer.ids + self._end * (answer.finish_reason == "stop")
            answers.append((len(prompt), len(ids)))
            messages.append({"role": "assistant", "content": answer.text})
            if 200 < len(answer.text) < 1200 and kind in ("question", "write"):
                self._passages.append(answer.text)
        ids = ids[:LONGEST]
        answers = [(start, min(end, len(ids))) for start, end in answers if start < len(ids) - 8]
        return Conversation(ids, answers, kind) if answers else None

    def _task(self, rng: random.Random, seed: int) -> tuple[str, str, GrammarSpec | None]:
        choice = rng.random()
        if choice < 0.45 or (choice >= 0.7 and len(self._passages) < ENOUGH_PASSAGES):
            return "question", self.question(seed), None
        if choice < 0.62:
            topic, other = rng.sample(TOPICS, 2)
            return "write", rng.choice(WRITE).format(topic=topic, other=other), None
        if choice < 0.70:
            return "code", rng.choice(CODE).format(task=rng.choice(TASKS)), None
        text = rng.choice(self._passages[-2000:])
        if choice < 0.88:
            return "text", rng.choice(ABOUT_TEXT).format(text=text), None
        fields = dict(rng.sample(JSON_FIELDS, rng.randint(3, 7)))
        schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
        question = rng.choice(
            ("Extract a record as JSON from this text:\n\n{}", "Describe this as JSON:\n\n{}")
        ).format(text)
        return "json", question, GrammarSpec(kind="json_schema", text=json.dumps(schema))

    def safely(self, seed: int) -> Conversation | None:
        """As `conversation`, but what one request can't do (a prompt too long) costs only that one."""
        try:
            return self.conversation(seed)
        except SapwoodError:
            return None


def write(client: Client, num_tokens: int, first_seed: int) -> Iterator[Conversation]:
    """Conversations until their answers hold that many tokens."""
    writer, written, seed = Writer(client, first_seed), 0, first_seed
    running: set[Future[Conversation | None]] = set()
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        while written < num_tokens:
            while len(running) < CONCURRENCY:
                running.add(pool.submit(writer.safely, seed))
                seed += 1000
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                conversation = future.result()
                if conversation is not None:
                    written += sum(end - start for start, end in conversation.answers)
                    yield conversation


def load(path: Path) -> list[Conversation]:
    """The conversations of a file."""
    with path.open() as lines:
        entries = map(json.loads, lines)
        return [Conversation(one["ids"], [tuple(span) for span in one["answers"]], one["kind"]) for one in entries]


def save(conversations: Iterable[Conversation], path: Path, num_tokens: int) -> None:
    """Write conversations as they come, showing how far it is."""
    written = 0
    with path.open("w") as file:
        for number, conversation in enumerate(conversations, 1):
            file.write(conversation.line() + "\n")
            written += sum(end - start for start, end in conversation.answers)
            if number % 50 == 0:
                print(f"\r{number:,} conversations, {written:,} of {num_tokens:,} answered tokens", end="", flush=True)
    print()
