#!/bin/sh
# Installs Debian packages on this host, and is quick and quiet when they are there: ensure-packages.sh PACKAGE...
set -eu

missing=
for package in "$@"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "needed:$missing. This is not a Debian host: install the equivalents by hand, or use a Debian 12 or 13 machine." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "needed:$missing. Run this as root, or once: sudo apt-get install$missing" >&2
    exit 1
fi
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get -qq -o DPkg::Lock::Timeout=300 update &&
    apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "apt-get failed; needed:$missing" >&2
    exit 1
fi
