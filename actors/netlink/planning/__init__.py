"""Observed and wanted kernel state, and the pure functions that plan the steps from one to the other."""
