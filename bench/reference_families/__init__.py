"""References of model families, run on the CPU and independently of the core.

Each module holds families of one kind: Hugging Face's own image processors, SGLang's own CPU code, or, where
the reference is code that only comes with a checkpoint, what it does, written anew in numpy and Pillow.
Importing a module needs numpy and Pillow alone; running a variant needs what its reference needs.
"""
