"""Model files: reading them, and describing what is in them as a `kernels.decoder.Decoder`."""
