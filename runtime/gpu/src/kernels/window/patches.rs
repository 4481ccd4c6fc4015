//! What windows see of row-major images, as the right side of a product.
//!
//! Where a window begins, and which of its elements are inside the image, is known of the window; how far an element is from there, and what it needs to be
//! inside, of the element. All that is left to do where they meet is a sum and a comparison. (cuDNN has such indices in its
//! `CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM`; NVIDIA, "cuDNN Backend API".)

use super::super::right::Right;
use super::{Geometry, Sizes, volume, within_image};
use crate::language::{Builder, Value};

/// Bits that say where elements are: the last one of a word is that of none.
const BITS: u32 = 31;

/// Indices of windows and of their elements, from which those of the elements of an image are summed.
#[derive(Clone, Copy)]
pub(super) struct PatchIndices<'s, 'k> {
    k: &'k Builder,
    geometry: Geometry,
    /// The first bit of each axis: there is one for each coordinate that an element of a window has along it.
    bits: [u32; 3],
    sizes: &'s Sizes<'k>,
}

impl<'s, 'k> PatchIndices<'s, 'k> {
    /// Nothing where a word has too few bits for them.
    pub fn of(k: &'k Builder, geometry: Geometry, sizes: &'s Sizes<'k>) -> Option<Self> {
        let [depth, height, width] = geometry.kernel;
        let all = depth.checked_add(height)?.checked_add(width)?;
        (all <= BITS).then_some(Self { k, geometry, bits: [0, depth, depth + height], sizes })
    }

    /// Where a window of an image begins in it, and the bits of the coordinates that are inside.
    fn window(&self, number: Value<'k>) -> [Value<'k>; 2] {
        let Self { k, geometry, bits, sizes } = self;
        let at = within_image(number, &sizes.output);
        // What is before the image wraps around, and comes back where an element inside is named.
        let origin = [0, 1, 2].map(|axis| at[axis] * geometry.stride[axis] - sizes.before[axis]);
        let coordinates = (0..3).flat_map(|axis| (0..geometry.kernel[axis]).map(move |at| (axis, at)));
        let inside = coordinates.fold(k.value(0_u32), |inside, (axis, at)| {
            let place = origin[axis] + at * geometry.dilation[axis];
            inside | place.below(sizes.input[axis]).select(1_u32 << (bits[axis] + at), 0_u32)
        });
        [sizes.place(origin), inside]
    }

    /// How far an element of a channel is from where its window begins, and the bits of its coordinates.
    fn element(&self, number: Value<'k>) -> [Value<'k>; 2] {
        let Self { k, geometry, bits, sizes } = self;
        let length = geometry.kernel_length();
        let (channel, within) = (number / length, geometry.within(number % length));
        let apart = [0, 1, 2].map(|axis| within[axis] * geometry.dilation[axis]);
        let bit = |axis: usize| k.value(1_u32) << (within[axis] + bits[axis]);
        [channel * volume(&sizes.input) + sizes.place(apart), bit(0) | bit(1) | bit(2)]
    }
}

/// The channels of a group of an image.
pub(super) struct Image<'k, F> {
    /// Where they begin.
    pub start: Value<'k>,
    /// The element at a position.
    pub at: F,
    /// A zero of the elements' type.
    pub zero: Value<'k>,
    /// What stands beyond the image, if not that.
    pub border: Option<Value<'k>>,
}

/// An image's windows, a column each: what a convolution multiplies with its weights.
pub(super) struct Patches<'s, 'k, F> {
    pub windows: PatchIndices<'s, 'k>,
    /// The first element of windows that is a depth, and how many are.
    pub elements: [Value<'k>; 2],
    pub image: Image<'k, F>,
}

impl<'k, F: Fn(Value<'k>) -> Value<'k>> Right<'k> for Patches<'_, 'k, F> {
    type Column = [Value<'k>; 2];

    fn column(&self, column: Value<'k>) -> Self::Column {
        let [start, inside] = self.windows.window(column);
        [self.image.start + start, inside]
    }

    fn shared_words(&self) -> u32 {
        2
    }

    fn depth(&self, depth: Value<'k>) -> Vec<Value<'k>> {
        let [first, count] = self.elements;
        let [apart, needed] = self.windows.element(first + depth);
        vec![apart, depth.below(count).select(needed, 1_u32 << BITS)]
    }

    fn element(&self, depth: &[Value<'k>], &[start, inside]: &Self::Column) -> Value<'k> {
        let (k, Image { at, zero, border, .. }) = (self.windows.k, &self.image);
        let (apart, needed) = (depth[0], depth[1]);
        let outside = border.map_or(*zero, |border| needed.equals(1_u32 << BITS).select(*zero, border));
        let element = k.variable(outside);
        k.when((inside & needed).equals(needed), || element.set(at(start + apart)));
        element.get()
    }
}

/// The windows of several images, a depth each, of whose elements each is a column: what the gradient of a convolution's weights multiplies with its result's.
pub(super) struct TurnedPatches<'s, 'k, S, F> {
    pub windows: PatchIndices<'s, 'k>,
    /// The first window that is a depth, and how many are.
    pub depths: [Value<'k>; 2],
    /// Where the channels of an image begin.
    pub start: S,
    /// The element at a position.
    pub at: F,
    /// A zero of the elements' type.
    pub zero: Value<'k>,
}

impl<'k, S, F> Right<'k> for TurnedPatches<'_, 'k, S, F>
where
    S: Fn(Value<'k>) -> Value<'k>,
    F: Fn(Value<'k>) -> Value<'k>,
{
    type Column = [Value<'k>; 2];

    fn column(&self, column: Value<'k>) -> Self::Column {
        self.windows.element(column)
    }

    fn shared_words(&self) -> u32 {
        2
    }

    fn depth(&self, depth: Value<'k>) -> Vec<Value<'k>> {
        let ([first, count], of_image) = (self.depths, volume(&self.windows.sizes.output));
        let at = first + depth;
        let [start, inside] = self.windows.window(at % of_image);
        vec![(self.start)(at / of_image) + start, depth.below(count).select(inside, 0_u32)]
    }

    fn element(&self, depth: &[Value<'k>], &[apart, needed]: &Self::Column) -> Value<'k> {
        let (k, start, inside) = (self.windows.k, depth[0], depth[1]);
        let element = k.variable(self.zero);
        k.when((inside & needed).equals(needed), || element.set((self.at)(start + apart)));
        element.get()
    }
}
