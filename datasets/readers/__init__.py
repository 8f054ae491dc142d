"""From raw files to blocks: one file a format."""
