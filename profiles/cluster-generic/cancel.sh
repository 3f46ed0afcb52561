#!/bin/sh
# cancel.sh JOB...: tell all processes of jobs to stop.
for name; do
    pkill -TERM -s "$(cat ".snakemake/cluster-jobs/$name/session")" || true
done
