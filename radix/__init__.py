"""The tree that owns all KV memory: prefix cache, slot allocator and home of drafts in one. Knows no model and no request."""
