#!/bin/sh
# Create .venv from a hash-locked requirements file and install the package in it; do nothing if that is done already.
#
#   tools/bootstrap.sh cpu|cuda|tpu|dev    envs/<name>.txt into .venv
#   tools/bootstrap.sh peers               envs/peers.txt into .venv-peers: other samplers for benchmarks, without the package
#   tools/bootstrap.sh site                envs/site.txt into .venv-site: what builds the site of the documentation
#   tools/bootstrap.sh --python            print the path of the Python that a new .venv would use
#
# Locks share .venv: each contains all pins of cpu.txt, so a second lock only adds packages.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
venv=.venv
stamp=$venv/.bayesmesh-locks

say() { printf 'bayesmesh: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

newline='
'
case $root in
*[\$\`\"\\{}:]* | *"$newline"*) die "$root: rename the folder: shells or Snakemake would interpret \$, \`, \", \\, {, }, : or a newline in it" ;;
esac

have() { command -v "$1" >/dev/null 2>&1; }

# Run it, because shims of version managers may exist and fail.
have_uv() { have uv && uv --version >/dev/null 2>&1; }

# --- the Python ---------------------------------------------------------------------------------------------

# Prints "<312> <1 when it can make a venv with pip> <real path>". The real path outlives a shim and an active venv.
probe() {
    "$1" -c '
import importlib.util, os, sys
print("%d%d" % sys.version_info[:2], int(importlib.util.find_spec("ensurepip") is not None), os.path.realpath(sys.executable))
' 2>/dev/null </dev/null
}

# Prints the probe of the first candidate that runs, with a version from 312 to $1; $2 = 1 asks for ensurepip too.
first_fitting() {
    for candidate in python3 python3.12 python3.13 python3.14; do
        found=$(probe "$candidate") || continue
        version=${found%% *}
        rest=${found#* }
        case $version in 3[0-9][0-9]) ;; *) continue ;; esac
        if [ "$version" -ge 312 ] && [ "$version" -le "$1" ] && [ "${rest%% *}" -ge "$2" ]; then
            printf '%s\n' "$found"
            return 0
        fi
    done
    return 1
}

python_from_uv() {
    uv python find --system --no-project '>=3.12,<3.15' 2>/dev/null && return 0
    say "no Python 3.12 or newer is installed: asking uv for one"
    uv python install --quiet 3.12 >&2 && uv python find --system --no-project '>=3.12,<3.15'
}

# Install the missing venv module of the system's Python, as root on Debian; $1 = 312, $2 = path.
add_venv_module() {
    package=python3.${1#3}-venv
    case $2 in
    /usr/bin/*) ;;
    *) die "$2 cannot make virtual environments (it lacks ensurepip): install a complete Python 3.12 or newer, or uv" ;;
    esac
    if ! have apt-get || [ "$(id -u)" -ne 0 ]; then
        die "$2 lacks its venv module: install $package (Debian, Ubuntu) or uv, then run make again"
    fi
    say "installing $package with apt-get, because $2 lacks its venv module"
    {
        apt_get install "$package" || { apt_get update && apt_get install "$package"; }
    } >/dev/null 2>&1 || die "apt-get could not install $package: install it or uv, then run make again"
}

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends "$@" </dev/null; }

# Prints the path of a Python that can make .venv. Prefer versions up to 3.13, for which every locked package is
# prebuilt; 3.14 needs a C compiler for one of them.
choose_python() {
    # uv makes environments without ensurepip
    needs_ensurepip=1
    if have_uv; then needs_ensurepip=0; fi
    if found=$(first_fitting 313 "$needs_ensurepip") || found=$(first_fitting 314 "$needs_ensurepip"); then
        rest=${found#* }
        printf '%s\n' "${rest#* }"
    elif have_uv && python_from_uv; then
        :
    elif found=$(first_fitting 314 0); then
        rest=${found#* }
        add_venv_module "${found%% *}" "${rest#* }"
        printf '%s\n' "${rest#* }"
    else
        die "found no Python from 3.12 to 3.14 that runs: install python3.12 with python3.12-venv, or uv, then run make again"
    fi
}

# --- the environment ----------------------------------------------------------------------------------------

# Covers everything an installation depends on. cksum is POSIX, and suffices to detect changes.
checksum() { cat pyproject.toml envs/build.txt "envs/$1.txt" | cksum; }

# The stamp also names the checkout, because moving it breaks the scripts in .venv and the editable install.
is_here() { [ ! -e "$stamp" ] || grep -qxF "root $root" "$stamp"; }

is_installed() {
    [ -x "$venv/bin/python" ] && [ -e "$stamp" ] && is_here && grep -qxF "$1 $(checksum "$1")" "$stamp"
}

# Both installers write INSTALLER after a package's files. A package without it is incomplete, and pip would not notice.
is_torn() {
    for info in "$venv"/lib/python*/site-packages/*.dist-info; do
        if [ -d "$info" ] && [ ! -e "$info/INSTALLER" ]; then return 0; fi
    done
    return 1
}

is_usable() {
    found=$(probe "$venv/bin/python") && [ "${found%% *}" -ge 312 ] && is_here && ! is_torn
}

make_venv() {
    python=$(choose_python)
    rm -rf "$venv"
    if have_uv; then
        uv venv --quiet --no-project --python "$python" "$venv"
    else
        "$python" -m venv "$venv"
    fi
}

install() {
    if have_uv; then
        uv pip install --quiet --python "$venv/bin/python" --no-build-isolation "$@"
    else
        # uv makes environments without pip; ensurepip brings one from Python itself
        "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null
        "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --no-build-isolation "$@"
    fi
}

# The locked build backend comes first, so that source-only packages and this one build without unlocked downloads.
# Joined by &&, because the caller's || disables -e.
install_lock() {
    install --require-hashes -r envs/build.txt &&
        install --require-hashes -r "envs/$1.txt" &&
        { [ "$venv" != .venv ] || install --no-deps -e .; } &&
        byte_compile
}

# Needed under PYTHONDONTWRITEBYTECODE, where Python would compile everything again at each start.
# Failures are ignored, because some packages ship files that do not compile; and many ship their tests, which nobody runs.
byte_compile() { "$venv/bin/python" -m compileall -qq -j 0 -x '/site-packages/.*/tests?/' "$venv"/lib src || true; }

# Records the given locks and those still installed.
write_stamp() {
    {
        printf 'root %s\n' "$root"
        for lock in cpu cuda tpu dev peers site; do
            case " $* " in
            *" $lock "*) printf '%s %s\n' "$lock" "$(checksum "$lock")" ;;
            *) if is_installed "$lock"; then printf '%s %s\n' "$lock" "$(checksum "$lock")"; fi ;;
            esac
        done
    } >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

main() {
    case ${1-} in
    --python)
        choose_python
        return
        ;;
    cpu | cuda | tpu | dev) ;;
    peers | site)
        venv=.venv-$1
        stamp=$venv/.bayesmesh-locks
        ;;
    *) die "no lock called '${1-}': ACCELERATOR is cpu, cuda or tpu" ;;
    esac
    if is_installed "$1"; then return; fi
    # If two makes run at once, the second waits and finds the work done.
    if have flock; then
        mkdir -p .cache
        exec 9>.cache/bootstrap.lock
        flock 9
        if is_installed "$1"; then return; fi
    fi
    is_usable || make_venv
    if have_uv; then with=uv; else with=pip; fi
    say "installing envs/$1.txt in $venv with $with (minutes the first time, nothing after that)"
    # Forget outdated locks first: an interrupted change that is then reverted must not look complete.
    write_stamp
    install_lock "$1" || die "the installation of envs/$1.txt failed; see the messages above"
    if [ "$venv" != .venv ]; then write_stamp "$1"; else write_stamp "$1" cpu; fi
    say "$venv is ready"
}

main "$@"
