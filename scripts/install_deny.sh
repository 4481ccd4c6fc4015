#!/usr/bin/env bash
# Installs cargo-deny, which checks licenses, sources and advisories of dependencies (deny.toml); scripts/test.sh runs it when it is
# there. It compiles for some minutes.
set -euo pipefail
cargo install cargo-deny --locked
