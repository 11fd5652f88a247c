"""A process beside SGLang's that holds the connection to Ray.

Ray ends a process whose raylet is gone. A serving process must outlive that, so none of SGLang's processes
is a driver of Ray: the sidecar is, and another one takes its place when it dies. `client` is SGLang's end of
the socket between them, `process` the sidecar itself; tensors cross in shared memory.
"""
