//! Local copies of datasets of Hugging Face.

use crate::cache;
use crate::dataset::{SqliteDataset, SqliteDatasetError, SqliteDatasetStorage};
use std::fmt::Write;
use std::path::PathBuf;

/// A dataset of Hugging Face could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImporterError {
    /// Not the name of a dataset or of a subset.
    #[error(
        "{0:?} cannot be a dataset or a subset of Hugging Face: such a name has letters, digits, and some of `_-.+/`"
    )]
    Name(String),
    /// There is no local copy. Nothing is ever downloaded; the message has a program that makes the copy.
    #[error(
        "there is no local copy of the dataset {name:?}, which should be\n    {}\nThis program makes it (python3, `pip install datasets`):\n\n{program}",
        path.display()
    )]
    Missing {
        /// The dataset.
        name: String,
        /// Where the copy should be.
        path: PathBuf,
        /// A program in Python that makes it.
        program: String,
    },
    /// The copy could not be read.
    #[error(transparent)]
    SqliteDataset(#[from] SqliteDatasetError),
}

/// Loads a dataset of Hugging Face from a local copy: a SQLite database with a table for each split, as
/// [`SqliteDataset`] reads it.
///
/// Nothing is downloaded and no Python is run. Copies that Burn made are found where it made them; for a dataset without a copy, the error says where it should be, and has a program that makes it.
#[derive(Clone, Debug)]
pub struct HuggingfaceDatasetLoader {
    name: String,
    subset: Option<String>,
    base_dir: Option<PathBuf>,
    /// Further arguments of Python's `load_dataset`.
    arguments: Vec<String>,
}

impl HuggingfaceDatasetLoader {
    /// A dataset by its name (`mnist`, `owner/name`).
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), subset: None, base_dir: None, arguments: Vec::new() }
    }

    /// One of the dataset's subsets.
    #[must_use]
    pub fn with_subset(mut self, subset: &str) -> Self {
        self.subset = Some(subset.to_owned());
        self
    }

    /// The folder of the local copies; without it, `$KILN_DATASETS`, else `~/.cache/burn-dataset`.
    #[must_use]
    pub fn with_base_dir(mut self, base_dir: &str) -> Self {
        self.base_dir = Some(PathBuf::from(base_dir));
        self
    }

    /// That the dataset is open only to some: the program that makes the copy logs in. The token itself is not used and
    /// nowhere kept; `hf auth login` stores it.
    #[must_use]
    pub fn with_huggingface_token(self, _huggingface_token: &str) -> Self {
        self.argument("token=True".to_owned())
    }

    /// The folder in which the program that makes the copy keeps what it downloads.
    #[must_use]
    pub fn with_huggingface_cache_dir(self, huggingface_cache_dir: &str) -> Self {
        self.argument(format!("cache_dir={huggingface_cache_dir:?}"))
    }

    /// The folder of files that were downloaded by hand, for the program that makes the copy.
    #[must_use]
    pub fn with_huggingface_data_dir(self, huggingface_data_dir: &str) -> Self {
        self.argument(format!("data_dir={huggingface_data_dir:?}"))
    }

    /// Whether the program that makes the copy may run code that comes with the dataset.
    #[must_use]
    pub fn with_trust_remote_code(self, trust_remote_code: bool) -> Self {
        match trust_remote_code {
            true => self.argument("trust_remote_code=True".to_owned()),
            false => self,
        }
    }

    /// Without effect, since no Python is run.
    #[must_use]
    pub fn with_use_python_venv(self, _use_python_venv: bool) -> Self {
        self
    }

    fn argument(mut self, argument: String) -> Self {
        self.arguments.push(argument);
        self
    }

    /// A split of the dataset (`train`, `test`, …).
    ///
    /// # Errors
    /// When there is no local copy, or it has no such split; see [`SqliteDataset::from_db_file`].
    pub fn dataset<I>(self, split: &str) -> Result<SqliteDataset<I>, ImporterError> {
        Ok(SqliteDataset::from_db_file(self.db_file()?, split)?)
    }

    /// The local copy.
    ///
    /// # Errors
    /// When there is none.
    pub fn db_file(self) -> Result<PathBuf, ImporterError> {
        let mut file = checked(&self.name)?;
        if let Some(subset) = &self.subset {
            write!(file, "-{}", checked(subset)?).expect("a string takes all text");
        }
        let path = SqliteDatasetStorage::base_dir(self.base_dir.clone()).join(format!("{file}.db"));
        if path.is_file() {
            return Ok(path);
        }
        let program = self.program(&path);
        Err(ImporterError::Missing { name: self.name, path, program })
    }

    /// Makes the copy in Python. Images stay the files that they are, in columns like `image_bytes`.
    fn program(&self, path: &std::path::Path) -> String {
        let subset = self.subset.iter().map(|subset| format!("{subset:?}"));
        let arguments: Vec<String> = [format!("{:?}", self.name)]
            .into_iter()
            .chain(subset)
            .chain(self.arguments.iter().cloned())
            .collect();
        format!(
            r#"import datasets, os, sqlite3
path = {path:?}
os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
splits = datasets.load_dataset({arguments})
part = path + ".part"
if os.path.exists(part):
    os.remove(part)
db = sqlite3.connect(part)
for split, data in splits.items():
    for name, feature in data.features.items():
        if isinstance(feature, (datasets.Image, datasets.Audio)):
            data = data.cast_column(name, type(feature)(decode=False))
    data = data.flatten()
    names = ", ".join('"' + name.replace(".", "_") + '"' for name in data.column_names)
    db.execute(f'CREATE TABLE "{{split}}" (row_id INTEGER PRIMARY KEY, {{names}})')
    marks = ", ".join("?" * len(data.column_names))
    db.executemany(f'INSERT INTO "{{split}}" ({{names}}) VALUES ({{marks}})', (tuple(row.values()) for row in data))
db.commit()
db.close()
os.replace(part, path)
"#,
            arguments = arguments.join(", ")
        )
    }
}

/// What a name becomes in the copy's. Other characters than these are in no name, and could not stand in a program.
fn checked(name: &str) -> Result<String, ImporterError> {
    let allowed = |c: char| c.is_alphanumeric() || "_-.+/".contains(c);
    let file = cache::file_name(name);
    if file.is_empty() || !name.chars().all(allowed) {
        return Err(ImporterError::Name(name.to_owned()));
    }
    Ok(file)
}
