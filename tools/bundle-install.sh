#!/bin/sh
# Install Bayesmesh from this directory, without network.
#
#   install.sh [--python PATH] [--use-present-jax] FOLDER
#
# FOLDER gets the workflow and its .venv. If it has this bundle's code already, only .venv is rebuilt; the new one
# replaces the old one when it works. --python: path of a Python @PYTHON@; python@PYTHON@ or python3 by default.
# --use-present-jax: use this Python's JAX (0.12, with its CUDA packages) and install everything else.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)

say() { printf 'install: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

python= present= folder=
while [ $# -gt 0 ]; do
    case $1 in
    --python)
        [ $# -gt 1 ] || die "--python needs a path"
        python=$2
        shift
        ;;
    --use-present-jax) present=1 ;;
    -*) die "unknown option $1: install.sh [--python PATH] [--use-present-jax] FOLDER" ;;
    *) folder=$1 ;;
    esac
    shift
done
[ -n "$folder" ] || die "FOLDER is missing: install.sh [--python PATH] [--use-present-jax] FOLDER"

# --- check the files of the bundle ----------------------------------------------------------------------------

if command -v sha256sum >/dev/null 2>&1; then check="sha256sum"; else check="shasum -a 256"; fi
(cd "$here" && $check -c SHA256SUMS >/dev/null) || die "a file of the bundle is damaged or missing: copy it again"

# --- the Python -----------------------------------------------------------------------------------------------

version() { "$1" -c 'import platform, sys; print("%d.%d" % sys.version_info[:2], platform.machine())' 2>/dev/null; }

if [ -z "$python" ]; then
    for candidate in python@PYTHON@ python3 python; do
        if [ "$(version "$candidate")" = "@PYTHON@ @MACHINE@" ]; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || die "found no Python @PYTHON@ for @MACHINE@: name one with --python, or build a bundle for yours"
fi
found=$(version "$python") || die "$python does not run"
[ "$found" = "@PYTHON@ @MACHINE@" ] || die "$python is $found, but the bundle is for @PYTHON@ @MACHINE@"

# --- the folder -----------------------------------------------------------------------------------------------

other_project() { die "$folder: is not empty; name an empty or new folder"; }

# Prints the first file of the code that differs from the bundle, whose lock fits only its own code.
other_code() {
    whole=$(mktemp -d)
    (cd "$whole" && gzip -dc "$here/bayesmesh.tar.gz" | tar xf -)
    (cd "$whole/bayesmesh" && find pyproject.toml Snakefile envs src workflow -type f) | sort | while read -r file; do
        if ! cmp -s "$whole/bayesmesh/$file" "$folder/$file"; then
            printf '%s\n' "$file"
            break
        fi
    done
    rm -rf "$whole"
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)
if [ ! -e "$folder/pyproject.toml" ]; then
    [ -z "$(ls -A "$folder")" ] || other_project
    # Without --strip-components, which only GNU tar has; names in the archive begin with one folder.
    (cd "$folder" && gzip -dc "$here/bayesmesh.tar.gz" | tar xf - && mv bayesmesh/* bayesmesh/.[!.]* . && rmdir bayesmesh)
else
    grep -q '^name = "bayesmesh"$' "$folder/pyproject.toml" || other_project
    differs=$(other_code)
    [ -z "$differs" ] || die "$folder: has other code than this bundle, such as $differs: install into another folder, and copy config/, profiles/site.yaml and results/ there"
    say "$folder: exists already; rebuilding only its .venv"
fi

# --- the environment ------------------------------------------------------------------------------------------

# Built beside the old one, which stays if this fails.
final=$folder/.venv
venv=$folder/.venv.new
rm -rf "$venv"
trap 'rm -rf "$venv"' EXIT
trap 'exit 1' HUP INT TERM
if [ -n "$present" ]; then
    "$python" -c 'import jax, jaxlib' 2>/dev/null || die "$python has no JAX: omit --use-present-jax, or name a Python with JAX with --python"
    # Without pip, because Debian's Python lacks ensurepip; the bundle contains a wheel of pip.
    "$python" -m venv --without-pip --prompt .venv --system-site-packages "$venv"
    # An environment cannot inherit from another one, so add the other's packages after its own.
    "$python" -c '
import site, sys
if sys.prefix != sys.base_prefix:
    print(*site.getsitepackages(), sep="\n")
' >"$venv/lib/python@PYTHON@/site-packages/present-jax.pth"
    grep -v -E '^(jax|jaxlib|jax-.*|nvidia-.*|libtpu)==' "$here/requirements.txt" >"$venv/requirements.txt"
else
    "$python" -m venv --without-pip --prompt .venv "$venv"
    cp "$here/requirements.txt" "$venv/requirements.txt"
fi
pip() { "$venv/bin/python" "$(echo "$here"/pip-*.whl)/pip" --disable-pip-version-check --isolated "$@"; }
say "installing $(grep -c == "$venv/requirements.txt") packages in $final"
# --ignore-installed also installs packages that the Python has elsewhere, so that the locked ones run.
pip install --quiet --no-index --find-links "$here/wheels" --no-deps --require-hashes --ignore-installed --no-compile \
    -r "$venv/requirements.txt" || die "pip failed; see the messages above"
pip install --quiet --no-index --no-deps --no-build-isolation --no-compile -e "$folder" || die "pip failed; see the messages above"
"$venv/bin/python" -m compileall -qq -j 0 -s "$venv" -p "$final" "$venv/lib" || true

# --- test the result ------------------------------------------------------------------------------------------

"$venv/bin/python" -c '
import importlib.metadata, sys
from packaging.requirements import Requirement
wrong = []
for text in importlib.metadata.requires("bayesmesh"):
    need = Requirement(text)
    if need.marker is None or need.marker.evaluate({"extra": ""}):
        found = importlib.metadata.version(need.name)
        if not need.specifier.contains(found, prereleases=True):
            wrong.append(f"{need.name} {found} is installed, but {need} is needed")
if wrong:
    sys.exit("install: " + "; ".join(wrong))
import jax, jaxlib
from tensorflow_probability.substrates import jax as tfp
draw = jax.jit(lambda key: tfp.distributions.Normal(0.0, 1.0).sample(seed=key))(jax.random.key(0))
print(f"install: JAX {jax.__version__} of {jax.__file__.replace(sys.prefix, sys.argv[1])}, on {jax.devices()[0].device_kind}", file=sys.stderr)
' "$final" || die "the environment does not work; see the messages above"

# Stamp for tools/bootstrap.sh, so that make does not try to install from an index.
{
    printf 'root %s\n' "$folder"
    for lock in @LOCKS@; do
        printf '%s %s\n' "$lock" "$(cd "$folder" && cat pyproject.toml envs/build.txt "envs/$lock.txt" | cksum)"
    done
} >"$venv/.bayesmesh-locks"

# The scripts in .venv contain its path; replace it by the final one.
"$venv/bin/python" -c '
import os, pathlib, sys
here, there = map(os.fsencode, sys.argv[1:])
folder = pathlib.Path(sys.argv[1])
for path in (folder / "pyvenv.cfg", *(folder / "bin").iterdir()):
    if not path.is_symlink() and path.is_file() and here in (content := path.read_bytes()):
        path.write_bytes(content.replace(here, there))
' "$venv" "$final"
rm -rf "$final.old"
if [ -e "$final" ] || [ -L "$final" ]; then mv "$final" "$final.old"; fi
mv "$venv" "$final"
rm -rf "$final.old"

say "installed. Next:"
say "    cd $folder"
say "    .venv/bin/bayesmesh doctor"
say "    .venv/bin/snakemake --cores all quickstart"
