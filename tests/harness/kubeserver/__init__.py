"""A real Kubernetes API server to test against: built, cached, started and thrown away again.

    golang  the Go compiler of this machine, where there is one that will do
    build   kube-apiserver's programs, from Go modules, in the cache
    pki     the certificates of one server and of those who talk to it
    daemon  one process that dies with its starter and leaves its words in a file
    server  etcd and kube-apiserver on the loopback, which can be stopped, paused and started again

Only the standard library is used, because the set-up runs before anything is installed.
"""

from __future__ import annotations
