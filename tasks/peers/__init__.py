"""The same work in other frameworks, for the benchmarks; run in an environment of their own."""
