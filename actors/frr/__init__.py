"""The FRR actor: renders a desired state, puts it into FRR and proves that FRR runs exactly that."""
