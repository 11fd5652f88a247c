"""Is the core pixel-identical to the installed Pillow?"""
