//! The scratch crate: generated sources of many cases, compiled by cargo in one go, run one process a case.
//!
//! It lives in a cache folder. Sources decide the crate's folder by their content, all crates share one target folder,
//! and weights and golden data stay outside the crate: a second run compiles nothing.

use super::convert::Bindings;
use super::{CommandError, Target, json, runner, show, spinner, warn};
use crate::compile::{import, write_bytes, write_golden};
use crate::golden::{DataSet, check_dtypes, data_set_dirs, read_data_set, sizes_in};
use crate::{BuildError, CompileOptions, Compiled, RecordType, compile};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One case directory on its way through.
pub(super) struct Case {
    /// The directory as given.
    pub name: String,
    /// Number of the generated module and the folder with its data, or why there is none.
    state: Result<(usize, PathBuf), String>,
}

/// A crate under construction.
pub(super) struct Scratch {
    to: Target,
    /// Whether the runner records what operations take.
    profiled: bool,
    root: PathBuf,
    /// What is settled in all cases.
    settled: CompileOptions,
    modules: Vec<runner::Module>,
    /// What rustc says of modules that do not compile: defects of Kiln, each its own case's failure.
    broken: BTreeMap<usize, String>,
    executable: Option<PathBuf>,
}

impl Scratch {
    /// One in whose models something is settled.
    pub(super) fn new(to: Target, bindings: &Bindings) -> Result<Self, CommandError> {
        let (modules, broken) = (Vec::new(), BTreeMap::new());
        let settled = bindings.options()?;
        // Cargo is run in a folder of its own.
        let root = cache_dir();
        let root = std::path::absolute(&root).unwrap_or(root);
        Ok(Self { to, profiled: false, root, settled, modules, broken, executable: None })
    }

    /// Its runner records what operations take.
    #[must_use]
    pub(super) fn profiled(self, profiled: bool) -> Self {
        Self { profiled, ..self }
    }

    /// Converts a case and writes its weights and golden data to the cache.
    pub(super) fn add(&mut self, dir: &Path) -> Case {
        let name = dir.display().to_string();
        let bar = spinner(format!("converting {name}"));
        let state = self.convert(dir).map_err(|error| error.report());
        bar.finish_and_clear();
        Case { name, state }
    }

