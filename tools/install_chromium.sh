#!/usr/bin/env bash
# Installs Debian's Chromium for the tests of the pages, where it is missing and we may. Without it those tests are skipped.
set -euo pipefail
[ -x /usr/bin/chromium ] && exit 0
if ! command -v apt-get > /dev/null; then
    echo "Chromium is missing and there is no apt-get to install it: the tests of the pages will be skipped." >&2
    exit 0
fi
if [ "$(id -u)" = 0 ]; then
    as_root=()
elif sudo -n true 2> /dev/null; then
    as_root=(sudo -n)
else
    echo "Chromium is missing; install it with 'apt-get install chromium' to run the tests of the pages." >&2
    exit 0
fi
"${as_root[@]}" apt-get -q update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends chromium
