#!/bin/sh
# submit.sh MINUTES MEMORY_MB GPUS SCRIPT: start a job and print its name. It is told to stop (TERM) two minutes before it is
# killed, so that it commits its draws.
set -eu
jobs=.snakemake/cluster-jobs
mkdir -p "$jobs"
job=$(mktemp -d "$jobs/XXXXXXXX")
# A session of its own, which cancel.sh finds by its number.
# shellcheck disable=SC2016
setsid sh -c '
    timeout --signal=TERM --kill-after=120 "${2}m" sh "$3" >"$1/log" 2>&1
    echo $? >"$1/code.new"
    mv "$1/code.new" "$1/code"
' submit "$job" "$1" "$4" >/dev/null 2>&1 </dev/null &
echo $! >"$job/session"
echo "${job##*/}"
