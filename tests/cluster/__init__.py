"""Tests against a real kube-apiserver and etcd. What there is to use is told in :mod:`tests.cluster.conftest`."""
