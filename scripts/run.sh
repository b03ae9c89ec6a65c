#!/usr/bin/env bash
# Builds, then does the main job: plans the example graphs and draws their timelines.
source "$(dirname "$0")/common.sh"

scripts/build.sh build
mkdir -p build/pictures
build/tools/nimble-plan examples/graphs/*.json
