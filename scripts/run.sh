#!/usr/bin/env bash
# Builds, then does the main job.
source "$(dirname "$0")/common.sh"

scripts/build.sh build
scripts/plan-examples.sh
