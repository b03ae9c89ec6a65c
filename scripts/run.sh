#!/usr/bin/env bash
# Builds, then does the main job: plans the example graphs, prints the table and draws the timelines.
source "$(dirname "$0")/common.sh"

scripts/build.sh build
build/tools/nimble-plan examples/graphs/*.json --svg build/pictures
