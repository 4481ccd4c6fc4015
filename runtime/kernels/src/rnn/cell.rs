//! One step of a row: what remains of it after its products.

use crate::math::{Map, map_slice};
use crate::simd::{Simd, dispatched};
use kiln_types::{Activation, RnnKind};

/// One direction's cell.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    pub kind: RnnKind,
    pub hidden: usize,
    /// Places of a row before its sums.
    pub places: usize,
    /// `f`, `f g` or `f g h`.
    pub activations: &'a [Activation],
    /// Bound of the sums.
    pub clip: Option<f32>,
    /// Bound of an LSTM's cell state, or of the other cells' hidden state.
    pub state_clip: Option<f32>,
    /// `[3 · hidden]`, in the order `iof`.
    pub peepholes: Option<&'a [f32]>,
    pub training: bool,
    /// Whether a row has places for sums, behind the others.
    pub keeps_sums: bool,
}

/// Calls `f` on the vectors of some runs of elements.
///
/// # Safety
/// The pointers are valid for `len` elements; those in `to` are equal to others or apart from them.
#[inline(always)]
pub(super) unsafe fn lanes<S: Simd, const I: usize, const O: usize>(
    s: S,
    len: usize,
    from: [*const f32; I],
    to: [*mut f32; O],
    f: impl Fn([S::F; I]) -> [S::F; O],
) {
    for at in (0..len).step_by(S::LANES) {
        let count = S::LANES.min(len - at);
        let mut x = [s.splat(0.0); I];
        // SAFETY: `count` elements from `at` on lie inside.
        unsafe {
            for (x, from) in x.iter_mut().zip(from) {
                *x = s.load_up_to(from.add(at), count);
            }
            for (y, to) in f(x).into_iter().zip(to) {
                s.store_up_to(to.add(at), count, y);
            }
        }
    }
}

/// `to = activation(x)`.
pub(super) fn apply(activation: Activation, x: &[f32], to: &mut [f32]) {
    assert_eq!(x.len(), to.len());
    // SAFETY: both have one length.
    unsafe { map_slice(Map::Activation(activation), x.as_ptr(), to.as_mut_ptr(), x.len()) };
}

/// `clamp(x, -clip, clip)` as an activation.
pub(super) fn bounds(clip: f32) -> Activation {
    Activation::Clamp { min: f64::from(-clip), max: f64::from(clip) }
}

fn apply_here(activation: Activation, x: &mut [f32]) {
    let (data, len) = (x.as_mut_ptr(), x.len());
    // SAFETY: the slice is valid for its length.
    unsafe { map_slice(Map::Activation(activation), data, data, len) };
}

/// `x = clamp(x, -clip, clip)`, if there is a bound.
pub(super) fn bound(clip: Option<f32>, x: &mut [f32]) {
    if let Some(clip) = clip {
        apply_here(bounds(clip), x);
    }
}

/// `y += a · b`.
pub(super) fn add_product(a: &[f32], b: &[f32], y: &mut [f32]) {
    assert!(a.len() == y.len() && b.len() == y.len());
    // SAFETY: all have one length.
    unsafe { add_product_lanes(y.len(), a.as_ptr(), b.as_ptr(), y.as_mut_ptr()) };
}

