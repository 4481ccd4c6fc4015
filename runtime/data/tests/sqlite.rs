//! Datasets in SQLite databases: what is written is read, Burn's layouts are read, and broken files are refused.
#![cfg(feature = "sqlite")]

use kiln_data::dataloader::DataLoaderBuilder;
use kiln_data::dataloader::batcher::Batcher;
use kiln_data::dataset::{
    Dataset, HuggingfaceDatasetLoader, ImporterError, SqliteDataset, SqliteDatasetError,
    SqliteDatasetStorage, SqliteDatasetWriter,
};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[path = "../../../tests/burn-datasets/src/rows.rs"]
mod rows;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    name: String,
    place: (f32, f32),
    tags: Vec<String>,
}

fn point(n: usize) -> Point {
    Point { name: format!("point {n}"), place: (n as f32, -0.5), tags: vec!["a".into(); n % 3] }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn written(folder: &Path, items: usize) -> PathBuf {
    let path = folder.join("deep/er/points.db");
    let mut writer = SqliteDatasetWriter::new(&path, false).expect("a writer");
    for n in 0..items {
        assert_eq!(writer.write("train", &point(n)).expect("written"), n);
    }
    assert_eq!(writer.write("test", &point(77)).expect("written"), 0);
    assert!(!path.exists(), "an unfinished dataset has no file");
    writer.set_completed().expect("complete");
    path
}

#[test]
fn what_is_written_is_read() {
    let folder = folder();
    let path = written(folder.path(), 10);
    let train = SqliteDataset::<Point>::from_db_file(&path, "train").expect("a split");
    assert_eq!(train.iter().collect::<Vec<_>>(), (0..10).map(point).collect::<Vec<_>>());
    assert_eq!((train.len(), train.get(10), train.get(usize::MAX)), (10, None, None));
    let test = SqliteDatasetStorage::from_file(&path).reader::<Point>("test").expect("a split");
    assert_eq!((test.len(), test.get(0)), (1, Some(point(77))));
    assert_eq!(fs::read_dir(path.parent().expect("a folder")).expect("entries").count(), 1);
}

#[test]
fn a_file_is_replaced_only_on_request() {
    let folder = folder();
    let path = written(folder.path(), 3);
    let error = SqliteDatasetWriter::<Point>::new(&path, false).err().expect("the file exists");
    assert!(matches!(&error, SqliteDatasetError::FileExists(file) if *file == path), "{error}");
    // Left unfinished, the old one stays.
    SqliteDatasetWriter::new(&path, true).expect("a writer").write("train", &point(0)).expect("written");
    let len = || SqliteDataset::<Point>::from_db_file(&path, "train").expect("a split").len();
    assert_eq!(len(), 3);
    let mut writer = SqliteDatasetWriter::new(&path, true).expect("a writer");
    writer.write("train", &point(0)).expect("written");
    writer.set_completed().expect("complete");
    assert_eq!(len(), 1);
    writer.set_completed().expect("again");
    let error = writer.write("train", &point(0)).expect_err("complete");
    assert!(matches!(error, SqliteDatasetError::Completed(_)), "{error}");
    // Nor is one that came to be in the meantime.
    let late = folder.path().join("late.db");
    let mut writer = SqliteDatasetWriter::<Point>::new(&late, false).expect("a writer");
    fs::write(&late, "mine").expect("a file");
    writer.write("train", &point(0)).expect("written");
    for _ in 0..2 {
        assert!(matches!(writer.set_completed(), Err(SqliteDatasetError::FileExists(_))));
        assert_eq!(fs::read(&late).expect("the file"), b"mine");
    }
    // What was written is not lost by that.
    let error = writer.write("train", &point(0)).expect_err("all is written");
    assert!(matches!(error, SqliteDatasetError::Completed(_)), "{error}");
    fs::rename(&late, folder.path().join("other.db")).expect("moved");
    writer.set_completed().expect("complete");
    assert_eq!(SqliteDataset::<Point>::from_db_file(&late, "train").expect("a split").len(), 1);
}

#[test]
fn several_threads_write() {
    let folder = folder();
    let path = folder.path().join("points.db");
    let mut writer = SqliteDatasetWriter::new(&path, false).expect("a writer");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let writer = &writer;
            scope.spawn(move || {
                for n in 0..25 {
                    writer.write("train", &(thread * 25 + n)).expect("written");
                }
            });
        }
    });
    writer.set_completed().expect("complete");
    let mut items: Vec<usize> =
        SqliteDataset::from_db_file(&path, "train").expect("a split").iter().collect();
    items.sort_unstable();
    assert_eq!(items, (0..100).collect::<Vec<_>>());
}

