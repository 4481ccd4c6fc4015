//! Where `kiln verify` runs cargo.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Settings in the folder where somebody stands, a stranger's maybe, can name programs that cargo or rustup run.
#[test]
fn cargo_runs_in_a_folder_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let cargo = folder.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\necho \"ran in $PWD\" >&2\nexit 1\n").expect("a program");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("a program that can be run");
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/op_conv_2d");
    for cache in [folder.path().join("cache").as_path(), Path::new("cache")] {
        let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .arg("verify")
            .arg(&case)
            .current_dir(folder.path())
            .env("CARGO", &cargo)
            .env("KILN_CACHE_DIR", cache)
            .output()
            .expect("the command");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let place = said.lines().find_map(|line| line.split_once("ran in ")).expect("a place").1;
        assert!(place.contains("/cache/crates/kiln-scratch-"), "{said}");
    }
}
