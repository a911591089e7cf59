"""What the larger verbs of the command line do. supervisor.cli imports this package, never the other way round."""
