//! Resizing by the rules of ONNX's `Resize`: which elements of an axis each element of the result is made of.
//!
//! Positions are computed in single precision, as ONNX Runtime computes them: with more digits, `x / scale` would fall below the whole
//! number that it stands for (5 / 0.6 rounded up), and the nearest neighbour would be another one.

use crate::{CoordinateTransform, InlineVec, InterpolateMode, InterpolateOptions, NearestRounding};
use num_traits::Float;

/// One output element along one axis: positions in the input (within it) and their weights.
pub type Taps = InlineVec<(usize, f64)>;

/// The axes that change, and how each is resized. For backends that resize by a kernel.
///
/// Values outside of a cropped region are the caller's affair.
pub fn resized_axes<'a>(
    dims: &'a [usize],
    options: &'a InterpolateOptions,
) -> impl Iterator<Item = (usize, ResizedAxis<'a>)> {
    let axes = dims.iter().enumerate().map(|(axis, &size)| (axis, ResizedAxis::new(size, axis, options)));
    axes.filter(|(_, resized)| !resized.is_identity())
}

/// How one axis is resized.
pub struct ResizedAxis<'a> {
    input: usize,
    output: usize,
    scale: f32,
    roi: (f32, f32),
    options: &'a InterpolateOptions,
}

impl<'a> ResizedAxis<'a> {
    fn new(input: usize, axis: usize, options: &'a InterpolateOptions) -> Self {
        let roi = options.roi.as_ref().and_then(|roi| roi.get(axis)).copied().unwrap_or((0.0, 1.0));
        Self {
            input,
            output: options.output_size[axis],
            scale: options.scales[axis] as f32,
            roi: (roi.0 as f32, roi.1 as f32),
            options,
        }
    }

    /// Whether every output element is the input element at its place.
    fn is_identity(&self) -> bool {
        let cropped =
            self.options.coordinates == CoordinateTransform::TfCropAndResize && self.roi != (0.0, 1.0);
        self.input == self.output && self.scale == 1.0 && !cropped
    }

    /// Size of the axis.
    pub fn input(&self) -> usize {
        self.input
    }

    /// Its new size.
    pub fn output(&self) -> usize {
        self.output
    }

    /// Where in the input the `n`-th output element lies.
    pub fn coordinate(&self, n: usize) -> f32 {
        let (input, output, x) = (self.input as f32, self.output as f32, n as f32);
        match self.options.coordinates {
            CoordinateTransform::HalfPixel => (x + 0.5) / self.scale - 0.5,
            CoordinateTransform::PytorchHalfPixel if self.output == 1 => 0.0,
            CoordinateTransform::PytorchHalfPixel => (x + 0.5) / self.scale - 0.5,
            CoordinateTransform::HalfPixelSymmetric => {
                let adjustment = output / (self.scale * input);
                input / 2.0 * (1.0 - adjustment) + (x + 0.5) / self.scale - 0.5
            }
            CoordinateTransform::AlignCorners if self.output == 1 => 0.0,
            CoordinateTransform::AlignCorners => x * (input - 1.0) / (output - 1.0),
            CoordinateTransform::Asymmetric => x / self.scale,
            CoordinateTransform::TfHalfPixelForNn => (x + 0.5) / self.scale,
            CoordinateTransform::TfCropAndResize if self.output == 1 => {
                (self.roi.0 + self.roi.1) * (input - 1.0) / 2.0
            }
            CoordinateTransform::TfCropAndResize => {
                let length = (self.roi.1 - self.roi.0) * (input - 1.0);
                x * length / (output - 1.0) + self.roi.0 * (input - 1.0)
            }
        }
    }

    /// The taps of each output element.
    pub fn taps(&self) -> impl Iterator<Item = Taps> {
        let stretch = if self.options.antialias { f64::from(self.scale.min(1.0)) } else { 1.0 };
        (0..self.output).map(move |n| {
            let at = self.coordinate(n);
            match self.options.mode {
                InterpolateMode::Nearest(rounding) => [(self.inside(rounded(at, rounding)), 1.0)].into(),
                InterpolateMode::Linear => self.near(at.into(), 1.0, stretch, |d| 1.0 - d),
                InterpolateMode::Cubic { a } => self.near(at.into(), 2.0, stretch, |d| cubic(d, a)),
            }
        })
    }

    /// Samples within `radius / stretch` of `at`, weighted by a kernel of their (stretched) distance. Samples beyond
    /// the border show the border, or are left out.
    fn near(&self, at: f64, radius: f64, stretch: f64, kernel: impl Fn(f64) -> f64) -> Taps {
        let exclude_outside = self.options.exclude_outside;
        let reach = radius / stretch;
        let (first, last) = (Float::ceil(at - reach) as i64, Float::floor(at + reach) as i64);
        let mut taps = Taps::new();
        let mut sum = 0.0;
        for position in first..=last {
            let distance = (position as f64 - at).abs() * stretch;
            let inside = self.inside(position);
            if distance >= radius || (exclude_outside && inside as i64 != position) {
                continue;
            }
            let weight = kernel(distance);
            sum += weight;
            match taps.last_mut() {
                Some((same, total)) if *same == inside => *total += weight,
                _ => taps.push((inside, weight)),
            }
        }
        // Weights of whole kernels already sum to 1, up to rounding.
        if exclude_outside || stretch != 1.0 {
            taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        taps
    }

    /// The nearest position within the input.
    fn inside(&self, position: i64) -> usize {
        usize::try_from(position).unwrap_or(0).min(self.input.saturating_sub(1))
    }
}

/// The position that stands for a coordinate.
fn rounded(at: f32, rounding: NearestRounding) -> i64 {
    // Wider, so that adding a half does not round.
    let at = f64::from(at);
    let nearest = match rounding {
        NearestRounding::RoundPreferFloor => Float::ceil(at - 0.5),
        NearestRounding::RoundPreferCeil => Float::floor(at + 0.5),
        NearestRounding::Floor => Float::floor(at),
        NearestRounding::Ceil => Float::ceil(at),
    };
    nearest as i64
}

/// Keys' cubic convolution kernel with parameter `a`.
fn cubic(d: f64, a: f64) -> f64 {
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    }
}
