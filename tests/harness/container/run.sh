#!/bin/sh
# Runs one command as root in a Debian tree on the host's own kernel, in namespaces of its own: for tests that need Debian 13's
# FRR but no VRF device. Several times quicker than User-Mode Linux where a test starts many processes.
#
#     run.sh TREE RESULTS COMMAND...
#
# The tree stays untouched (an overlay in memory), the checkout is /checkout (read-only) and the working directory, RESULTS is
# /results. Programs that were fetched beside the tree (fetch-package.sh) are in /opt/gobgp. Network, mounts, host name and
# processes are the command's own and end with it.
set -eu

[ "$#" -ge 3 ] || { echo "usage: run.sh TREE RESULTS COMMAND..." >&2; exit 64; }

if [ "${OPENPEROUTER_CONTAINER:-}" != inside ]; then
    here=$(cd "$(dirname "$0")" && pwd)
    tree=$(realpath "$1")
    results=$(realpath "$2")
    shift 2
    exec env OPENPEROUTER_CONTAINER=inside unshare --mount --net --uts --pid --ipc --fork --kill-child \
        "$here/run.sh" "$tree" "$results" "$@"
fi

tree=$1 results=$2
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
shift 2

mount --make-rprivate /
layers=$(mktemp -d)
mount -t tmpfs -o size=1g tmpfs "$layers"
mkdir "$layers/upper" "$layers/work" "$layers/root"
root=$layers/root
mount -t overlay -o "lowerdir=$tree,upperdir=$layers/upper,workdir=$layers/work" overlay "$root"
mkdir -p "$root/checkout" "$root/results"
mount --bind "$checkout" "$root/checkout"
mount -o remount,bind,ro "$root/checkout"
mount --bind "$results" "$root/results"
programs=${OPENPEROUTER_CACHE:-/var/cache/openperouter-dev}/gobgp/usr/bin
if [ -d "$programs" ]; then
    mkdir -p "$root/opt/gobgp"
    mount --bind -o ro "$programs" "$root/opt/gobgp"
fi
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# Named network namespaces are shared mounts; iproute2 makes them itself below a shared directory.
mkdir "$root/run/netns"
mount --bind "$root/run/netns" "$root/run/netns"
mount --make-rshared "$root/run/netns"
hostname openperouter-container
ip link set lo up
# The shell stays as the container's first process and reaps what daemons leave behind: to FRR's scripts a zombie is running.
exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/gobgp \
    PYTHONDONTWRITEBYTECODE=1 OPENPEROUTER_KERNEL_TESTS=1 HYPOTHESIS_STORAGE_DIRECTORY=/var/cache/hypothesis \
    /bin/sh -c 'cd /checkout && "$@"; exit $?' sh "$@"