    fn convert(&mut self, dir: &Path) -> Result<(usize, PathBuf), BuildError> {
        let models = ["model.onnx", "model.pt2"].map(|name| dir.join(name));
        let model = models.iter().find(|model| model.exists());
        if dir.exists() && model.is_none() {
            return Err(BuildError::Golden {
                path: dir.to_owned(),
                reason:
                    "a case is a folder with `model.onnx` or `model.pt2` and, beside it, `test_data_set_*`"
                        .to_owned(),
            });
        }
        let [onnx, _] = &models;
        let model = model.unwrap_or(onnx).clone();
        let mut options = CompileOptions {
            record_type: RecordType::Safetensors,
            precision: self.to.precision.into(),
            profiled: self.profiled,
            standalone: self.to.standalone,
            ..self.settled.clone()
        };
        let sets = data_set_dirs(dir)?;
        if let (true, Some(first)) = (self.to.standalone, sets.first()) {
            // A case's data say its sizes, where nobody else does.
            let graph = import(&model, &options)?.graph;
            for (symbol, size) in sizes_in(first, &graph) {
                options.bind_dims.entry(symbol).or_insert(size);
            }
        }
        let mut compiled = compile(&model, &options)?;
        // Other settings make other data of a case, and a run beside this one reads its own.
        let mut hasher = DefaultHasher::new();
        fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()).hash(&mut hasher);
        format!("{options:?}").hash(&mut hasher);
        let place = self.root.join("data").join(format!("{:016x}", hasher.finish()));
        let data = place.with_extension(std::process::id().to_string());
        // What a run of the same number left that broke off is nobody's.
        let _ = fs::remove_dir_all(&data);
        fs::create_dir_all(&data).map_err(BuildError::folder(&data))?;
        let written = self.write_data(dir, &data, &mut compiled, sets);
        let placed = written.and_then(|()| put_in_place(&data, &place));
        if placed.is_err() {
            // What is wrong is told; what is left is nobody's.
            let _ = fs::remove_dir_all(&data);
        }
        placed?;
        self.modules.push(runner::Module::new(&compiled));
        Ok((self.modules.len() - 1, place))
    }

    /// Writes weights and golden data of a case to a folder.
    fn write_data(
        &self,
        dir: &Path,
        data: &Path,
        compiled: &mut Compiled,
        sets: Vec<PathBuf>,
    ) -> Result<(), BuildError> {
        if compiled.numbers().is_none() {
            compiled.write_record(data)?;
        }
        let mut sets = sets.iter().map(|set| read_data_set(set, compiled)).collect::<Result<Vec<_>, _>>()?;
        if self.to.standalone {
            // Data of other sizes are another model's.
            let fits = |set: &DataSet| {
                set.inputs.iter().zip(&compiled.inputs).all(|(data, port)| port.has(&data.shape))
            };
            let count = sets.len();
            sets.retain(fits);
            if sets.is_empty() && count > 0 {
                let reason = "no data set has the sizes that are bound".to_owned();
                return Err(BuildError::Golden { path: dir.to_owned(), reason });
            }
        }
        sets.iter().try_for_each(|set| check_dtypes(dir, set, compiled))?;
        for (i, set) in sets.iter().enumerate() {
            write_golden(set, &data.join(format!("golden_{i}.safetensors")))?;
        }
        Ok(())
    }

    /// Compiles what was added. A module that does not compile is left out and fails its own case alone.
    pub(super) fn build(&mut self) -> Result<(), CommandError> {
        while self.broken.len() < self.modules.len() {
            let Err(output) = self.compile()? else { return Ok(()) };
            let broken = broken_modules(&output);
            if broken.is_empty() {
                return Err(CommandError::Compile { output });
            }
            self.broken.extend(broken);
        }
        Ok(())
    }

    /// Runs cargo once; the inner error is what rustc said.
    fn compile(&mut self) -> Result<Result<(), String>, CommandError> {
        let modules: Vec<_> =
            self.modules.iter().enumerate().filter(|(i, _)| !self.broken.contains_key(i)).collect();
        let main = runner::main_source(self.to, self.profiled, &modules);
        let mut files = vec![("src/main.rs".to_owned(), main.into_bytes())];
        for (i, module) in &modules {
            let source = module.source.clone().into_bytes();
            match &module.numbers {
                None => files.push((format!("src/case_{i}.rs"), source)),
                Some(numbers) => files.extend([
                    (format!("src/case_{i}/model.rs"), source),
                    (format!("src/case_{i}/model.weights"), numbers.clone()),
                ]),
            }
        }
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        // Of one model with another runtime too.
        runner::manifest(self.to, self.profiled, "").hash(&mut hasher);
        // The name is the crate's own: two runs at once must not take each other's executable from the shared target.
        let name = format!("kiln-scratch-{:016x}", hasher.finish());
        let manifest = runner::manifest(self.to, self.profiled, &name);
        files.push(("Cargo.toml".to_owned(), manifest.into_bytes()));
        let crate_dir = self.root.join("crates").join(&name);
        for (path, text) in &files {
            write_if_changed(&crate_dir.join(path), text)?;
        }
        let bar = spinner("compiling");
        let target = self.root.join("target");
        let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        // In its own folder: settings of Cargo and rustup in a folder of strangers' files, where somebody may stand, can name programs to run. A
        // path to Cargo counts from there.
        let path = match Path::new(&program).components().count() {
            0 | 1 => PathBuf::from(&program),
            _ => std::path::absolute(&program).unwrap_or_else(|_| PathBuf::from(&program)),
        };
        let output = Command::new(&path)
            .current_dir(&crate_dir)
            // In JSON it says where the executable is, which settings of the user's may move; what it says to people is read too, without colours.
            .args([
                "build",
                "--release",
                "--quiet",
                "--message-format",
                "json-render-diagnostics",
                "--color",
                "never",
            ])
            .arg("--manifest-path")
            .arg(crate_dir.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .output()
            .map_err(|source| CommandError::Cargo { program, source })?;
        bar.finish_and_clear();
        if !output.status.success() {
            return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        self.executable = executable_in(&String::from_utf8_lossy(&output.stdout), &name);
        Ok(Ok(()))
    }

    /// What runs one case in a process of its own: a program and its arguments.
    fn words(&self, case: &Case, mode: &str, arguments: &[&str]) -> Result<Vec<OsString>, String> {
        let (index, data) = case.state.as_ref().map_err(Clone::clone)?;
        if let Some(output) = self.broken.get(index) {
            return Err(format!(
                "the generated source does not compile; this is a defect of Kiln:\n{output}"
            ));
        }
        let executable = self.executable.as_ref().ok_or("nothing was compiled")?;
        let mut words = vec![executable.into(), mode.into(), index.to_string().into(), data.into()];
        words.extend(arguments.iter().map(Into::into));
        words.extend(self.to.settings().map(Into::into));
        Ok(words)
    }

    /// Prints what would run each case as a line of JSON, or why it cannot; says whether all can.
    pub(super) fn show_commands(&self, cases: &[Case], mode: &str, arguments: &[&str]) -> bool {
        let mut all_well = true;
        for case in cases {
            match self.words(case, mode, arguments) {
                Ok(words) => {
                    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                    show(&json::line(&json!({ "case": case.name, "command": words })));
                }
                Err(error) => {
                    warn(&format!("{}: {error}", case.name));
                    all_well = false;
                }
            }
        }
        all_well
    }

    /// Runs one case in a process of its own; yields the numbers it printed.
    pub(super) fn run(
        &self,
        case: &Case,
        mode: &str,
        arguments: &[&str],
        threads: Option<usize>,
    ) -> Result<BTreeMap<String, f64>, String> {
        self.output(case, mode, arguments, threads).map(|text| numbers(&text))
    }

    /// Runs one case in a process of its own; yields all that it printed.
    pub(super) fn output(
        &self,
        case: &Case,
        mode: &str,
        arguments: &[&str],
        threads: Option<usize>,
    ) -> Result<String, String> {
        let words = self.words(case, mode, arguments)?;
        let (program, arguments) = words.split_first().ok_or("nothing was compiled")?;
        let mut command = Command::new(program);
        // A case that fails says why; where in the runner is of no use to anybody.
        command.args(arguments).env("RUST_BACKTRACE", "0");
        if let Some(threads) = threads {
            command.env("KILN_NUM_THREADS", threads.to_string());
        }
        let output = command
            .output()
            .map_err(|error| format!("{} cannot be run: {error}", Path::new(program).display()))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(if message.is_empty() { output.status.to_string() } else { message });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The numbers that a runner printed.
pub(super) fn numbers(text: &str) -> BTreeMap<String, f64> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?))).collect()
}

