//! Scores a table of handwritten digits on a Ballista cluster, by a network that `build.rs` compiled.
//!
//! Each process of the cluster is this program, so that each has the function, made of the same model. In as many terminals, on as many machines (which see the
//! same files):
//!
//! ```sh
//! cargo run --release -- scheduler 50050
//! cargo run --release -- executor 50050 50051
//! cargo run --release -- executor 50050 50061
//! cargo run --release -- client 50050 /tmp/digits
//! ```
//!
//! The client writes the table to a folder, a file for each part, and asks how many digits of each label are read right. `scripts/ballista.sh` does all of it.

#[path = "../../scoring/src/digits.rs"]
mod digits;

use ballista::prelude::SessionContextExt;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use digits::{BY_LABEL, HELD_OUT, RECORD, read_digit};
use std::error::Error;
use std::sync::Arc;

/// Files that the table is written to, which executors read apart.
const FILES: usize = 4;

/// Plans queries, in sessions that know the function.
async fn scheduler(port: u16) -> Result<(), Box<dyn Error>> {
    let function = Arc::new(read_digit()?);
    let config = SchedulerConfig {
        bind_port: port,
        override_session_builder: Some(Arc::new(move |config: SessionConfig| {
            let mut state = SessionStateBuilder::new().with_default_features().with_config(config).build();
            datafusion::execution::FunctionRegistry::register_udf(&mut state, function.clone())?;
            Ok(state)
        })),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    Ok(start_server(cluster, format!("127.0.0.1:{port}").parse()?, Arc::new(config)).await?)
}

/// Computes parts of queries.
async fn executor(scheduler: u16, port: u16) -> Result<(), Box<dyn Error>> {
    let mut functions = BallistaFunctionRegistry::default();
    let function = read_digit()?;
    functions.scalar_functions.insert(function.name().to_owned(), Arc::new(function));
    let config = ExecutorProcessConfig {
        port,
        grpc_port: port + 1,
        scheduler_host: "127.0.0.1".to_owned(),
        scheduler_port: scheduler,
        vcores: 1,
        override_function_registry: Some(Arc::new(functions)),
        ..ExecutorProcessConfig::default()
    };
    Ok(start_executor_process(Arc::new(config)).await?)
}

/// Writes the table to a folder that every process of the cluster sees.
async fn write_table(folder: &str) -> Result<(), Box<dyn Error>> {
    let rows = (HELD_OUT.len() / RECORD).div_ceil(FILES);
    for (n, images) in HELD_OUT.chunks(rows * RECORD).enumerate() {
        let frame = SessionContext::new().read_batch(digits::table(n * rows, images)?)?;
        let options = DataFrameWriteOptions::new().with_single_file_output(true);
        frame.write_parquet(&format!("{folder}/{n}.parquet"), options, None).await?;
    }
    Ok(())
}

/// Asks the cluster.
async fn client(scheduler: u16, folder: &str, query: Option<&str>) -> Result<(), Box<dyn Error>> {
    write_table(folder).await?;
    let context = SessionContext::remote(&format!("df://127.0.0.1:{scheduler}")).await?;
    context.register_parquet("digits", folder, ParquetReadOptions::default()).await?;
    context.register_udf(read_digit()?);
    let result = context.sql(query.unwrap_or(BY_LABEL)).await?.collect().await?;
    println!("{}", pretty_format_batches(&result)?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["scheduler", port] => scheduler(port.parse()?).await,
        ["executor", scheduler, port] => executor(scheduler.parse()?, port.parse()?).await,
        ["client", scheduler, folder] => client(scheduler.parse()?, folder, None).await,
        ["client", scheduler, folder, query] => client(scheduler.parse()?, folder, Some(query)).await,
        _ => Err("usage: cluster scheduler PORT | executor SCHEDULER_PORT PORT | client SCHEDULER_PORT FOLDER [QUERY]".into()),
    }
}
