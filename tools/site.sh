#!/bin/sh
# Build the site of the documentation in build/site, without network; warnings are errors.
set -eu

cd "$(dirname "$0")/.."
source=build/site-source
rm -rf "$source"
mkdir -p "$source/config" "$source/envs" "$source/results"
for name in README.md CHANGELOG.md CONTRIBUTING.md CITATION.cff LICENSE docs config/README.md envs/README.md results/README.md; do
    ln -s "$PWD/$name" "$source/$name"
done
NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict
echo "build/site/index.html"
