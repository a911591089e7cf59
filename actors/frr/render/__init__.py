"""Desired state rendered as FRR configuration text."""
