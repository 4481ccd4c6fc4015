//! Requests through the router, without sockets.

use crate::{B, Classifier, classifier, digits, service};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use kiln::serve::DynamicBatcherConfig;
use kiln::tensor::activation::softmax;
use kiln::tensor::{Tensor, TensorData};
use serde_json::{Value, json};
use std::sync::{Arc, mpsc};
use tower::ServiceExt;

const HELD_OUT: &[u8] = include_bytes!("../../../fixtures/digits/held_out.bin");
const RECORD: usize = 8 * 8 + 1;
/// PyTorch's answers on the same images, from `scripts/train_digits.py`.
const EXPECTED: &str = include_str!("../../../fixtures/digits/expected.json");

fn images() -> impl Iterator<Item = &'static [u8]> {
    HELD_OUT.chunks_exact(RECORD).map(|record| &record[..RECORD - 1])
}

async fn send(router: Router, method: Method, path: &str, body: String) -> (StatusCode, Value) {
    let request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let response =
        router.oneshot(request.body(Body::from(body)).expect("a request")).await.expect("no error");
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn read_digits(router: Router, body: Value) -> (StatusCode, Value) {
    send(router, Method::POST, "/digits", body.to_string()).await
}

fn numbers(values: &Value) -> Vec<f32> {
    let values = values.as_array().expect("a list");
    values.iter().map(|value| value.as_f64().expect("a number") as f32).collect()
}

#[tokio::test]
async fn answers_are_those_of_the_model_alone_and_pytorchs() {
    let router = service::router(Arc::new(classifier(&DynamicBatcherConfig::new()).expect("a batcher")));
    let requests: Vec<_> = images()
        .map(|image| tokio::spawn(read_digits(router.clone(), json!({ "images": [image] }))))
        .collect();
    let (mut predictions, mut probabilities) = (String::new(), Vec::new());
    for request in requests {
        let (status, answer) = request.await.expect("no panic");
        assert_eq!(status, StatusCode::OK, "{answer}");
        predictions += &answer["digits"][0].to_string();
        probabilities.extend(numbers(&answer["probabilities"][0]));
    }
    let expected: Value = serde_json::from_str(EXPECTED).expect("JSON");
    assert_eq!(expected["predictions"], predictions);

    let pixels: Vec<f32> = images().flatten().map(|&pixel| f32::from(pixel) / 16.0).collect();
    let all = TensorData::new(pixels, [images().count(), 1, 8, 8]);
    let logits = digits::Model::<B>::default().forward(Tensor::from_data(all, &Default::default()));
    let found = TensorData::new(probabilities, [images().count(), 10]);
    found.assert_approx_eq::<f32>(&softmax(logits, 1).into_data(), Default::default());

    let (status, stats) = send(router, Method::GET, "/stats", String::new()).await;
    assert_eq!((status, &stats["requests"], &stats["failed"]), (StatusCode::OK, &json!(360), &json!(0)));
}

#[tokio::test]
async fn a_request_may_have_several_images() {
    let router = service::router(Arc::new(classifier(&DynamicBatcherConfig::new()).expect("a batcher")));
    let three: Vec<_> = images().take(3).collect();
    let (status, answer) = read_digits(router, json!({ "images": three })).await;
    assert_eq!((status, &answer["digits"]), (StatusCode::OK, &json!([7, 6, 3])));
}

#[tokio::test]
async fn what_is_no_image_is_a_bad_request() {
    let router = service::router(Arc::new(classifier(&DynamicBatcherConfig::new()).expect("a batcher")));
    let cases = [
        (json!({ "images": [[1, 2, 3]] }), "an image has 3 pixels, not 64"),
        (json!({ "images": [vec![17; 64]] }), "a pixel is 17, not from 0 to 16"),
        (json!({ "images": [] }), "a request has no rows"),
        (json!({ "images": vec![vec![0; 64]; 33] }), "a request has 33 rows, and a batch at most 32"),
        (json!({ "pictures": [] }), "missing field `images`"),
        (json!("a text"), "invalid type"),
    ];
    for (body, expected) in cases {
        let (status, answer) = read_digits(router.clone(), body).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == StatusCode::BAD_REQUEST && error.contains(expected), "{status}: {answer}");
    }
}

#[tokio::test]
async fn a_full_queue_and_a_shutdown_are_unavailability() {
    let (entered, has_entered) = mpsc::channel();
    let (open, is_open) = mpsc::channel::<()>();
    let is_open = std::sync::Mutex::new(is_open);
    let config = DynamicBatcherConfig::new().with_max_batch_size(1).with_max_queue_size(1);
    let batcher: Arc<Classifier> = Arc::new(
        config
            .init(move |images: Tensor<B, 4>| {
                entered.send(()).expect("the test waits");
                // Until the test drops the sender.
                let _ = is_open.lock().expect("no panic").recv();
                Tensor::zeros([images.dims()[0], 10], &Default::default())
            })
            .expect("a batcher"),
    );
    let image = || Tensor::zeros([1, 1, 8, 8], &Default::default());
    let running = batcher.call_async(image());
    has_entered.recv().expect("the model runs");
    let waiting = batcher.call_async(image());

    let router = service::router(batcher.clone());
    let body = json!({ "images": [vec![0; 64]] });
    let (status, answer) = read_digits(router.clone(), body.clone()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    drop(open);
    assert!(running.await.is_ok() && waiting.await.is_ok());
    assert_eq!(read_digits(router.clone(), body.clone()).await.0, StatusCode::OK);
    batcher.shutdown();
    assert_eq!(read_digits(router, body).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_model_that_panics_is_an_error_of_the_server() {
    let config = DynamicBatcherConfig::new();
    let batcher: Classifier = config.init(|_: Tensor<B, 4>| panic!("out of order")).expect("a batcher");
    let (status, answer) =
        read_digits(service::router(Arc::new(batcher)), json!({ "images": [vec![0; 64]] })).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer["error"], "the model panicked: out of order");
}