/// The executable of a crate, in what Cargo printed of its build: a JSON object a line.
fn executable_in(messages: &str, name: &str) -> Option<PathBuf> {
    let of_crate = |message: serde_json::Value| {
        let is_it = message["reason"] == "compiler-artifact" && message["target"]["name"] == name;
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    };
    messages.lines().filter_map(|line| serde_json::from_str(line).ok()).find_map(of_crate)
}

/// The modules that rustc's output finds errors in, with what it says of each.
fn broken_modules(output: &str) -> BTreeMap<usize, String> {
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    for message in output.split("\nerror").map(|part| part.trim_start_matches("error")) {
        // Windows has another separator.
        let location = message.lines().find_map(|line| {
            line.trim_start().strip_prefix("--> src")?.strip_prefix(['/', '\\'])?.strip_prefix("case_")
        });
        let index = location
            .and_then(|rest| rest.split(['.', '/', '\\']).next())
            .and_then(|index| index.parse().ok());
        if let Some(index) = index {
            let text = found.entry(index).or_default();
            text.push_str("error");
            text.push_str(message.trim_end());
            text.push('\n');
        }
    }
    found
}

/// Gives a folder of files the name of another, which is left alone where it holds the same: somebody may be reading it. Runs beside this one do the
/// same: what is in the way, or was, may be theirs.
fn put_in_place(new: &Path, place: &Path) -> Result<(), BuildError> {
    for _ in 0..64 {
        if holds_the_same(new, place).unwrap_or(false) {
            return fs::remove_dir_all(new).map_err(BuildError::io(new));
        }
        let old = new.with_extension(format!("{}.old", std::process::id()));
        match fs::rename(place, &old) {
            Ok(()) => fs::remove_dir_all(&old).map_err(BuildError::io(&old))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(BuildError::io(place)(error)),
        }
        let is_in_the_way = |error: &std::io::Error| {
            matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty)
        };
        match fs::rename(new, place) {
            Ok(()) => return Ok(()),
            Err(error) if is_in_the_way(&error) || place.exists() => {}
            Err(error) => return Err(BuildError::io(place)(error)),
        }
    }
    let busy = std::io::Error::new(ErrorKind::AlreadyExists, "other runs keep replacing it");
    Err(BuildError::io(place)(busy))
}

