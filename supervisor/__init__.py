"""The runtime that keeps actors alive, and the way into the program.

Two kinds of modules live here. The *runtime* (``actor``, ``channel``, ``tree``, ``policy``, ``watchdog``, ``notify``,
``signals``, ``logs`` and their helpers) knows nothing about routers: it imports neither ``config`` nor ``actors``.
The *way in* (``wiring``, ``control``, ``cli``) composes the runtime with the actors and is imported by nobody.
"""
