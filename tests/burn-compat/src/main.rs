//! Burn and Kiln read and write the same record files.
//!
//! `burn-compat write DIR` writes small records with Burn. `burn-compat check DIR` compares what Kiln writes for the same
//! modules byte by byte, lets Burn load what Kiln wrote and Kiln what Burn wrote, and compares what they then store.
//! `burn-compat checkpoints DIR FIXTURES` lets Burn load what `kiln convert` wrote to a folder, and what Kiln's recorders
//! make of the same checkpoint, and compares the answers with PyTorch's.

mod checkpoints;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// The modules on Burn.
mod on_burn {
    use burn as root;

    pub type Cpu = burn::backend::NdArray<f32>;
    pub mod plain {
        use super::root;
        include!("plain.rs");
    }
    pub mod layers {
        use super::root;
        include!("layers.rs");
    }
    pub mod files {
        use super::root;
        include!("files.rs");
    }
    pub mod net {
        use super::root;
        include!("net.rs");
    }
}

/// The modules on Kiln.
mod on_kiln {
    use kiln as root;

    pub type Cpu = kiln::backend::NdArray;
    pub mod plain {
        use super::root;
        include!("plain.rs");
    }
    pub mod layers {
        use super::root;
        include!("layers.rs");
    }
    pub mod files {
        use super::root;
        include!("files.rs");
    }
    #[allow(dead_code, reason = "the answers of Kiln's network are tested elsewhere")]
    pub mod net {
        use super::root;
        include!("net.rs");
    }
}

fn write_with_burn(dir: &Path) {
    use on_burn::{Cpu, files, layers, plain};
    let device = Default::default();
    files::each::<Cpu>(dir, "plain", &mut files::Save(plain::Plain::<Cpu>::sample(&device)));
    files::each::<Cpu>(dir, "layers", &mut files::Save(layers::Layers::<Cpu>::sample(&device)));
}

fn write_with_kiln(dir: &Path) {
    use on_kiln::{Cpu, files, layers, plain};
    let device = Default::default();
    files::each::<Cpu>(dir, "plain", &mut files::Save(plain::Plain::<Cpu>::sample(&device)));
    files::each::<Cpu>(dir, "layers", &mut files::Save(layers::Layers::<Cpu>::sample(&device)));
}

fn copy_with_burn(from: &Path, to: &Path) {
    use on_burn::{Cpu, files, layers, plain};
    let device = Default::default();
    files::each::<Cpu>(from, "plain", &mut files::Copy { blank: plain::Plain::<Cpu>::blank(&device), to });
    files::each::<Cpu>(from, "layers", &mut files::Copy { blank: layers::Layers::<Cpu>::blank(&device), to });
}

fn copy_with_kiln(from: &Path, to: &Path) {
    use on_kiln::{Cpu, files, layers, plain};
    let device = Default::default();
    files::each::<Cpu>(from, "plain", &mut files::Copy { blank: plain::Plain::<Cpu>::blank(&device), to });
    files::each::<Cpu>(from, "layers", &mut files::Copy { blank: layers::Layers::<Cpu>::blank(&device), to });
}

/// The files of a folder by name.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("the folder can be listed");
        let bytes = std::fs::read(entry.path()).expect("the file can be read");
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    };
    entries.map(read).collect()
}

/// Compares two folders, file by file; true when they are equal.
fn compare(what: &str, expected: &Path, found: &Path) -> bool {
    let (expected, found) = (contents(expected), contents(found));
    let mut equal = expected.keys().eq(found.keys());
    for (name, bytes) in &expected {
        if found.get(name) != Some(bytes) {
            println!("{what}: {name} differs");
            equal = false;
        }
    }
    println!("{what}: {} files, {}", expected.len(), if equal { "equal" } else { "NOT equal" });
    equal
}

fn check(fixtures: &Path) -> bool {
    let scratch = std::env::temp_dir().join(format!("burn-compat-{}", std::process::id()));
    let folder = |name: &str| {
        let folder = scratch.join(name);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        folder
    };
    let (burn, kiln) = (folder("burn"), folder("kiln"));
    write_with_burn(&burn);
    write_with_kiln(&kiln);
    let mut equal = compare("the fixtures are what Burn writes", fixtures, &burn);
    equal &= compare("Kiln writes what Burn writes", &burn, &kiln);
    let (by_burn, by_kiln) = (folder("by_burn"), folder("by_kiln"));
    copy_with_burn(&kiln, &by_burn);
    copy_with_kiln(&burn, &by_kiln);
    equal &= compare("Burn loads what Kiln writes", &burn, &by_burn);
    equal &= compare("Kiln loads what Burn writes", &burn, &by_kiln);
    std::fs::remove_dir_all(&scratch).expect("the scratch folder can be removed");
    equal
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir] => {
            std::fs::create_dir_all(dir).expect("the folder can be made");
            write_with_burn(Path::new(dir));
            ExitCode::SUCCESS
        }
        ["check", dir] => ExitCode::from(u8::from(!check(Path::new(dir)))),
        ["checkpoints", dir, fixtures] => {
            let (dir, fixtures) = (Path::new(dir), Path::new(fixtures));
            let stored = checkpoints::check_stored(dir, fixtures);
            let converted = checkpoints::check_converted(dir, fixtures);
            ExitCode::from(u8::from(!(stored && converted)))
        }
        _ => {
            eprintln!("usage: burn-compat write|check DIR, or checkpoints DIR FIXTURES");
            ExitCode::from(2)
        }
    }
}
