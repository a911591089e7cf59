"""Tests against a real kube-apiserver and etcd. The fixtures are in :mod:`tests.cluster.conftest`."""