dispatched! {
    /// # Safety
    /// The pointers are valid for `n` elements.
    unsafe fn add_product_lanes<S>(s, n: usize, a: *const f32, b: *const f32, y: *mut f32) {
        lanes(s, n, [a, b, y.cast_const()], [y], #[inline(always)] |[a, b, y]| [s.mul_add(a, b, y)]);
    }
}

dispatched! {
    /// `to = a · b`.
    ///
    /// # Safety
    /// The pointers are valid for `n` elements.
    unsafe fn product_lanes<S>(s, n: usize, a: *const f32, b: *const f32, to: *mut f32) {
        lanes(s, n, [a, b], [to], #[inline(always)] |[a, b]| [s.mul(a, b)]);
    }
}

dispatched! {
    /// An LSTM's cell state, `c = f · c + i · g`, from the gates `i o f c`.
    ///
    /// # Safety
    /// `gates` holds `4 · n` elements, `old` and `new` `n`.
    pub(super) unsafe fn lstm_state<S>(s, n: usize, gates: *const f32, old: *const f32, new: *mut f32) {
        let from = [gates, gates.add(2 * n), gates.add(3 * n), old];
        lanes(s, n, from, [new], #[inline(always)] |[i, f, g, c]| [s.mul_add(f, c, s.mul(i, g))]);
    }
}

dispatched! {
    /// A GRU's hidden state, `(1 - z) · candidate + z · h`.
    ///
    /// # Safety
    /// The pointers are valid for `n` elements.
    pub(super) unsafe fn gru_state<S>(s, n: usize, z: *const f32, candidate: *const f32, old: *const f32, new: *mut f32) {
        let one = s.splat(1.0);
        lanes(s, n, [z, candidate, old], [new], #[inline(always)] |[z, candidate, h]| {
            [s.mul_add(z, h, s.mul(s.sub(one, z), candidate))]
        });
    }
}

impl Cell<'_> {
    /// One step of a row, whose places hold sums and become values; `h` and `c` become the new states. Of a GRU that resets before the
    /// product, [`Cell::reset`] comes first.
    pub fn step(&self, row: &mut [f32], h: &mut [f32], c: &mut [f32]) {
        let n = self.hidden;
        match self.kind {
            RnnKind::Rnn => {
                self.activate(0, row, 0..1, 0);
                h.copy_from_slice(&row[..n]);
                bound(self.state_clip, h);
            }
            RnnKind::Gru { linear_before_reset } => {
                if linear_before_reset {
                    self.activate(0, row, 0..2, 0);
                    let (gates, candidate) = row.split_at_mut(3 * n);
                    add_product(&gates[n..2 * n], &gates[2 * n..], &mut candidate[..n]);
                }
                let place = if linear_before_reset { 3 } else { 2 };
                self.activate(1, row, 2..3, place);
                let (from, state) = (row.as_ptr(), h.as_mut_ptr());
                // SAFETY: the row has these places, and the state `n` elements, of which each is read before it is written.
                unsafe { gru_state(n, from, from.add(place * n), state.cast_const(), state) };
                bound(self.state_clip, h);
            }
            RnnKind::Lstm { input_forget } => self.lstm(row, input_forget, h, c),
        }
    }

    /// The gates of a GRU that resets before the product; `reset` gets the reset hidden state.
    pub fn reset(&self, row: &mut [f32], h: &[f32], reset: &mut [f32]) {
        let n = self.hidden;
        assert!(h.len() == n && reset.len() == n);
        self.activate(0, row, 0..2, 0);
        // SAFETY: all have `n` elements.
        unsafe { product_lanes(n, row[n..2 * n].as_ptr(), h.as_ptr(), reset.as_mut_ptr()) };
        if self.training {
            row[super::RESET_PLACE * n..][..n].copy_from_slice(reset);
        }
    }

    fn lstm(&self, row: &mut [f32], input_forget: bool, h: &mut [f32], c: &mut [f32]) {
        let n = self.hidden;
        assert!(row.len() >= 4 * n && h.len() == n && c.len() == n);
        match self.peepholes {
            None if !input_forget => self.activate(0, row, 0..3, 0),
            peepholes => {
                if let Some(peepholes) = peepholes {
                    add_product(&peepholes[..n], c, &mut row[..n]);
                    add_product(&peepholes[2 * n..], c, &mut row[2 * n..3 * n]);
                }
                self.activate(0, row, 0..1, 0);
                if input_forget {
                    let (input, forget) = row[..3 * n].split_at_mut(2 * n);
                    forget.iter_mut().zip(input).for_each(|(f, i)| *f = 1.0 - *i);
                } else {
                    self.activate(0, row, 2..3, 2);
                }
            }
        }
        self.activate(1, row, 3..4, 3);
        let state = c.as_mut_ptr();
        // SAFETY: the row holds four places, the state `n` elements, of which each is read before it is written.
        unsafe { lstm_state(n, row.as_ptr(), state.cast_const(), state) };
        bound(self.state_clip, c);
        if self.peepholes.is_some() || input_forget {
            if let Some(peepholes) = self.peepholes {
                add_product(&peepholes[n..2 * n], c, &mut row[n..2 * n]);
            }
            self.activate(0, row, 1..2, 1);
        }
        apply(self.activations[2], c, h);
        let state = h.as_mut_ptr();
        // SAFETY: all have `n` elements, of which each is read before it is written.
        unsafe { product_lanes(n, state.cast_const(), row[n..].as_ptr(), state) };
    }

    /// Bounds the sums of some gates, keeps them if there is a place for that, and applies an activation.
    fn activate(&self, activation: usize, row: &mut [f32], gates: core::ops::Range<usize>, place: usize) {
        let n = self.hidden;
        let (values, sums) = row.split_at_mut(self.places * n);
        let values = &mut values[place * n..][..gates.len() * n];
        bound(self.clip, values);
        if self.keeps_sums {
            sums[gates.start * n..gates.end * n].copy_from_slice(values);
        }
        apply_here(self.activations[activation], values);
    }
}
