//! Datasets in SQLite, as Burn has them.
//!
//! `burn-datasets write FILE` writes one with Burn. `burn-datasets check FILE` lets Burn read one.

mod rows;

use burn_dataset::{Dataset, SqliteDataset, SqliteDatasetStorage};
use rows::{Row, SPLITS, row};
use std::process::ExitCode;

fn write(file: &str) {
    let mut writer = SqliteDatasetStorage::from_file(file).writer::<Row>(true).expect("a writer");
    for (split, rows) in SPLITS {
        for n in rows {
            writer.write(split, &row(n)).expect("a row can be written");
        }
    }
    writer.set_completed().expect("the file can be written");
}

fn check(file: &str) {
    for (split, rows) in SPLITS {
        let dataset = SqliteDataset::<Row>::from_db_file(file, split).expect("Burn opens the file");
        assert_eq!(dataset.len(), rows.len(), "{split}");
        for (index, n) in rows.enumerate() {
            assert_eq!(dataset.get(index), Some(row(n)), "{split}, row {index}");
        }
    }
    println!("{file}: Burn reads it");
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", file] => write(file),
        ["check", file] => check(file),
        _ => {
            eprintln!("usage: burn-datasets write|check FILE");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
