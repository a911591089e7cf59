"""Tell systemd the truth: READY when the configuration is applied and verified, RELOADING meanwhile, STATUS always."""
