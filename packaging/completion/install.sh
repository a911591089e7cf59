#!/bin/sh
# Makes the completions of bash, zsh and fish and installs them: packaging/completion/install.sh [DESTDIR]. Needs shtab; without
# it there is a message and no completion. The Debian package's build makes them itself.
set -eu

destdir=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

if ! "$python" -c 'import shtab' 2>/dev/null; then
    echo "$0: no completion is installed: $python has no shtab (Debian: python3-shtab)" >&2
    exit 0
fi

made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
PYTHONDONTWRITEBYTECODE=1 "$python" "$here/generate.py" "$made"
install -D -m 644 "$made/openperouter.bash" "$destdir/usr/share/bash-completion/completions/openperouter"
install -D -m 644 "$made/_openperouter" "$destdir/usr/share/zsh/vendor-completions/_openperouter"
install -D -m 644 "$made/openperouter.fish" "$destdir/usr/share/fish/vendor_completions.d/openperouter.fish"
