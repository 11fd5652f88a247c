"""The requests in flight of one process: admission, batches to workers, retries, answers in order."""
