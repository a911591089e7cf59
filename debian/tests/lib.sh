# Shared by the tests; they run in the root of the source package, on a machine that may be broken.
set -eu

source=$PWD
scratch=${AUTOPKGTEST_TMP:-$(mktemp -d)}
# An emulated machine is twenty times slower than a real one.
patience=${PATIENCE:-300}

fail() {
    echo "FAILED: $*" >&2
    systemctl status --no-pager --lines=30 openperouter.service frr@perouter.service >&2 || true
    ! command -v openperouter >/dev/null || openperouter status >&2 || true
    exit 1
}

within() { # within COMMAND...: the command succeeds before patience is at its end
    end=$(($(date +%s) + patience))
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || fail "not within $patience s: $*"
        sleep 0.5
    done
}

lay_fabric() { # a leaf switch and hosts behind it, in namespaces of this machine; see packaging/guest/demo
    cp -r "$source/packaging/guest/demo/rootfs/." /
    chown -R frr:frr /etc/frr/leaf /etc/frr/hostbgp
    # A second zebra in this namespace would sweep the routes of the BGP speaker below.
    systemctl disable --quiet --now frr.service
    systemctl daemon-reload
    systemctl start fabric.service frr@leaf.service frr@hostbgp.service
}

configure() {
    cp "$source/packaging/examples/node-config.yaml" /etc/openperouter/
    cp "$source"/packaging/examples/configs/*.yaml /etc/openperouter/configs/
}

forwarding() { # through the L3VNI to a host behind the leaf
    ping -q -c 2 -i 0.2 -W 1 192.168.20.2
}

start_pings() {
    ping -i 0.05 -W 2 192.168.20.2 > "$scratch/pings" &
    pings=$!
}

no_ping_lost() { # no_ping_lost OCCASION
    kill -INT "$pings"
    wait "$pings" || true
    counts=$(sed -n 's/^\([0-9]*\) packets transmitted, \([0-9]*\) received.*/\1 \2/p' "$scratch/pings")
    sent=${counts% *} received=${counts#* }
    echo "$1: $received of $sent pings came back"
    # The last one may still have been on its way.
    [ "$sent" -gt 20 ] && [ $((sent - received)) -le 1 ] || fail "$1 lost pings"
}

package_file() { # the installed package as a file; OPENPEROUTER_DEB names it where dpkg-repack is not to be had
    if [ -n "${OPENPEROUTER_DEB:-}" ]; then
        cp "$OPENPEROUTER_DEB" "$scratch/openperouter.deb"
    else
        (cd "$scratch" && dpkg-repack openperouter >/dev/null && mv openperouter_*.deb openperouter.deb)
    fi
    echo "$scratch/openperouter.deb"
}

install_package() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends --allow-downgrades "$1"
}
