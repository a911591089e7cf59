"""What the larger verbs of the command line do; imported by supervisor.cli, never the other way round."""
