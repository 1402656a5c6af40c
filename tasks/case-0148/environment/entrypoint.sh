#!/bin/sh
# Starts the clinic's service as root and hands over to the container's command. Prints no variable: nobody
# scrubs what a container prints.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
here=$(cd "$(dirname "$0")" && pwd -P)

# Where root's later settings go (env, 0600), and where the case lies. Moved by whoever starts this, if at all.
(umask 077 && mkdir -p "${CAA_RUN_DIR:-/run}/caa" "${CAA_STATE_DIR:-/var/lib/caa}")

# Returns when the service listens; a case that cannot be served must not look like a slow patient.
python3 -S -I -B "$here/service.py" start

exec "$@"