struct Names;

impl<B: Backend> Batcher<B, Point, Vec<String>> for Names {
    fn batch(&self, items: Vec<Point>, _device: &B::Device) -> Vec<String> {
        items.into_iter().map(|item| item.name).collect()
    }
}

#[test]
fn several_workers_read() {
    let folder = folder();
    let path = written(folder.path(), 101);
    let epoch = |workers| {
        let dataset = SqliteDataset::<Point>::from_db_file(&path, "train").expect("a split");
        let loader =
            DataLoaderBuilder::<NdArray, _, _>::new(Names).batch_size(3).shuffle(5).num_workers(workers);
        loader.build(dataset).iter().flatten().collect::<Vec<String>>()
    };
    let expected = epoch(0);
    assert_eq!(expected.len(), 101);
    assert_eq!(epoch(4), expected);
}

/// A database made by statements.
fn made(folder: &Path, statements: &str) -> PathBuf {
    let path = folder.join("made.db");
    Connection::open(&path).expect("a database").execute_batch(statements).expect("statements");
    path
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Row {
    column_str: String,
    column_bytes: Vec<u8>,
    column_int: i64,
    column_bool: bool,
    column_float: f32,
    column_maybe: Option<u8>,
}

/// As Burn's importer lays tables out.
const BURN: &str = "CREATE TABLE train (column_str TEXT, column_bytes BLOB, column_int INTEGER, column_bool BOOLEAN, \
    column_float FLOAT, column_maybe INTEGER, ignored TEXT, row_id INTEGER NOT NULL, PRIMARY KEY (row_id)); \
    INSERT INTO train VALUES ('HI1', x'55a2', 1, 1, 1.5, NULL, 'x', 1), ('HI2', x'', -7, 0, 2, 3, NULL, 2);";

#[test]
fn columns_are_fields() {
    let folder = folder();
    let dataset = SqliteDataset::<Row>::from_db_file(made(folder.path(), BURN), "train").expect("a split");
    let rows: Vec<Row> = dataset.iter().collect();
    let row = |text: &str, bytes: &[u8], int, bool, float, maybe| Row {
        column_str: text.into(),
        column_bytes: bytes.into(),
        column_int: int,
        column_bool: bool,
        column_float: float,
        column_maybe: maybe,
    };
    let expected = [row("HI1", &[0x55, 0xa2], 1, true, 1.5, None), row("HI2", &[], -7, false, 2.0, Some(3))];
    assert_eq!(rows, expected);
}

/// A database whose split `train` has one item, of these bytes of MessagePack.
fn one_item(path: &Path, item: &[u8]) {
    let connection = Connection::open(path).expect("a database");
    let table = "CREATE TABLE train (row_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, item BLOB NOT NULL)";
    connection.execute(table, []).expect("a table");
    connection.execute("INSERT INTO train (item) VALUES (?1)", [item]).expect("a row");
}

#[test]
fn items_are_not_deep() {
    #[derive(Clone, Debug, Deserialize)]
    struct Tree(Vec<Tree>);
    fn levels(tree: &Tree) -> usize {
        1 + tree.0.first().map_or(0, levels)
    }
    let folder = folder();
    for (depth, expected) in [(40, Some(41)), (900, None)] {
        let path = folder.path().join(format!("{depth}.db"));
        one_item(&path, &[vec![0x91; depth], vec![0x90]].concat());
        let dataset = SqliteDataset::<Tree>::from_db_file(&path, "train").expect("a split");
        let item = dataset.try_get(0).ok().flatten();
        assert_eq!(item.as_ref().map(levels), expected);
    }
}

#[test]
fn items_may_be_arrays_of_fields() {
    // Burn writes structs as arrays of their fields' values.
    let folder = folder();
    let path = folder.path().join("burn.db");
    let item = b"\x93\xa1p\x92\xca\x3f\x80\x00\x00\xca\x40\x00\x00\x00\x91\xa1t";
    one_item(&path, item);
    let dataset = SqliteDataset::<Point>::from_db_file(&path, "train").expect("a split");
    assert_eq!(dataset.get(0), Some(Point { name: "p".into(), place: (1.0, 2.0), tags: vec!["t".into()] }));
}

fn refused(path: &Path, split: &str) -> SqliteDatasetError {
    SqliteDataset::<Point>::from_db_file(path, split).err().expect("an error")
}

#[test]
fn splits_that_are_no_tables_are_refused() {
    let folder = folder();
    let path = made(
        folder.path(),
        "CREATE TABLE train (row_id INTEGER PRIMARY KEY, item BLOB); CREATE TABLE \"a b\" (x);
         CREATE VIEW endless AS WITH RECURSIVE n (row_id) AS (SELECT 1 UNION ALL SELECT row_id + 1 FROM n)
             SELECT row_id, x'00' AS item FROM n;",
    );
    for (split, expected) in [
        ("test", "there is no split \"test\", but \"train\""),
        ("endless", "there is no split \"endless\", but \"train\""),
        ("train\" WHERE 1; --", "is no name of a split"),
        ("sqlite_master", "is no name of a split"),
        ("", "is no name of a split"),
    ] {
        let error = refused(&path, split).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let writer = SqliteDatasetWriter::new(folder.path().join("new.db"), false).expect("a writer");
    let error = writer.write("x\"; DROP TABLE y; --", &1).expect_err("no name");
    assert!(matches!(error, SqliteDatasetError::SplitName(_)), "{error}");
}

#[test]
fn tables_of_other_layouts_are_refused() {
    for (statements, expected) in [
        ("CREATE TABLE train (item BLOB)", "no column `row_id INTEGER PRIMARY KEY`"),
        ("CREATE TABLE train (row_id INTEGER, item BLOB)", "no column `row_id INTEGER PRIMARY KEY`"),
        ("CREATE TABLE train (row_id TEXT PRIMARY KEY, item BLOB)", "no column `row_id INTEGER PRIMARY KEY`"),
        ("CREATE TABLE train (row_id INTEGER PRIMARY KEY)", "no column but `row_id`"),
        (
            "CREATE TABLE train (row_id INTEGER PRIMARY KEY, item BLOB); INSERT INTO train VALUES (1, x''), (4611686018427387904, x'')",
            "without gaps",
        ),
        (
            "CREATE TABLE train (row_id INTEGER PRIMARY KEY, item BLOB); INSERT INTO train VALUES (-5, x''), (2, x'')",
            "without gaps",
        ),
    ] {
        let folder = folder();
        let error = refused(&made(folder.path(), statements), "train").to_string();
        assert!(error.contains("the table \"train\" is no dataset") && error.contains(expected), "{error}");
    }
}

#[test]
fn broken_rows_are_named() {
    let folder = folder();
    let path = made(
        folder.path(),
        "CREATE TABLE train (row_id INTEGER PRIMARY KEY, item BLOB); INSERT INTO train VALUES (1, x'c1'), (3, 'text');",
    );
    let dataset = SqliteDataset::<Point>::from_db_file(&path, "train").expect("a split");
    for (index, expected) in [(0, "row 1 of \"train\""), (1, "there is none"), (2, "row 3 of \"train\"")] {
        let error = dataset.try_get(index).expect_err("a broken row").to_string();
        assert!(error.contains("made.db") && error.contains(expected), "{error}");
    }
    let panic =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dataset.get(0))).expect_err("a panic");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.starts_with("SqliteDataset: "), "{message}");
}

