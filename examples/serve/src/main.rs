//! A web service that reads handwritten digits; requests that come at the same time share forward passes.
//!
//! ```sh
//! cargo run --release -p serve -- 127.0.0.1:8080
//! curl http://127.0.0.1:8080/digits --json '{"images": [[0, 0, 5, 13, …]]}'   # 64 pixels from 0 to 16 an image
//! curl http://127.0.0.1:8080/stats
//! ```
//!
//! `build.rs` compiled `fixtures/digits/model.onnx` to the source that is included below. `service.rs` is the web's side: it turns
//! requests into tensors, and errors into statuses.

mod service;
#[cfg(test)]
mod tests;

use kiln::backend::NdArray;
use kiln::serve::{DynamicBatcher, DynamicBatcherConfig, ServeError};
use kiln::tensor::Tensor;
use kiln::tensor::activation::softmax;
use std::error::Error;
use std::sync::Arc;
use tokio::net::TcpListener;

mod digits {
    include!(concat!(env!("OUT_DIR"), "/model/model.rs"));
}

type B = NdArray;
/// From images `[rows, 1, 8, 8]` to probabilities of the ten digits.
type Classifier = DynamicBatcher<Tensor<B, 4>, Tensor<B, 2>>;

/// The network behind a batcher.
fn classifier(config: &DynamicBatcherConfig) -> Result<Classifier, ServeError> {
    let model = digits::Model::<B>::default();
    config.init(move |images| softmax(model.forward(images), 1))
}

// One thread reads and writes what clients say; the batcher has its own for the model.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let batcher = Arc::new(classifier(&DynamicBatcherConfig::new().with_max_batch_size(64))?);
    let listener = TcpListener::bind(&address).await?;
    println!("http://{}/digits", listener.local_addr()?);
    axum::serve(listener, service::router(batcher)).await?;
    Ok(())
}
