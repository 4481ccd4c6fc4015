//! [`Initializer`]: how a parameter gets its first value.

use super::{Param, ParamId};
use crate::config::Config;
use crate::tensor::backend::Backend;
use crate::tensor::{Distribution, Shape, Tensor, TensorData};
use alloc::{vec, vec::Vec};
use num_traits::Float;

/// How a parameter gets its first value.
///
/// `fan_in` and `fan_out` are the numbers of inputs that one output sees and of outputs that one input reaches.
#[derive(Config, Debug, PartialEq)]
pub enum Initializer {
    /// One value everywhere.
    Constant {
        /// The value.
        value: f64,
    },
    /// 1 everywhere.
    Ones,
    /// 0 everywhere.
    Zeros,
    /// Evenly distributed values.
    Uniform {
        /// The smallest.
        min: f64,
        /// The upper bound.
        max: f64,
    },
    /// Normally distributed values.
    Normal {
        /// Their mean.
        mean: f64,
        /// Their standard deviation.
        std: f64,
    },
    /// Evenly distributed between `±gain · √(3 / fan)`, as He et al. propose.
    KaimingUniform {
        /// Depends on the activation that follows.
        gain: f64,
        /// Whether `fan` is `fan_out`; else it is `fan_in`.
        fan_out_only: bool,
    },
    /// Normally distributed with a standard deviation of `gain / √fan`, as He et al. propose.
    KaimingNormal {
        /// Depends on the activation that follows.
        gain: f64,
        /// Whether `fan` is `fan_out`; else it is `fan_in`.
        fan_out_only: bool,
    },
    /// Evenly distributed between `±gain · √(6 / (fan_in + fan_out))`, as Glorot and Bengio propose.
    XavierUniform {
        /// Depends on the activation that follows.
        gain: f64,
    },
    /// Normally distributed with a standard deviation of `gain · √(2 / (fan_in + fan_out))`, as Glorot and Bengio
    /// propose.
    XavierNormal {
        /// Depends on the activation that follows.
        gain: f64,
    },
    /// A matrix with orthonormal rows or columns, as Saxe et al. propose; the dims after the first count as one.
    Orthogonal {
        /// A factor for all values.
        gain: f64,
    },
}

/// What is drawn, after fans and gains.
enum Draw {
    Constant(f64),
    Random(Distribution),
    Orthogonal(f64),
}

impl Initializer {
    /// Evenly distributed between `±√(1 / fan_in)`: what linear and convolution layers begin with.
    pub const UNIFORM_FAN_IN: Initializer =
        Initializer::KaimingUniform { gain: 0.577_350_269_189_625_8, fan_out_only: false };

    /// A trainable parameter with these dims, made on first use.
    ///
    /// # Panics
    /// When the initializer needs fans; see [`Initializer::init_with`].
    pub fn init<B: Backend, const D: usize, S: Into<Shape>>(
        &self,
        shape: S,
        device: &B::Device,
    ) -> Param<Tensor<B, D>> {
        self.init_with(shape, None, None, device)
    }

    /// A trainable parameter with these dims, made on first use, for a layer with these fans.
    ///
    /// # Panics
    /// When a fan that the initializer needs is `None`, or an orthogonal one gets fewer than two dims.
    pub fn init_with<B: Backend, const D: usize, S: Into<Shape>>(
        &self,
        shape: S,
        fan_in: Option<usize>,
        fan_out: Option<usize>,
        device: &B::Device,
    ) -> Param<Tensor<B, D>> {
        let shape = shape.into();
        let draw = self.draw(fan_in, fan_out);
        let dims = shape.clone();
        let init = move |device: &B::Device, require_grad: bool| {
            init_tensor::<B, D>(draw, dims, device).set_require_grad(require_grad)
        };
        Param::uninitialized(ParamId::new(), init, device.clone(), true, shape)
    }

