"""Interfaces that CNI plugins make in the router: the protocol, and the module that calls them."""
