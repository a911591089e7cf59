"""The kernel's side of the router: what the node should be becomes links, addresses, routes and sysctls, and stays so.

Reading order: ``objects`` (what exists), ``model`` (what should), ``planning`` (the difference, pure), ``operations``
(its steps and their text), ``kernel`` (the real thing behind them), ``actor`` (the loop).
"""
