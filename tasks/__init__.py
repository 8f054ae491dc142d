"""One stage a file, and the few things that stages share."""
