#!/bin/bash
# Scores the consultation. In a container that the agent has shared it first makes an end of the agent: its
# processes, and whatever it has laid where the reward goes.
set -u
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
unset BASH_ENV ENV CDPATH
umask 077
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cd / || exit 1
logs=${CAA_LOGS_DIR:-/logs/verifier}
agent=${CAA_AGENT_USER:-agent}
case $agent in
*[!0-9]*) agent=$(id -u "$agent" 2>/dev/null || true) ;;
esac

# kill(-1) as the agent ends all that it may signal at once, so that nothing forks away; root's are out of its reach.
# Where the agent is root, or this is not, there is no such line to draw.
if [ "$(id -u)" = 0 ] && [ -n "$agent" ] && [ "$agent" != 0 ]; then
    python3 -S -I -B "$here/end_agent.py" "$agent"
fi

# A folder of that name, and not a link to one; nobody but its owner gets in from here on. The owner stays: where
# the folder is mounted it is the user on the host who reads the reward.
[ -L "$logs" ] && rm -f -- "$logs"
mkdir -p -- "$logs" || exit 1
chmod 700 -- "$logs"

# rm takes a link itself and never what it points to. Left-over temporary names go too.
rm -rf -- "$logs"/reward.json "$logs"/reward.txt "$logs"/reward-details.json "$logs"/transcript.jsonl \
    "$logs"/.reward* "$logs"/.transcript*

python3 -S -I -B "$here/verify.py" "$logs"
status=$?
[ "$status" = 0 ] || rm -rf -- "$logs"/reward.json "$logs"/reward.txt
exit "$status"
