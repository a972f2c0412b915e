"""Who runs when: from arriving requests to batches, and from sampled tokens to replies. Knows no sockets and no kernels."""
