#!/bin/sh
# Fetches a Debian package and unpacks it, without installing it: its service must not start on this host. The programs need
# nothing but libc. Prints their directory; quick when it is there: fetch-package.sh PACKAGE DIRECTORY-IN-THE-CACHE
set -eu

package=$1
cache=${OPENPEROUTER_CACHE:-/var/cache/openperouter-dev}
unpacked=$cache/$2
if [ ! -d "$unpacked/usr/bin" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/$2.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # The package list may be older than the mirror's files.
    (cd "$work" && { apt-get -qq download "$package" || { apt-get -qq update && apt-get -qq download "$package"; }; }) >&2
    dpkg-deb -x "$work/$package"_*.deb "$work/root"
    rm -rf "$unpacked"
    mv "$work/root" "$unpacked"
fi
echo "$unpacked/usr/bin"
