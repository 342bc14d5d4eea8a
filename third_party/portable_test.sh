#!/usr/bin/env bash
# A portable binary runs from a folder of its own, with the libraries that travelled with it.
set -euo pipefail
tar -C "$TEST_TMPDIR" -xzf third_party/smoke_portable.tar.gz
cd "$TEST_TMPDIR/smoke_portable"
resolved="$(ldd "$PWD/smoke_test")"
for library in libdnnl.so.2 libgloo.so.0 libceres.so.3 libgomp.so.1 libibverbs.so.1; do
  grep -q "$library => $PWD/lib/$library" <<< "$resolved" ||
    { echo "$library does not come from lib/:"; echo "$resolved"; exit 1; }
done
if grep 'not found' <<< "$resolved"; then exit 1; fi
env -i HOME=/ TEST_TMPDIR="$TEST_TMPDIR" ./smoke_test