#[test]
fn computed_columns_are_not_read() {
    let folder = folder();
    let path = made(
        folder.path(),
        "CREATE TABLE train (row_id INTEGER PRIMARY KEY, a INTEGER, b BLOB AS (zeroblob(900000000)));
         INSERT INTO train (a) VALUES (7);",
    );
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    struct A {
        a: u8,
    }
    let dataset = SqliteDataset::<A>::from_db_file(&path, "train").expect("a split");
    assert_eq!(dataset.get(0), Some(A { a: 7 }));
}

#[test]
fn other_files_are_refused() {
    let folder = folder();
    let error = refused(&folder.path().join("none.db"), "train");
    assert!(matches!(error, SqliteDatasetError::Io { .. }), "{error}");
    let path = folder.path().join("text.db");
    fs::write(&path, "no database at all, but long enough to have a head ".repeat(10)).expect("a file");
    assert!(matches!(refused(&path, "train"), SqliteDatasetError::Sql { .. }));
}

/// Every byte of a database is changed in turn; whatever that does, it is no panic and takes no endless time.
#[test]
fn damaged_databases_do_no_harm() {
    let folder = folder();
    let path = written(folder.path(), 40);
    let bytes = fs::read(&path).expect("the file");
    let damaged = folder.path().join("damaged.db");
    // Heads of pages and of the file come at their beginnings, cells at their ends.
    for (at, _) in bytes.iter().enumerate().filter(|(at, _)| at % 4096 < 128 || at % 37 == 0) {
        for value in [0, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            fs::write(&damaged, changed).expect("a file");
            let Ok(dataset) = SqliteDataset::<Point>::from_db_file(&damaged, "train") else { continue };
            let rows = dataset.len();
            assert!(rows <= bytes.len() / 5, "byte {at}: {rows} rows");
            (0..rows.min(50)).for_each(|index| drop(dataset.try_get(index)));
        }
    }
}

