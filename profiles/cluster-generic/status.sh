#!/bin/sh
# status.sh JOB: print `running`, `success` or `failed`.
set -eu
job=.snakemake/cluster-jobs/$1
is_running=
if kill -0 "$(cat "$job/session")" 2>/dev/null; then is_running=1; fi
# Looked for after the process, which writes it at its end.
if [ -e "$job/code" ]; then
    if [ "$(cat "$job/code")" -eq 0 ]; then echo success; else echo failed; fi
elif [ -n "$is_running" ]; then
    echo running
else
    echo failed
fi
