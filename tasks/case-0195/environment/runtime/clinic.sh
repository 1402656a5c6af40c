#!/bin/sh
# `clinic`, as it lies in /usr/local/bin: no site packages, nothing of the caller's folder or PYTHON* variables.
exec python3 -S -I -B /opt/caa/command.py "$@"
