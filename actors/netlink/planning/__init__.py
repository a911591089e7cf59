"""Wanted and observed kernel state, and the pure functions that plan the steps between them."""
