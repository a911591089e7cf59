"""Whether the cluster's nodes could use an object that is about to be stored, by the rules that they apply."""
