#!/bin/sh
# Nothing to start: whoever holds the consultation is outside. Makes the folder where root may leave gateway and
# token for the command (client.env, 0644), and hands over.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
mkdir -p "${CAA_RUN_DIR:-/run}/caa"
chmod 755 "${CAA_RUN_DIR:-/run}/caa"

exec "$@"
