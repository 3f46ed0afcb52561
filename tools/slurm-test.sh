#!/bin/sh
# Run tests/slurm on a local Slurm cluster that the tests start and stop. Installs Slurm if it is missing, as root on
# Debian or Ubuntu.
#
#   tools/slurm-test.sh [arguments of pytest]
#   tools/slurm-test.sh --install    only install Slurm
set -eu

cd "$(dirname "$0")/.."
packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge slurmdbd mariadb-server mariadb-client"

die() {
    printf 'slurm-test: %s\n' "$*" >&2
    exit 1
}

[ "$(uname -s)" = Linux ] || die "cannot run here: Slurm needs Linux"
[ "$(id -u)" -eq 0 ] || die "cannot run here: a cluster of several nodes on one machine needs root"
missing=
for package in $packages; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null 2>&1 || die "cannot run here: install these first:$missing"
    printf 'slurm-test: installing%s\n' "$missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    # Keep Debian from starting daemons with its own configuration.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        trap 'rm -f $policy' EXIT
    fi
    # shellcheck disable=SC2086
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null 2>&1 </dev/null ||
        die "cannot run here: apt-get could not install$missing"
fi

[ "${1:-}" != --install ] || exit 0
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m pytest -q tests/slurm "$@"
