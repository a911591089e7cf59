"""Benchmarks: ratios against a baseline of the same run, on demand (``make bench``), never a test that is timed."""
