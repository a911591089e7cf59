"""Getting into the router, and what is asked there."""
