#!/bin/sh
# Fetches Debian's package of Prometheus and unpacks it, without installing it: its server must not start on this host.
# Prints the directory of its programs, prometheus and promtool; quick when they are there.
set -eu

cache=${OPENPEROUTER_CACHE:-/var/cache/openperouter-dev}
programs=$cache/prometheus/usr/bin
if [ ! -x "$programs/promtool" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/prometheus.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # The package list may be older than the mirror's files.
    (cd "$work" && { apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; }; }) >&2
    dpkg-deb -x "$work"/prometheus_*.deb "$work/root"
    rm -rf "$cache/prometheus"
    mv "$work/root" "$cache/prometheus"
fi
echo "$programs"
