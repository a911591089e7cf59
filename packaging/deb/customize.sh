#!/bin/sh
# Turns a freshly installed Debian tree ($1) into the build root: called by mmdebstrap as its last step.
set -eu
tree=$1

# The build runs as this user: nothing in the package may need root to be made.
chroot "$tree" useradd --uid 2000 --no-create-home --home-dir /nonexistent --shell /bin/sh builder

# Where the export of the sources is mounted; the rest of the tree is read-only during a build.
mkdir "$tree/build"
