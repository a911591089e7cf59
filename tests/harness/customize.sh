#!/bin/sh
# Turns a freshly installed Debian tree ($1) into the guest: called by mmdebstrap as its last step, with apt still usable.
set -eu
tree=$1

# sshd without PAM refuses an account whose password is locked; "*" means: no password, not locked.
chroot "$tree" usermod --password '*' root

# The test topology runs FRR as pathspace instances (frr@...); a second zebra in the host's netns would sweep their routes.
chroot "$tree" systemctl disable frr.service
# A test starts its own bird, as the host's BGP speaker.
chroot "$tree" systemctl disable bird.service

chroot "$tree" systemctl enable systemd-networkd.service

# Nothing periodic may wake up in the middle of a measurement; no one uses the console.
chroot "$tree" systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer logrotate.timer \
    e2scrub_all.timer e2scrub_reap.service systemd-networkd-wait-online.service getty@tty1.service serial-getty@ttyS0.service \
    systemd-pstore.service

# A machine id of its own at each boot would make every boot a "first boot".
chroot "$tree" systemd-machine-id-setup
