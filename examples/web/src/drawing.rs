//! Strokes of a pen, and what the network sees of them.

use wasm_bindgen::prelude::wasm_bindgen;

/// Side of the image that the network sees.
const SIDE: usize = 8;
/// Points along each side of a pixel: a pixel is as bright as the share of its points that the pen covered. The images that the network
/// learned were made the same way, of 32×32 points.
const POINTS: usize = 4;
/// Half the pen's width, in points.
const PEN: f32 = 2.0;

/// Strokes, in any unit.
#[wasm_bindgen]
#[derive(Debug, Default, Clone)]
pub struct Drawing {
    strokes: Vec<Vec<[f32; 2]>>,
}

#[wasm_bindgen]
impl Drawing {
    /// Nothing drawn.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a stroke.
    pub fn press(&mut self, x: f32, y: f32) {
        self.strokes.push(vec![[x, y]]);
    }

    /// Goes on with the stroke.
    pub fn draw_to(&mut self, x: f32, y: f32) {
        if let Some(stroke) = self.strokes.last_mut() {
            stroke.push([x, y]);
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.strokes.is_empty()
    }

    /// The image: 8×8 pixels from 0 to 1, row by row. The strokes fill its height, or its width where they are wider than high, and
    /// are in its middle.
    pub fn pixels(&self) -> Vec<f32> {
        let all = || self.strokes.iter().flatten();
        let bound = |axis: usize, fold: fn(f32, f32) -> f32, from: f32| {
            all().fold(from, |bound, point| fold(bound, point[axis]))
        };
        let low = [0, 1].map(|axis| bound(axis, f32::min, f32::INFINITY));
        let high = [0, 1].map(|axis| bound(axis, f32::max, f32::NEG_INFINITY));
        let size = (high[0] - low[0]).max(high[1] - low[1]);
        let side = (SIDE * POINTS) as f32;
        let scale = if size > 0.0 { (side - 2.0 * PEN) / size } else { 0.0 };
        let place = |point: &[f32; 2]| {
            [0, 1].map(|axis| (point[axis] - (low[axis] + high[axis]) / 2.0) * scale + side / 2.0)
        };
        let strokes: Vec<Vec<[f32; 2]>> =
            self.strokes.iter().map(|stroke| stroke.iter().map(place).collect()).collect();

        let mut pixels = vec![0.0; SIDE * SIDE];
        for row in 0..SIDE * POINTS {
            for column in 0..SIDE * POINTS {
                let point = [column as f32 + 0.5, row as f32 + 0.5];
                if strokes.iter().any(|stroke| is_near(point, stroke)) {
                    pixels[row / POINTS * SIDE + column / POINTS] += 1.0 / (POINTS * POINTS) as f32;
                }
            }
        }
        pixels
    }
}

/// Whether a stroke's pen covers a point.
fn is_near(point: [f32; 2], stroke: &[[f32; 2]]) -> bool {
    let squared = |[x, y]: [f32; 2]| x * x + y * y;
    let minus = |a: [f32; 2], b: [f32; 2]| [a[0] - b[0], a[1] - b[1]];
    let near = |from: [f32; 2], to: [f32; 2]| {
        let (way, off) = (minus(to, from), minus(point, from));
        let length = squared(way);
        let along = if length > 0.0 { (off[0] * way[0] + off[1] * way[1]) / length } else { 0.0 };
        let along = along.clamp(0.0, 1.0);
        squared(minus(off, way.map(|x| x * along))) <= PEN * PEN
    };
    match stroke {
        [only] => near(*only, *only),
        _ => stroke.windows(2).any(|pair| near(pair[0], pair[1])),
    }
}
