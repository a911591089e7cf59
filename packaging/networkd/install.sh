#!/bin/sh
# Installs what keeps udev and NetworkManager off the router's links: packaging/networkd/install.sh DESTDIR. The files for
# systemd-networkd are installed with the units, because they matter without the package too.
set -eu

destdir=$1
here=$(cd "$(dirname "$0")" && pwd)

install -D -m 644 "$here/10-openperouter.link" "$destdir/usr/lib/systemd/network/10-openperouter.link"
install -D -m 644 "$here/70-openperouter.rules" "$destdir/usr/lib/udev/rules.d/70-openperouter.rules"
install -D -m 644 "$here/networkmanager.conf" "$destdir/usr/lib/NetworkManager/conf.d/openperouter.conf"