#[test]
fn hugging_face_is_a_local_copy() {
    let folder = folder();
    let base = folder.path().to_str().expect("a path");
    fs::rename(made(folder.path(), BURN), folder.path().join("someonerows-small.db")).expect("renamed");
    let loader = || HuggingfaceDatasetLoader::new("someone/rows").with_base_dir(base);
    let dataset: SqliteDataset<Row> = loader().with_subset("small").dataset("train").expect("a copy");
    assert_eq!(dataset.len(), 2);
    let error = loader().with_subset("small").dataset::<Row>("test").err().expect("no such split");
    assert!(matches!(error, ImporterError::SqliteDataset(SqliteDatasetError::NoSplit { .. })), "{error}");

    let missing = loader()
        .with_huggingface_token("secret")
        .with_huggingface_cache_dir("/some where")
        .dataset::<Row>("train")
        .err()
        .expect("no copy")
        .to_string();
    let path = folder.path().join("someonerows.db");
    for part in [
        format!("\n    {}\n", path.display()),
        format!("path = {path:?}\n"),
        "datasets.load_dataset(\"someone/rows\", token=True, cache_dir=\"/some where\")\n".to_owned(),
    ] {
        assert!(missing.contains(&part), "{missing}");
    }
    assert!(!missing.contains("secret"));
    for name in ["", "..", "a\"); import os; (\"", "a\nb"] {
        let error = HuggingfaceDatasetLoader::new(name).dataset::<Row>("train").err().expect("no name");
        assert!(matches!(error, ImporterError::Name(_)), "{error}");
    }
}

/// `scripts/burn_compat.sh` has the real Burn write the fixture, and read what this test leaves.
#[test]
fn burn_and_kiln_read_each_others_files() {
    use rows::{Row, SPLITS, row};
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/burn-datasets/rows.sqlite");
    let ours = Path::new(env!("CARGO_TARGET_TMPDIR")).join("burn-datasets/rows.sqlite");
    let mut writer = SqliteDatasetWriter::new(&ours, true).expect("a writer");
    for (split, rows) in SPLITS {
        for n in rows {
            writer.write(split, &row(n)).expect("written");
        }
    }
    writer.set_completed().expect("complete");
    for file in [fixture, ours] {
        for (split, rows) in SPLITS {
            let dataset = SqliteDataset::<Row>::from_db_file(&file, split).expect("a split");
            assert_eq!(dataset.iter().collect::<Vec<_>>(), rows.map(row).collect::<Vec<_>>());
        }
    }
}
