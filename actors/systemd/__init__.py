"""Reports the router's status to systemd: READY once it is applied and verified, RELOADING meanwhile, STATUS always."""
