"""Models: one file each, with a `build`; the file's name is the model's name."""
