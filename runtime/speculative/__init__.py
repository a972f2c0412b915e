"""Speculation: drafters propose tokens, one batch verifies them, and the text stays exactly what it would have been.

A draft is appended to the request's path like any other tokens, so its keys and values live in the tree; what is
rejected is truncated. Acceptance compares the token that the sampler chooses at each position with the drafted one: the
sampler is keyed by (seed, position) and logits have the same bits however they were batched, so the output is the same,
token for token.
"""
