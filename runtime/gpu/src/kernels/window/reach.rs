//! Which elements of windows reach a position: what transposed convolutions and gradients of poolings gather.
//!
//! Along an axis, element `e` of window `w` lies at `w · stride + e · dilation - before`. Of the elements that lie at one position, each is
//! `stride / gcd(stride, dilation)` behind the last, and its window `dilation / gcd(stride, dilation)` before the last one's. Positions that
//! are equal modulo the stride are reached by the same elements: they are a phase of the image, and what a phase gathers is a convolution
//! of step 1.

use super::{Geometry, Sizes, volume};
use crate::language::{Builder, Type, Value};

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Geometry {
    fn common(&self, axis: usize) -> u32 {
        greatest_common_divisor(self.stride[axis], self.dilation[axis])
    }

    /// From one element that reaches a position to the next.
    fn element_step(&self, axis: usize) -> u32 {
        self.stride[axis] / self.common(axis)
    }

    /// Whether as many elements reach every position.
    pub(super) fn reaches_evenly(&self, axis: usize) -> bool {
        self.common(axis) == 1 && self.kernel[axis].is_multiple_of(self.element_step(axis))
    }

    /// The elements that reach a position as a window over windows: the most that there are, and how far apart their windows are.
    pub(super) fn reaching(&self) -> Geometry {
        Geometry {
            kernel: [0, 1, 2].map(|axis| self.kernel[axis].div_ceil(self.element_step(axis))),
            stride: [1; 3],
            dilation: [0, 1, 2].map(|axis| self.dilation[axis] / self.common(axis)),
        }
    }

    /// The phases of an image that windows reach.
    pub(super) fn phases(&self, image: [usize; 3]) -> usize {
        (0..3).map(|axis| image[axis].min(self.stride[axis] as usize)).product()
    }

    /// The size of the largest phase.
    pub(super) fn phase(&self, image: [usize; 3]) -> [usize; 3] {
        [0, 1, 2].map(|axis| image[axis].div_ceil(self.stride[axis] as usize))
    }
}