    fn draw(&self, fan_in: Option<usize>, fan_out: Option<usize>) -> Draw {
        let need = |fan: Option<usize>, name: &str| match fan {
            Some(fan) => fan as f64,
            None => panic!("{self:?} needs {name}: use init_with"),
        };
        let kaiming = |fan_out_only: bool| {
            let fan = if fan_out_only { need(fan_out, "fan_out") } else { need(fan_in, "fan_in") };
            1.0 / Float::sqrt(fan)
        };
        let xavier = || Float::sqrt(2.0 / (need(fan_in, "fan_in") + need(fan_out, "fan_out")));
        let uniform = |bound: f64| Draw::Random(Distribution::Uniform(-bound, bound));
        let normal = |mean: f64, std: f64| Draw::Random(Distribution::Normal(mean, std));
        let root3 = Float::sqrt(3.0_f64);
        match *self {
            Initializer::Constant { value } => Draw::Constant(value),
            Initializer::Ones => Draw::Constant(1.0),
            Initializer::Zeros => Draw::Constant(0.0),
            Initializer::Uniform { min, max } => Draw::Random(Distribution::Uniform(min, max)),
            Initializer::Normal { mean, std } => normal(mean, std),
            Initializer::KaimingUniform { gain, fan_out_only } => {
                uniform(root3 * gain * kaiming(fan_out_only))
            }
            Initializer::KaimingNormal { gain, fan_out_only } => normal(0.0, gain * kaiming(fan_out_only)),
            Initializer::XavierUniform { gain } => uniform(root3 * gain * xavier()),
            Initializer::XavierNormal { gain } => normal(0.0, gain * xavier()),
            Initializer::Orthogonal { gain } => Draw::Orthogonal(gain),
        }
    }
}

fn init_tensor<B: Backend, const D: usize>(draw: Draw, shape: Shape, device: &B::Device) -> Tensor<B, D> {
    match draw {
        Draw::Constant(value) => Tensor::full(shape, value, device),
        Draw::Random(distribution) => Tensor::random(shape, distribution, device),
        Draw::Orthogonal(gain) => {
            assert!(D >= 2, "an orthogonal initializer needs at least two dims, got {D}");
            let normal = Tensor::<B, D>::random(shape.clone(), Distribution::Normal(0.0, 1.0), device);
            let rows = shape.as_slice().first().copied().unwrap_or(1);
            let values = normal.into_data().iter::<f64>().collect();
            let values: Vec<f32> =
                orthonormal(values, rows).into_iter().map(|value| (value * gain) as f32).collect();
            Tensor::from_data(TensorData::new(values, shape), device)
        }
    }
}

/// Makes the rows of a matrix orthonormal, or its columns where there are fewer of them.
///
/// Gram-Schmidt, each vector twice, which is as good as a QR decomposition for random matrices. The sign is that of
/// the drawn vectors, so the result is distributed evenly.
fn orthonormal(values: Vec<f64>, rows: usize) -> Vec<f64> {
    let columns = values.len() / rows.max(1);
    let by_rows = rows <= columns;
    let (count, length) = if by_rows { (rows, columns) } else { (columns, rows) };
    let index =
        |vector: usize, at: usize| if by_rows { vector * columns + at } else { at * columns + vector };
    let mut vectors: Vec<Vec<f64>> =
        (0..count).map(|vector| (0..length).map(|at| values[index(vector, at)]).collect()).collect();
    for current in 0..count {
        let (done, rest) = vectors.split_at_mut(current);
        let vector = &mut rest[0];
        for _ in 0..2 {
            for other in done.iter() {
                let dot: f64 = vector.iter().zip(other).map(|(a, b)| a * b).sum();
                vector.iter_mut().zip(other).for_each(|(a, b)| *a -= dot * b);
            }
        }
        let norm = Float::sqrt(vector.iter().map(|a| a * a).sum::<f64>());
        vector.iter_mut().for_each(|a| *a /= norm);
    }
    let mut result = vec![0.0; values.len()];
    for (vector, content) in vectors.iter().enumerate() {
        for (at, value) in content.iter().enumerate() {
            result[index(vector, at)] = *value;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::orthonormal;
    use alloc::vec::Vec;

    #[test]
    fn orthonormal_vectors_are() {
        for (rows, columns) in [(3, 5), (5, 3), (4, 4), (1, 2)] {
            let values: Vec<f64> =
                (0..rows * columns).map(|i| ((i * i + 3 * i + 1) % 17) as f64 - 7.5).collect();
            let result = orthonormal(values, rows);
            let at = |r: usize, c: usize| result[r * columns + c];
            let count = rows.min(columns);
            for i in 0..count {
                for j in 0..count {
                    let dot: f64 = if rows <= columns {
                        (0..columns).map(|c| at(i, c) * at(j, c)).sum()
                    } else {
                        (0..rows).map(|r| at(r, i) * at(r, j)).sum()
                    };
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!((dot - expected).abs() < 1e-12, "{rows}x{columns}: {i}·{j} = {dot}");
                }
            }
        }
    }
}
