"""The runtime that keeps actors running, and the entry points of the program.

``runtime``, ``process`` and ``logs`` know nothing of routers: they import neither ``config`` nor ``actors``. ``wiring``
composes them with the actors, ``main`` runs the result as a daemon, ``control`` serves its socket, ``operations`` has
what the command line does beside the daemon, and ``cli`` is that command line.
"""
