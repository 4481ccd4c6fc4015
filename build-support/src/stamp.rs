//! Leaves a model alone that did not change since it was last compiled.

use crate::compile::replace_text;
use crate::golden::data_set_dirs;
use crate::{BuildError, CompileOptions, Compiled, destination};
use kiln_importer::onnx::SourceFile;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What a compiled model was made from, kept in a file beside it.
///
/// The first line is a key over Kiln's version, the program, all options and which golden data there are; every further line is a watched file with its size and
/// modification time. A file counts as unchanged when both are, as for cargo.
pub(crate) struct Stamp {
    file: PathBuf,
    key: String,
}

impl Stamp {
    pub(crate) fn new(input: &Path, options: &CompileOptions, golden: Option<&Path>, out_dir: &Path) -> Self {
        let stem = input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // The build script has the compiler in it, and is another file when that changed.
        let program = std::env::current_exe().ok().and_then(|path| SourceFile::now(&path));
        let program = program.as_ref().and_then(state_of).unwrap_or_default();
        // A folder that is added to the golden data is no file that was read before.
        let sets = golden.and_then(|golden| data_set_dirs(golden).ok());
        // Debug output escapes line breaks, so the key is one line.
        let key =
            format!("{} {program:?} {input:?} {golden:?} {sets:?} {options:?}", env!("CARGO_PKG_VERSION"));
        Self { file: out_dir.join(format!("{stem}.stamp")), key }
    }

    /// The watched files, when neither they nor the outputs nor the options changed.
    pub(crate) fn unchanged(&self) -> Option<Vec<PathBuf>> {
        let text = fs::read_to_string(&self.file).ok()?;
        let mut lines = text.lines();
        if lines.next()? != self.key {
            return None;
        }
        let mut watched = Vec::new();
        for line in lines {
            let (state, path) = line.split_once('\t')?;
            if state != state_of(&SourceFile::now(Path::new(path))?)? {
                return None;
            }
            watched.push(PathBuf::from(path));
        }
        Some(watched)
    }

    /// Remembers what `compiled` was made from, as it was before, and what was written for it: a model that was saved in the
    /// meantime has changed.
    pub(crate) fn write(&self, compiled: &Compiled) -> Result<(), BuildError> {
        destination::check_read("the stamp", &self.file, &compiled.sources)?;
        let mut text = self.key.clone();
        let written = compiled.written.iter().map(|path| SourceFile::now(path));
        for file in compiled.sources.iter().cloned().map(Some).chain(written) {
            // A name with a line break, or a file that is gone, makes the stamp useless, never wrong.
            let line = file.and_then(|file| {
                let path = file.path.to_str().filter(|path| !path.contains('\n'))?.to_owned();
                Some(format!("\n{}\t{path}", state_of(&file)?))
            });
            let Some(line) = line else { return Ok(()) };
            text.push_str(&line);
        }
        replace_text(&self.file, &text)
    }
}

/// Size and modification time, as text.
fn state_of(file: &SourceFile) -> Option<String> {
    let modified = file.modified?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}:{}", file.size, modified.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile;

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder") {
            let path = entry.expect("an entry").path();
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a copy");
        }
    }

    /// A set of golden data that comes later gets its test, and one that goes loses it.
    #[test]
    fn golden_data_that_come_and_go_are_a_change() {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/external_data");
        let folder = tempfile::tempdir().expect("a folder");
        let (golden, out_dir) = (folder.path().join("golden"), folder.path().join("out"));
        let set = |n: u32| golden.join(format!("test_data_set_{n}"));
        copy(&case.join("test_data_set_0"), &set(0));
        let mut model = crate::ModelGen::new();
        model.input(case.join("model.onnx")).golden(&golden).out_dir(&out_dir);
        let tests = || {
            model.run_from_cli().expect("it compiles");
            let source = fs::read_to_string(out_dir.join("model.rs")).expect("source");
            source.matches("#[test]").count()
        };
        assert_eq!(tests(), 1);
        copy(&set(0), &set(1));
        assert_eq!(tests(), 2);
        fs::remove_dir_all(set(0)).expect("it is removed");
        assert_eq!(tests(), 1);
    }

    /// What is saved while it is compiled counts as changed.
    #[test]
    fn what_is_saved_meanwhile_has_changed() {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases/external_data");
        for saved in [None, Some("model.onnx"), Some("weights.bin"), Some("more/w2.bin")] {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir(folder.path().join("more")).expect("a folder");
            for file in ["model.onnx", "weights.bin", "more/w2.bin"] {
                fs::copy(case.join(file), folder.path().join(file)).expect("a copy");
            }
            let (input, out_dir) = (folder.path().join("model.onnx"), folder.path().join("out"));
            let options = CompileOptions::default();
            let stamp = Stamp::new(&input, &options, None, &out_dir);
            let mut compiled = compile(&input, &options).expect("it compiles");
            if let Some(saved) = saved {
                let path = folder.path().join(saved);
                let mut bytes = fs::read(&path).expect("a file");
                bytes.push(0);
                // A file that is mapped is replaced.
                fs::remove_file(&path).expect("a file");
                fs::write(&path, bytes).expect("a file");
            }
            compiled.write(&out_dir).expect("it is written");
            stamp.write(&compiled).expect("it is written");
            assert_eq!(stamp.unchanged().is_some(), saved.is_none(), "{saved:?}");
        }
    }
}
