"""The health actor: polls FRR, compares its state with the desired state, and logs changes."""
