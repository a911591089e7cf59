"""The FRR actor: renders a desired state, applies it to FRR, and verifies that FRR runs it."""
