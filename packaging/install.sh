#!/bin/sh
# Lays the program out as it is installed: packaging/install.sh [DESTDIR]. DESTDIR is empty for the running system.
# Touches no running service and overwrites no configuration; needs no network.
set -eu

destdir=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(dirname "$here")

put() { # put MODE SOURCE TARGET
    install -D -m "$1" "$2" "$destdir$3"
}

put_new() { # put MODE SOURCE TARGET, unless TARGET exists
    [ -e "$destdir$3" ] || put "$1" "$2" "$3"
}

# The three private packages, as a whole: a module that was deleted must not survive an installation over an older one.
for package in supervisor actors config; do
    rm -rf "$destdir/usr/share/openperouter/$package"
    (cd "$checkout" && find "$package" -type f ! -name '*.pyc' ! -name '*.swp' ! -name '*~') | while read -r file; do
        put 644 "$checkout/$file" "/usr/share/openperouter/$file"
    done
done
put 755 "$here/bin/openperouter" /usr/bin/openperouter

units=/usr/lib/systemd/system
put 644 "$here/systemd/openperouter-netns.service" $units/openperouter-netns.service
put 644 "$here/systemd/openperouter.service" $units/openperouter.service
put 644 "$here/systemd/openperouter.service.d/node-exporter.conf" $units/openperouter.service.d/node-exporter.conf
put 644 "$here/systemd/frr@perouter.service.d/openperouter.conf" $units/frr@perouter.service.d/openperouter.conf
put 644 "$here/systemd/modules-load.conf" /usr/lib/modules-load.d/openperouter.conf
put 644 "$here/systemd/networkd.conf.d/openperouter.conf" /usr/lib/systemd/networkd.conf.d/openperouter.conf
put 644 "$here/systemd/10-openperouter.network" /usr/lib/systemd/network/10-openperouter.network

# Root's, since root's processes run what is in them, and readable for FRR; its group exists where it is installed.
for file in daemons vtysh.conf frr.conf; do
    put_new 640 "$here/frr/perouter/$file" /etc/frr/perouter/$file
done
if [ -z "$destdir" ] && getent group frr >/dev/null; then
    # The directory first: what was FRR's cannot change any more while the files are looked at.
    chown -h root:frr /etc/frr/perouter
    chmod 750 /etc/frr/perouter
    find /etc/frr/perouter -mindepth 1 -maxdepth 1 ! -type l -exec chown -h root:frr {} +
fi

# What the cluster needs: kubectl apply -f /usr/share/openperouter/kubernetes takes them in this order.
for file in "$here"/kubernetes/*.yaml "$here"/crds/*.yaml; do
    put 644 "$file" "/usr/share/openperouter/kubernetes/$(basename "$file")"
done

# Apart from those: kubectl apply -k /usr/share/openperouter/kubernetes/hostbridge.
for file in "$here"/kubernetes/hostbridge/*.yaml; do
    put 644 "$file" "/usr/share/openperouter/kubernetes/hostbridge/$(basename "$file")"
done

# Likewise the admission webhook: kubectl apply -k /usr/share/openperouter/kubernetes/webhook.
for file in "$here"/kubernetes/webhook/*.yaml; do
    put 644 "$file" "/usr/share/openperouter/kubernetes/webhook/$(basename "$file")"
done

# Alert rules and the dashboard.
for file in openperouter-rules.yaml prometheus-rule.yaml dashboard.json; do
    put 644 "$here/monitoring/$file" "/usr/share/openperouter/monitoring/$file"
done

install -d -m 750 "$destdir/etc/openperouter" "$destdir/etc/openperouter/configs" "$destdir/etc/openperouter/conf.d"
(cd "$here/examples" && find . -type f) | while read -r file; do
    put 644 "$here/examples/$file" "/usr/share/doc/openperouter/examples/$file"
done
