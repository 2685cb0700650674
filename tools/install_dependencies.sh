#!/bin/sh
# Debian 12 packages that building and testing keysieve needs. Does nothing where they are installed.
set -eu
packages="g++ cmake ninja-build pkg-config libhwy-dev libtbb-dev nlohmann-json3-dev libcli11-dev libdlpack-dev
  libgtest-dev libbenchmark-dev python3"
missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
sudo=""
[ "$(id -u)" -eq 0 ] || sudo=sudo
echo "installing:$missing"
# The package lists may be old: refresh them first. Quiet, since the build's output is what matters.
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qq -y --no-install-recommends $missing >/dev/null
