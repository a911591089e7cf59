# Shared by the tests, which run in the root of the source package, on a machine that they may break.
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

within() { # within COMMAND...: the command succeeds before the deadline
    end=$(($(date +%s) + patience))
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || fail "not within $patience s: $*"
        sleep 0.5
    done
}

main_pid() { # of the daemon; 0 if there is none
    systemctl show --property=MainPID --value openperouter.service
}

replaced() { # replaced PID: another daemon than that one is ready
    now=$(main_pid)
    [ "$now" != 0 ] && [ "$now" != "$1" ] && systemctl --quiet is-active openperouter.service
}

settled() { # duplicate address detection has ended
    [ -z "$(ip -o -6 address show tentative)" ]
}

lay_fabric() { # a leaf switch and hosts behind it, in namespaces of this machine; see tests/harness/demo
    cp -r "$source/tests/harness/demo/rootfs/." /
    chown -R frr:frr /etc/frr/leaf /etc/frr/hostbgp
    # A second zebra in this namespace would remove the routes of the BGP speaker below.
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
    ping -i 0.05 -W 2 192.168.20.2 > "$scratch/pings" 2>&1 &
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

package_file() { # the installed package as a file; OPENPEROUTER_DEB names it where dpkg-repack is unavailable
    if [ -n "${OPENPEROUTER_DEB:-}" ]; then
        cp "$OPENPEROUTER_DEB" "$scratch/openperouter.deb"
    else
        (cd "$scratch" && dpkg-repack openperouter >/dev/null && mv openperouter_*.deb openperouter.deb)
    fi
    echo "$scratch/openperouter.deb"
}

install_package() { # install_package FILE: also over another version, or the same
    DEBIAN_FRONTEND=noninteractive timeout "$patience" \
        apt-get -qq install -y --no-install-recommends --allow-downgrades --reinstall "$1" || fail "cannot install $1"
}

picture() { # picture DIRECTORY: everything that an installation could have changed, but for link-local addresses
    mkdir "$1"
    anonymous='s/^[0-9]*: //; s/ \(valid\|preferred\)_lft [^ ]*//g'
    ip -d -o address show | grep -v ' inet6 fe80:' | sed "$anonymous" | sort > "$1/addresses"
    ip -d -o link show | sed "$anonymous; s/@[^:]*//" | awk '{
        line = $1 " " $2
        for (i = 3; i < NF; i++) if ($i ~ /^(mtu|master|state|group|altname)$/) line = line " " $i " " $(i + 1)
        print line
    }' | sort > "$1/links"
    { ip route show table all; ip -6 route show table all; } |
        grep -v 'fe80:\|^multicast\|expires' | sed "$anonymous" | sort > "$1/routes"
    # tcp_mem and udp_mem depend on how much memory was free at boot, and the machine may have been restarted since.
    computed='nf_conntrack_count\|random\|_bucket\|route.min_pmtu\|\(tcp\|udp\)_mem'
    sysctl -a 2>/dev/null | grep '^net\.' | grep -v "$computed" | sort > "$1/sysctls"
    ls -1 /run/netns > "$1/namespaces"
    find /run -name '*perouter*' -not -path '/run/udev/*' | sort > "$1/run"
    systemctl --failed --no-legend --plain > "$1/failed"
    # What other packages and a running machine write.
    others='^/var/lib/\(dpkg\|apt\|frr\)/\|^/var/lib/systemd/\(catalog\|timers\|timesync\|random-seed\)\|__pycache__\|/ld.so.cache\|/\.updated'
    find /etc /usr /var/lib -xdev -printf '%p %y %M %u %g\n' | grep -v "$others" | sort > "$1/files"
    find /etc /var/lib -xdev -type f | grep -v "$others" | sort | xargs -d '\n' sha256sum > "$1/contents"
    # For information: modules stay loaded until the next boot.
    lsmod | cut -d ' ' -f 1 | sort > "$1.modules"
}

same_picture() { # same_picture BEFORE AFTER
    diff "$1.modules" "$2.modules" || true
    diff -r "$1" "$2" || fail "the machine differs"
}
