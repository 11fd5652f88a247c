"""What SGLang loads: external processors, an image processor, features by reference.

`SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE=sglang_mm_ray.sglang` makes SGLang import every module of this package
and use its processors in place of its own. Only the modules named after a model import SGLang; torch is
imported where a tensor is made.
"""
