//! The service: routes, requests and responses, and the status of each error.

use crate::{B, Classifier};
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use kiln::serve::ServeError;
use kiln::tensor::backend::ExecutionError;
use kiln::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const PIXELS: usize = 8 * 8;
const CLASSES: usize = 10;
/// How bright a pixel can be.
const BRIGHTEST: f32 = 16.0;

/// All routes, over a batcher.
pub fn router(batcher: Arc<Classifier>) -> Router {
    Router::new().route("/digits", post(read_digits)).route("/stats", get(read_stats)).with_state(batcher)
}

#[derive(Deserialize)]
struct Images {
    /// Pixels of each, row by row, from 0 to 16.
    images: Vec<Vec<f32>>,
}

#[derive(Serialize)]
struct Digits {
    /// The likeliest digit of each image.
    digits: Vec<usize>,
    /// For each image the probability of each digit.
    probabilities: Vec<Vec<f32>>,
}

/// If the client goes away this future is dropped, and a request that still waits is not computed.
async fn read_digits(
    State(batcher): State<Arc<Classifier>>,
    images: Result<Json<Images>, JsonRejection>,
) -> Result<Json<Digits>, RequestError> {
    let Json(Images { images }) = images?;
    let output = batcher.call_async(to_tensor(&images)?).await?;
    let probabilities: Vec<f32> = output.into_data_async().await?.iter().collect();
    let probabilities: Vec<Vec<f32>> = probabilities.chunks(CLASSES).map(<[f32]>::to_vec).collect();
    let digits = probabilities.iter().map(|row| likeliest(row)).collect();
    Ok(Json(Digits { digits, probabilities }))
}

/// Pixels as the network was trained with them, from 0 to 1.
fn to_tensor(images: &[Vec<f32>]) -> Result<Tensor<B, 4>, RequestError> {
    if let Some(other) = images.iter().find(|image| image.len() != PIXELS) {
        return Err(RequestError::Input(format!("an image has {} pixels, not {PIXELS}", other.len())));
    }
    let mut pixels = images.iter().flatten();
    if let Some(pixel) = pixels.find(|pixel| !(0.0..=BRIGHTEST).contains(*pixel)) {
        return Err(RequestError::Input(format!("a pixel is {pixel}, not from 0 to {BRIGHTEST}")));
    }
    let pixels: Vec<f32> = images.iter().flatten().map(|pixel| pixel / BRIGHTEST).collect();
    Ok(Tensor::from_data(TensorData::new(pixels, [images.len(), 1, 8, 8]), &Default::default()))
}

fn likeliest(probabilities: &[f32]) -> usize {
    let digits = probabilities.iter().enumerate();
    digits.max_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(digit, _)| digit)
}

#[derive(Serialize)]
struct Stats {
    requests: u64,
    mean_batch_size: f64,
    mean_queue_delay_us: u128,
    waiting_rows: usize,
    refused: u64,
    failed: u64,
}

async fn read_stats(State(batcher): State<Arc<Classifier>>) -> Json<Stats> {
    let stats = batcher.stats();
    Json(Stats {
        requests: stats.requests,
        mean_batch_size: stats.mean_batch_size(),
        mean_queue_delay_us: stats.mean_queue_delay().as_micros(),
        waiting_rows: stats.waiting_rows,
        refused: stats.refused,
        failed: stats.failed,
    })
}

/// Why a request has no answer.
enum RequestError {
    Input(String),
    Serve(ServeError),
    Device(ExecutionError),
}

impl From<JsonRejection> for RequestError {
    fn from(error: JsonRejection) -> Self {
        Self::Input(error.body_text())
    }
}

impl From<ServeError> for RequestError {
    fn from(error: ServeError) -> Self {
        Self::Serve(error)
    }
}

impl From<ExecutionError> for RequestError {
    fn from(error: ExecutionError) -> Self {
        Self::Device(error)
    }
}

#[derive(Serialize)]
struct Failure {
    error: String,
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::Input(error) => (StatusCode::BAD_REQUEST, error),
            Self::Serve(error) => (status(&error), error.to_string()),
            Self::Device(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let body = Json(Failure { error });
        match status {
            StatusCode::SERVICE_UNAVAILABLE => (status, [(RETRY_AFTER, "1")], body).into_response(),
            _ => (status, body).into_response(),
        }
    }
}

fn status(error: &ServeError) -> StatusCode {
    match error {
        ServeError::NoRows | ServeError::TooManyRows { .. } => StatusCode::BAD_REQUEST,
        ServeError::Overloaded { .. } | ServeError::ShutDown => StatusCode::SERVICE_UNAVAILABLE,
        // The model failed, or this program.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
