//! Every file under `tests/passes`: a graph, the passes to run, and the graph that must come out.
//!
//! ```text
//! // What this shows.
//! // run: simplify, raise          (or `all` for the whole pipeline; `trainable` among them keeps what training needs,
//!                                   `f16` computes in that dtype)
//! // sizes: batch=2, seq=5         (of symbols, to compute both graphs with)
//! graph "before" { … }
//! ----
//! graph "after" { … }
//! ```
//!
//! Both graphs must also compute the same. `KILN_BLESS=1 cargo test -p kiln-importer --test passes` writes what comes out
//! into the files; read the difference before it is committed. The test command never sets the variable.

use kiln_importer::interpreter::run;
use kiln_importer::ir::{Dim, Graph, Symbol, TensorType};
use kiln_importer::passes::{Options, named, optimize};
use kiln_types::{Bytes, DType, FloatDType, TensorData};
use std::path::{Path, PathBuf};

const SEPARATOR: &str = "\n----\n";

struct Case {
    name: String,
    path: PathBuf,
    text: String,
}

impl Case {
    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
            .expect("the folder of cases")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "kiln"))
            .collect();
        paths.sort();
        let read = |path: PathBuf| Self {
            name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path).expect("a readable case"),
            path,
        };
        paths.into_iter().map(read).collect()
    }

    /// The items after `// key:`.
    fn header(&self, key: &str) -> Vec<&str> {
        let prefix = format!("// {key}:");
        let line = self.text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
    }

    fn size_of(&self, symbol: &Symbol) -> Option<Dim> {
        let sizes = self.header("sizes");
        let size = sizes.iter().find_map(|item| item.strip_prefix(&**symbol)?.strip_prefix('='))?;
        Some(Dim::from(size.parse::<i64>().expect("a size")))
    }

    /// What is wrong; nothing when all is well.
    fn check(&self, bless: bool) -> Result<(), String> {
        let (source, expected) = self.text.split_once(SEPARATOR).unwrap_or((&self.text, ""));
        let before = Graph::parse(source).map_err(|error| error.to_string())?;
        verify(&before, "as written")?;
        let mut after = before.clone();
        let passes = self.header("run");
        let half = passes.contains(&"f16");
        let options = Options {
            trainable: passes.contains(&"trainable"),
            float_dtype: half.then_some(FloatDType::F16),
        };
        for name in passes {
            match (name, named(name, &options)) {
                ("trainable" | "f16", _) => {}
                ("all", _) => drop(optimize(&mut after, &options)),
                (_, Some(pass)) => drop(pass.run(&mut after)),
                (_, None) => return Err(format!("there is no pass `{name}`")),
            }
            verify(&after, name)?;
        }
        self.compute(&before, &after, if half { 1e-2 } else { 1e-5 })?;
        let actual = after.to_text();
        if bless {
            let text = format!("{}{SEPARATOR}{actual}", source.trim_end());
            return std::fs::write(&self.path, text).map_err(|error| error.to_string());
        }
        if actual == expected { Ok(()) } else { Err(format!("expected\n{expected}\ncame out\n{actual}")) }
    }

    fn compute(&self, before: &Graph, after: &Graph, slack: f64) -> Result<(), String> {
        let inputs: Vec<TensorData> =
            before.inputs.iter().zip(1..).map(|(&id, seed)| self.sample(before.ty(id), seed)).collect();
        let expected = run(before, &inputs).map_err(|error| format!("as written: {error}"))?;
        let actual = run(after, &inputs).map_err(|error| format!("optimized: {error}"))?;
        for (actual, expected) in actual.into_iter().zip(expected) {
            if actual.shape != expected.shape || actual.dtype != expected.dtype {
                return Err(format!("{actual:?} came out, not {expected:?}"));
            }
            let close = |(a, b): (f64, f64)| a == b || (a - b).abs() <= slack + 10.0 * slack * b.abs();
            let numbers = |data: &TensorData| -> Vec<f64> { data.scalars().map(|x| x.to_f64()).collect() };
            if !numbers(&actual).into_iter().zip(numbers(&expected)).all(close) {
                return Err("the graphs compute different numbers".to_owned());
            }
        }
        Ok(())
    }

    /// Numbers between -1 and 1 that look random.
    fn sample(&self, ty: &TensorType, seed: u64) -> TensorData {
        let size = |dim: &Dim| {
            let size = dim.substitute(&|symbol| self.size_of(symbol)).as_size();
            size.unwrap_or_else(|| panic!("{}: `// sizes:` lacks one of {dim}", self.name))
        };
        let shape: Vec<usize> = ty.dims.iter().map(size).collect();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f32 / (1u32 << 30) as f32 - 1.0
        };
        let count: usize = shape.iter().product();
        match ty.dtype {
            DType::Bool => {
                let bytes = (0..count).map(|_| u8::from(next() > 0.0)).collect();
                TensorData { bytes: Bytes::from_vec(bytes), shape, dtype: DType::Bool }
            }
            DType::I64 => TensorData::new((0..count).map(|_| (next() * 4.0) as i64).collect(), shape),
            _ => TensorData::new((0..count).map(|_| next()).collect::<Vec<f32>>(), shape),
        }
    }
}

fn verify(graph: &Graph, when: &str) -> Result<(), String> {
    let list = |violations: Vec<kiln_importer::ir::Violation>| {
        violations.iter().map(|violation| format!("\n  {violation}")).collect::<String>()
    };
    graph.verify().map_err(|violations| format!("{when}:{}", list(violations)))
}

#[test]
fn passes_do_what_the_files_say() {
    let bless = std::env::var_os("KILN_BLESS").is_some();
    let cases = Case::all();
    assert!(!cases.is_empty());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", case.name, case.check(bless).err()?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
