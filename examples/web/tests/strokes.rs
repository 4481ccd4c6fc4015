//! Digits drawn by strokes are read as what they are. The page is tried with the same strokes, in a browser (`check.mjs`).

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use web::{Classifier, Drawing};

fn drawings() -> Vec<(usize, Drawing)> {
    let text: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(include_str!("strokes.json")).expect("strokes");
    let number = |value: &serde_json::Value| value.as_f64().expect("a coordinate") as f32;
    let draw = |strokes: &serde_json::Value| {
        let mut drawing = Drawing::new();
        for stroke in strokes.as_array().expect("strokes") {
            for (n, point) in stroke.as_array().expect("points").iter().enumerate() {
                let (x, y) = (number(&point[0]), number(&point[1]));
                if n == 0 { drawing.press(x, y) } else { drawing.draw_to(x, y) }
            }
        }
        drawing
    };
    text.iter().map(|(digit, strokes)| (digit.parse().expect("a digit"), draw(strokes))).collect()
}

/// The CPU backend has an answer at once.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the CPU backend waits for nothing"),
    }
}

#[test]
fn drawn_digits_are_read() {
    let classifier = Classifier::on_cpu();
    let drawings = drawings();
    assert_eq!(drawings.len(), 10);
    let mut wrong = Vec::new();
    for (digit, drawing) in drawings {
        let pixels = drawing.pixels();
        let Ok(probabilities) = at_once(classifier.probabilities(pixels.clone())) else {
            panic!("no answer")
        };
        assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        if probabilities[digit] < 0.8 {
            let rows: Vec<String> = pixels.chunks(8).map(|row| format!("{row:.1?}")).collect();
            wrong.push(format!("{digit}: {probabilities:.2?}\n{}", rows.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn where_and_how_large_a_drawing_is_does_not_matter() {
    let drawn = |x: f32, y: f32, scale: f32| {
        let mut drawing = Drawing::new();
        drawing.press(x, y);
        drawing.draw_to(x + 30.0 * scale, y + 40.0 * scale);
        drawing.draw_to(x + 10.0 * scale, y + 40.0 * scale);
        drawing.pixels()
    };
    assert_eq!(drawn(0.0, 0.0, 1.0), drawn(256.0, 64.0, 2.0));
}

#[test]
fn a_dot_is_in_the_middle_and_nothing_is_dark() {
    let mut dot = Drawing::new();
    assert!(dot.is_empty());
    assert_eq!(dot.pixels(), [0.0; 64]);
    dot.press(17.0, 3.0);
    let pixels = dot.pixels();
    let lit: Vec<usize> = (0..64).filter(|&pixel| pixels[pixel] > 0.0).collect();
    assert_eq!(lit, [27, 28, 35, 36]);
}
