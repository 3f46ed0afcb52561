#!/bin/sh
# Regenerate the locks in envs/. Pins stay while they fit; UPGRADE=1 moves all to the newest versions.
set -eu

cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
python=$(tools/bootstrap.sh --python)

if uv --version >/dev/null 2>&1; then
    uv=uv
else
    "$python" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install -qq --disable-pip-version-check uv
    uv=$work/venv/bin/uv
fi

# A lock that names an index would work only in one network.
compile() {
    output=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links ${UPGRADE:+--upgrade} "$@" -o "envs/$output.txt" >/dev/null
    printf 'envs/%s.txt: %s pins\n' "$output" "$(grep -c == "envs/$output.txt")"
}

"$python" -c '
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
' >"$work/build.in"
compile build "$work/build.in"
compile cpu pyproject.toml
# Constrained to cpu, so that the locks can share one .venv.
for extra in cuda tpu dev; do
    compile "$extra" pyproject.toml --extra "$extra" -c envs/cpu.txt
done
compile peers envs/peers.in -c envs/cpu.txt -c envs/dev.txt
compile site envs/site.in -c envs/cpu.txt -c envs/dev.txt

# Snakemake identifies a conda environment by the content of these files, so this line tells it of a new lock.
sum=$(cat envs/build.txt envs/cpu.txt | cksum | cut -d ' ' -f 1)
sed "s/^# locks: .*/# locks: $sum/" envs/bayesmesh.post-deploy.sh >"$work/post-deploy.sh"
cat "$work/post-deploy.sh" >envs/bayesmesh.post-deploy.sh
