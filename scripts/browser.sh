#!/usr/bin/env bash
# Installs Chromium for the tests of reports where that takes no question: with apt-get, as root. Elsewhere those tests
# are skipped, and say what is missing; nothing else needs a browser.
source "$(dirname "$0")/common.sh"

for browser in chromium chromium-browser google-chrome; do
  command -v "$browser" >/dev/null && exit 0
done
command -v apt-get >/dev/null && [[ $(id -u) == 0 ]] || exit 0

say "installing chromium, for the tests of reports"
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; } >/dev/null 2>&1; then
  say "chromium cannot be installed here: the tests of reports in a browser will be skipped"
fi
