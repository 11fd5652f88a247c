"""The actor that computes, and the threads and cache behind it."""
