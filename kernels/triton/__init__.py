"""GPU kernels in Triton: what Sapwood needs that torch and FlashInfer don't have.

Every kernel here runs in Triton's interpreter too (TRITON_INTERPRET=1, CPU tensors), which is how it is tested against
its reference on machines without a card.
"""
