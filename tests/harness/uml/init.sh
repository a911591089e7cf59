#!/bin/sh
# PID 1 of the User-Mode-Linux machine that run.py boots. The root is a Debian tree of the host, read-only. An overlay whose upper side is
# a tmpfs makes all of it writable here and leaves the tree as it was. Everything under /mnt is hostfs: the work directory of one run.
set -u
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

finish() {
    # The runner takes a missing status file as a machine that died.
    echo "$1" >/mnt/status 2>/dev/null || echo "$1" >/machine/status
    sync
    echo o >/proc/sysrq-trigger
    exec sleep 60
}

case "${1:-boot}" in
boot)
    . /mnt/environment
    mount -t proc proc /proc || exit 1
    mount -t tmpfs -o size=90% tmpfs /media || finish 120
    mkdir /media/upper /media/work /media/root /media/modules
    mount -t hostfs -o "hostfs=$MODULES" none /media/modules || finish 121
    insmod "/media/modules/$(uname -r)/kernel/fs/overlayfs/overlay.ko" || finish 122
    mount -t overlay -o lowerdir=/,upperdir=/media/upper,workdir=/media/work overlay /media/root || finish 123
    cd /media/root || finish 124
    mkdir -p machine old checkout results
    mount --move /mnt machine
    umount /media/modules
    mount -t hostfs -o "hostfs=$MODULES" none usr/lib/modules || finish 121
    umount /proc
    # Debian 14 installs no pivot_root by default; what this leaves below the new root is out of sight.
    if command -v pivot_root >/dev/null; then pivot_root . old; else mount --move . /; fi || exit 1
    exec chroot . /bin/sh /machine/init.sh run
    ;;
run)
    . /machine/environment
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t devtmpfs devtmpfs /dev
    mkdir -p /dev/pts /dev/shm
    mount -t devpts devpts /dev/pts
    mount -t tmpfs tmpfs /dev/shm
    mount -t tmpfs -o mode=0755 tmpfs /run
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
    mount -t hostfs -o "hostfs=$CHECKOUT" -r none /checkout || finish 125
    [ -z "$RESULTS" ] || mount -t hostfs -o "hostfs=$RESULTS" none /results || finish 125
    mount --make-rshared /
    mkdir -p /run/netns
    hostname openperouter-uml
    ln -sf /proc/self/fd /dev/fd
    # Loading on demand works as well, but costs a usermode helper in the middle of a test.
    modprobe -a ipv6 veth bridge vxlan vrf dummy
    ip link set lo up
    stty -F /dev/console -onlcr 2>/dev/null
    cd /checkout || finish 125
    # A session of its own, so that a test that signals its process group does not hit PID 1.
    setsid -w /bin/sh /machine/command </dev/null >/dev/console 2>&1
    echo $? >/machine/status
    sync
    echo o >/proc/sysrq-trigger
    exec sleep 60
    ;;
esac
