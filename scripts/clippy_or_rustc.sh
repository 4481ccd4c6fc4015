#!/usr/bin/env bash
# The compiler of `test.sh`, as Cargo's RUSTC_WORKSPACE_WRAPPER: Clippy for what is checked, rustc for what is built. `cargo clippy` has Clippy build
# the importer for build scripts, too, and run these: all of it would be done a second time for the tests.
set -euo pipefail
compiler=$1
shift
case " $* " in
*" --emit=dep-info,metadata "*) exec clippy-driver "$compiler" "$@" -D warnings ;;
*) exec "$compiler" "$@" ;;
esac
