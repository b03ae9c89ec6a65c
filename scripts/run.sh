#!/usr/bin/env bash
# Builds, then does the main job: five networks, eager and with Nimble.
source "$(dirname "$0")/common.sh"

scripts/build.sh build
PYTHONPATH=$PWD/build/python "$(project_python)" -m nimble run
