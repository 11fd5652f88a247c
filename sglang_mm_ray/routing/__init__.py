"""Where an image goes, in which batch and whether at all: pure policy, no Ray, no clock."""
