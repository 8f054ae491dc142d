"""One benchmark a file: `run()` gives its measures."""
