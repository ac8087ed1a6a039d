#!/bin/sh
# Writes what Debian's ansible-core makes of each inventory: FILE.golden has the output of ansible-inventory --list, or
# "error" for an inventory that it refuses. ansible-core 2.14 wrote those that are there.
set -eu
cd "$(dirname "$0")"
config=$(mktemp --suffix=.cfg)
trap 'rm -f "$config"' EXIT
export ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED=true ANSIBLE_CONFIG="$config" LC_ALL=C.UTF-8
for file in *; do
  case $file in *.golden | golden.sh) continue ;; esac
  if ansible-inventory -i "$file" --list >"$file.golden" 2>/dev/null; then continue; fi
  echo error >"$file.golden"
done