/// Whether two folders have files of the same names and contents.
fn holds_the_same(one: &Path, other: &Path) -> std::io::Result<bool> {
    let names = |folder: &Path| {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<BTreeSet<_>>>()
    };
    let (own, others) = (names(one)?, names(other)?);
    if own != others {
        return Ok(false);
    }
    for name in own {
        let (mut one, mut other) = (File::open(one.join(&name))?, File::open(other.join(&name))?);
        if one.metadata()?.len() != other.metadata()?.len() || !reads_the_same(&mut one, &mut other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn reads_the_same(one: &mut File, other: &mut File) -> std::io::Result<bool> {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    loop {
        own.clear();
        others.clear();
        one.take(1 << 20).read_to_end(&mut own)?;
        other.take(1 << 20).read_to_end(&mut others)?;
        if own != others || own.is_empty() {
            return Ok(own == others);
        }
    }
}

/// `$KILN_CACHE_DIR`, or `kiln` in the user's cache folder. What is in it is run: it is no folder that others may write to, as the system's temporary one.
fn cache_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("KILN_CACHE_DIR") {
        return dir.into();
    }
    let user = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("LOCALAPPDATA").map(PathBuf::from))
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    user.unwrap_or_else(|| PathBuf::from("target")).join("kiln")
}

/// Leaves an equal file alone, so that cargo sees nothing new.
fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(BuildError::folder(parent))?;
    }
    // Whole: another run may be compiling the same crate.
    write_bytes(path, bytes)
        .map_err(|source| BuildError::Record { path: path.to_owned(), source: Box::new(source) })
}

#[cfg(test)]
mod tests {
    use super::{broken_modules, executable_in, put_in_place};
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_executable_is_where_cargo_says() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"kiln"},"executable":null}"#,
            "\nnot JSON\n",
            r#"{"reason":"compiler-artifact","target":{"name":"kiln-scratch-1"},"executable":"/t/aarch64/release/a"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executable_in(messages, "kiln-scratch-1"), Some("/t/aarch64/release/a".into()));
        assert_eq!(executable_in(messages, "kiln"), None);
        assert_eq!(executable_in("", "kiln"), None);
    }

    #[test]
    fn errors_are_told_apart_by_module() {
        let output = "error[E0425]: no such function\n   --> src/case_3.rs:125:31\n    |\n\nerror: other\n --> \
                      src/case_12/model.rs:1:1\n\nerror: other\n --> src\\case_5\\model.rs:1:1\n\nerror: could not compile `kiln-scratch`\n";
        let broken = broken_modules(output);
        assert_eq!(broken.keys().copied().collect::<Vec<_>>(), [3, 5, 12]);
        assert!(broken[&3].starts_with("error[E0425]: no such function"));
    }

    /// Who reads data keeps what it reads: the same data do not replace it.
    #[test]
    fn data_are_replaced_where_they_differ() {
        let root = tempfile::tempdir().expect("a folder");
        let (new, place) = (root.path().join("data.1"), root.path().join("data"));
        let made = |numbers: &str| {
            fs::create_dir(&new).expect("a folder");
            fs::write(new.join("model.safetensors"), numbers).expect("a file");
            put_in_place(&new, &place).expect("a place");
            assert!(!new.exists());
            fs::read_to_string(place.join("model.safetensors")).expect("a file")
        };
        let age =
            |place: &Path| fs::metadata(place.join("model.safetensors")).and_then(|file| file.modified());
        assert_eq!(made("one"), "one");
        let first = age(&place).expect("a time");
        assert_eq!(made("one"), "one");
        assert_eq!(age(&place).expect("a time"), first);
        assert_eq!(made("two"), "two");
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 1);
    }

    /// Several runs may have the same case.
    #[test]
    fn runs_beside_each_other_put_data_in_one_place() {
        let root = tempfile::tempdir().expect("a folder");
        let place = root.path().join("data");
        std::thread::scope(|scope| {
            for run in 0..4 {
                let (root, place) = (root.path(), &place);
                scope.spawn(move || {
                    for round in 0..50 {
                        let new = root.join(format!("data{run}.new"));
                        fs::create_dir(&new).expect("a folder");
                        fs::write(new.join("model.safetensors"), format!("{run} {round}")).expect("a file");
                        put_in_place(&new, place).expect("a place");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 1);
    }
}
