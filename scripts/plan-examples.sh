#!/usr/bin/env bash
# Plans every graph in examples/graphs, prints what came out and writes its pictures to build/pictures.
source "$(dirname "$0")/common.sh"

mkdir -p build/pictures
for graph in examples/graphs/*.json; do
  picture=build/pictures/$(basename "$graph" .json)
  build/tools/nimble-plan "$graph" --dot "$picture.dot" --trace "$picture.trace.json"
done
say "pictures are in build/pictures: *.dot for Graphviz, *.trace.json for https://ui.perfetto.dev"