/// The elements of windows that reach a position of the image they lie over, and their windows.
#[derive(Clone, Copy)]
pub(super) struct Reach<'k> {
    geometry: Geometry,
    /// The first element along each axis; beyond the window where there is none.
    first: [Value<'k>; 3],
    /// The window that it belongs to. What lies before the first window wraps, and is beyond the last.
    window: [Value<'k>; 3],
}

impl<'k> Reach<'k> {
    /// What reaches the position `at` of an image with so much padding `before` it.
    pub(super) fn of(k: &'k Builder, geometry: Geometry, at: [Value<'k>; 3], before: [Value<'k>; 3]) -> Self {
        let along = |axis: usize| {
            let (start, stride, dilation) =
                (at[axis] + before[axis], geometry.stride[axis], geometry.dilation[axis]);
            if stride == 1 {
                return (k.value(0_u32), start);
            }
            let rest = start % stride;
            let first = if dilation % stride == 1 {
                rest
            } else {
                let (found, kernel) = (k.variable(geometry.kernel[axis]), geometry.kernel[axis]);
                k.range(0_u32, geometry.element_step(axis).min(kernel), 1_u32, |element| {
                    let reaches = (element * dilation % stride).equals(rest);
                    k.when(reaches, || found.set(element));
                });
                found.get()
            };
            let window = (start.to(Type::I32) - (first * dilation).to(Type::I32)) / stride.cast_signed();
            (first, window.to(Type::U32))
        };
        let [z, y, x] = [0, 1, 2].map(along);
        Self { geometry, first: [z.0, y.0, x.0], window: [z.1, y.1, x.1] }
    }

    /// The window of the `nth` element along an axis, for the position that lies `further` strides behind.
    pub(super) fn window(&self, axis: usize, further: Value<'k>, nth: Value<'k>) -> Value<'k> {
        self.first_window(axis) + further - nth * self.geometry.reaching().dilation[axis]
    }

    /// The window of the first element along an axis.
    pub(super) fn first_window(&self, axis: usize) -> Value<'k> {
        self.window[axis]
    }

    /// The `nth` element along an axis.
    pub(super) fn element(&self, axis: usize, nth: Value<'k>) -> Value<'k> {
        match self.geometry.element_step(axis) {
            1 => nth,
            step => self.first[axis] + nth * step,
        }
    }

    /// Whether there is an `nth` element along an axis; nothing where all of [`Geometry::reaching`] are there.
    pub(super) fn exists(&self, axis: usize, nth: Value<'k>) -> Option<Value<'k>> {
        let uneven = !self.geometry.reaches_evenly(axis);
        uneven.then(|| {
            (self.first[axis] + nth * self.geometry.element_step(axis)).below(self.geometry.kernel[axis])
        })
    }

    /// How many elements there are along an axis.
    pub(super) fn count(&self, axis: usize) -> Value<'k> {
        let (kernel, step) = (self.geometry.kernel[axis], self.geometry.element_step(axis));
        let (first, k) = (self.first[axis], self.first[axis].kernel());
        match self.geometry.reaches_evenly(axis) {
            true => k.value(kernel / step),
            false => (first.max(kernel) - first + (step - 1)) / step,
        }
    }

    /// Where the window of the `nth` elements is among `windows`, for the position that lies `further` strides behind; and whether there is
    /// one.
    pub(super) fn place(
        &self,
        nth: [Value<'k>; 3],
        further: [Value<'k>; 3],
        windows: &[Value<'k>; 3],
    ) -> (Value<'k>, Value<'k>) {
        let along = [0, 1, 2].map(|axis| self.window(axis, further[axis], nth[axis]));
        let mut inside = along[0].below(windows[0]) & along[1].below(windows[1]) & along[2].below(windows[2]);
        for exists in (0..3).filter_map(|axis| self.exists(axis, nth[axis])) {
            inside = inside & exists;
        }
        ((along[0] * windows[1] + along[1]) * windows[2] + along[2], inside)
    }

    /// Where the `nth` elements are in their window; and whether they exist, where that is a question.
    pub(super) fn within(&self, nth: [Value<'k>; 3]) -> (Value<'k>, Option<Value<'k>>) {
        let [z, y, x] = [0, 1, 2].map(|axis| self.element(axis, nth[axis]));
        let exists = (0..3).filter_map(|axis| self.exists(axis, nth[axis])).reduce(|a, b| a & b);
        let [_, height, width] = self.geometry.kernel;
        ((z * height + y) * width + x, exists)
    }
}

/// A phase of an image: the positions that are equal modulo the stride.
#[derive(Clone, Copy)]
pub(super) struct Phase<'k> {
    stride: [u32; 3],
    first: [Value<'k>; 3],
    /// How many positions it has along each axis.
    pub size: [Value<'k>; 3],
    /// What reaches its first position.
    pub reach: Reach<'k>,
}

impl<'k> Phase<'k> {
    /// Of places that are numbered with the phases of the result's image innermost: the phase, and the place.
    pub(super) fn declare(
        k: &'k Builder,
        geometry: Geometry,
        sizes: &Sizes<'k>,
        place: Value<'k>,
    ) -> (Self, Value<'k>) {
        let counts = [0, 1, 2].map(|axis| match geometry.stride[axis] {
            1 => k.value(1_u32),
            stride => sizes.output[axis].min(stride),
        });
        let all = volume(&counts);
        let (place, phase) = (place / all, place % all);
        let row = phase / counts[2];
        let first = [row / counts[1], row % counts[1], phase % counts[2]];
        let size = [0, 1, 2].map(|axis| match geometry.stride[axis] {
            1 => sizes.output[axis],
            stride => (sizes.output[axis] - first[axis] + (stride - 1)) / stride,
        });
        let reach = Reach::of(k, geometry, first, sizes.before);
        (Self { stride: geometry.stride, first, size, reach }, place)
    }

    /// Where its `at`-th position along an axis is in the image.
    pub(super) fn position(&self, axis: usize, at: Value<'k>) -> Value<'k> {
        at * self.stride[axis] + self.first[axis]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of every window is found from where it lies.
    #[test]
    fn all_elements_reach_where_they_lie() {
        for (kernel, stride, dilation) in
            [(3, 1, 1), (3, 2, 1), (4, 2, 1), (5, 3, 2), (4, 2, 2), (3, 4, 6), (1, 3, 1)]
        {
            let geometry =
                Geometry { kernel: [1, 1, kernel], stride: [1, 1, stride], dilation: [1, 1, dilation] };
            let reaching = geometry.reaching();
            let step = geometry.element_step(2);
            for position in 0..4 * stride * dilation {
                let here: Vec<(u32, u32)> = (0..kernel)
                    .filter(|element| {
                        position >= element * dilation && (position - element * dilation) % stride == 0
                    })
                    .map(|element| (element, (position - element * dilation) / stride))
                    .collect();
                assert!(here.len() <= reaching.kernel[2] as usize, "{geometry:?}");
                for (nth, pair) in here.windows(2).enumerate() {
                    let [a, b] = [pair[0], pair[1]];
                    assert_eq!((b.0, b.1), (a.0 + step, a.1 - reaching.dilation[2]), "{geometry:?}, {nth}");
                }
                if geometry.reaches_evenly(2) && position >= kernel * dilation {
                    assert_eq!(here.len(), reaching.kernel[2] as usize, "{geometry:?} at {position}");
                }
            }
        }
    }
}
