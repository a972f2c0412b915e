"""What tells files of models apart without reading them whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

# Raise when the arithmetic of any backend changes: caches written before are then not read any more.
ARITHMETIC = 1


def fingerprint(path: Path) -> str:
    """Tells models apart without reading them whole: 1 MiB from the start, samples from the rest, all sizes."""
    digest = hashlib.sha256(f"arithmetic {ARITHMETIC}".encode())
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in {".safetensors", ".json"})
    for file in files:
        size = file.stat().st_size
        digest.update(f"{size}".encode())
        with open(file, "rb") as stream:
            digest.update(stream.read(1 << 20))
            for part in range(64):
                stream.seek(size * part // 64)
                digest.update(stream.read(4096))
    return digest.hexdigest()[:32]
