//! The way back through one step of a row.

use super::cell::{Cell, add_product, apply, bound, bounds, gru_state, lanes, lstm_state};
use crate::math::{Through, activation_gradient};
use crate::simd::dispatched;
use core::ops::Range;
use kiln_types::{Activation, RnnKind};

/// The states before a step.
#[derive(Clone, Copy)]
pub(super) struct Before<'a> {
    pub hidden: &'a [f32],
    /// Of an LSTM.
    pub cell: &'a [f32],
}

/// Gradients of the states after a step, which become those of the states before it.
pub(super) struct OfState<'a> {
    pub hidden: &'a mut [f32],
    pub cell: &'a mut [f32],
    /// Sums over the steps, `[3 · hidden]`.
    pub peepholes: Option<&'a mut [f32]>,
}

/// Elements of working space that a step needs, by the hidden size.
pub(super) const SPACE: usize = 6;

dispatched! {
    /// From the gradient of an LSTM's hidden state, `h = o · shown`: of `o` and of what is shown.
    ///
    /// # Safety
    /// The pointers are valid for `n` elements.
    unsafe fn lstm_shown<S>(s, n: usize, of_h: *const f32, output: *const f32, shown: *const f32, to: [*mut f32; 2]) {
        lanes(s, n, [of_h, output, shown], to, #[inline(always)] |[g, o, shown]| [s.mul(g, shown), s.mul(g, o)]);
    }
}

dispatched! {
    /// From the gradient of an LSTM's cell state, `c' = f · c + i · g`: of the values of `i`, `f` and `g`, and in its place of `c`.
    ///
    /// # Safety
    /// `gates` holds `4 · n` elements, the others `n`.
    unsafe fn lstm_gates<S>(s, n: usize, gates: *const f32, old: *const f32, of_c: *mut f32, to: [*mut f32; 3]) {
        let from = [of_c.cast_const(), gates, gates.add(2 * n), gates.add(3 * n), old];
        let [of_i, of_f, of_g] = to;
        lanes(s, n, from, [of_i, of_f, of_g, of_c], #[inline(always)] |[of, i, f, g, c]| {
            [s.mul(of, g), s.mul(of, c), s.mul(of, i), s.mul(of, f)]
        });
    }
}

dispatched! {
    /// From the gradient of a GRU's hidden state, `(1 - z) · candidate + z · h`: of the values of `z` and the candidate, and in its
    /// place of `h`.
    ///
    /// # Safety
    /// The pointers are valid for `n` elements.
    unsafe fn gru_gates<S>(s, n: usize, z: *const f32, candidate: *const f32, old: *const f32, of_h: *mut f32, to: [*mut f32; 2]) {
        let one = s.splat(1.0);
        let [of_z, of_candidate] = to;
        let from = [of_h.cast_const(), z, candidate, old];
        lanes(s, n, from, [of_z, of_candidate, of_h], #[inline(always)] |[of, z, candidate, h]| {
            [s.mul(of, s.sub(h, candidate)), s.mul(of, s.sub(one, z)), s.mul(of, z)]
        });
    }
}

dispatched! {
    /// From the gradient of `r · x`: of `r`, and of `x` (which may be where `x` is).
    ///
    /// # Safety
    /// The pointers are valid for `n` elements.
    unsafe fn factors<S>(s, n: usize, of: *const f32, r: *const f32, x: *const f32, to: [*mut f32; 2]) {
        lanes(s, n, [of, r, x], to, #[inline(always)] |[of, r, x]| [s.mul(of, x), s.mul(of, r)]);
    }
}

/// `gradient` through an activation with these results, in place.
fn through_results(activation: Activation, x: &[f32], y: &[f32], gradient: &mut [f32]) {
    assert!(x.len() == gradient.len() && y.len() == gradient.len());
    let to = gradient.as_mut_ptr();
    let run = Through { gradient: to, x: x.as_ptr(), y: y.as_ptr(), to, len: gradient.len() };
    // SAFETY: all have one length.
    unsafe { activation_gradient(activation, run) };
}

impl Cell<'_> {
    /// One step of a row, whose places hold values and become the gradients of their sums. `of.hidden` becomes what reaches the hidden
    /// state before the step other than through the recurrent product. Of a GRU that resets before the product, the reset gate is left
    /// to [`Cell::reset_gradient`].
    pub fn step_gradient(
        &self,
        row: &mut [f32],
        before: Before<'_>,
        of: &mut OfState<'_>,
        space: &mut [f32],
    ) {
        let n = self.hidden;
        assert!(row.len() >= self.places * n && before.hidden.len() == n && of.hidden.len() == n);
        assert_eq!(space.len(), SPACE * n);
        match self.kind {
            RnnKind::Rnn => {
                if self.state_clip.is_some() {
                    space[..n].copy_from_slice(&row[..n]);
                    self.through_state_clip(&mut space[..n], of.hidden);
                }
                self.through(0, row, 0..1, 0, of.hidden);
                of.hidden.fill(0.0);
            }
            RnnKind::Gru { linear_before_reset } => {
                self.gru_gradient(row, linear_before_reset, before, of.hidden, space)
            }
            RnnKind::Lstm { input_forget } => self.lstm_gradient(row, input_forget, before, of, space),
        }
    }

    fn gru_gradient(
        &self,
        row: &mut [f32],
        reset_after: bool,
        before: Before<'_>,
        of_h: &mut [f32],
        space: &mut [f32],
    ) {
        let n = self.hidden;
        let place = if reset_after { 3 } else { 2 };
        let (gates, space) = space.split_at_mut(2 * n);
        let space = &mut space[..n];
        let h = before.hidden.as_ptr();
        // SAFETY: the row has these places; the others hold `n` elements.
        unsafe {
            let (z, candidate) = (row.as_ptr(), row.as_ptr().add(place * n));
            if self.state_clip.is_some() {
                gru_state(n, z, candidate, h, space.as_mut_ptr());
                self.through_state_clip(space, of_h);
            }
            gru_gates(n, z, candidate, h, of_h.as_mut_ptr(), [gates.as_mut_ptr(), space.as_mut_ptr()]);
        }
        self.through(1, row, 2..3, place, space);
        if !reset_after {
            return self.through(0, row, 0..1, 0, &gates[..n]);
        }
        // candidate = g(x + r · product)
        // SAFETY: the row has four places, `gates` two.
        unsafe {
            let from = row.as_mut_ptr();
            let (r, product) = (from.add(n), from.add(2 * n));
            factors(n, from.add(3 * n), r, product, [gates.as_mut_ptr().add(n), product]);
        }
        self.through(0, row, 0..2, 0, gates);
    }

    /// The reset gate of a GRU that resets before the product, from the gradient of the reset hidden state.
    pub fn reset_gradient(&self, row: &mut [f32], h: &[f32], of_reset: &mut [f32], of_h: &mut [f32]) {
        let n = self.hidden;
        assert!(h.len() == n && of_reset.len() == n && of_h.len() == n);
        add_product(&row[n..2 * n], of_reset, of_h);
        of_reset.iter_mut().zip(h).for_each(|(of, h)| *of *= h);
        self.through(0, row, 1..2, 1, of_reset);
    }

    fn lstm_gradient(
        &self,
        row: &mut [f32],
        input_forget: bool,
        before: Before<'_>,
        of: &mut OfState<'_>,
        space: &mut [f32],
    ) {
        let n = self.hidden;
        assert!(before.cell.len() == n && of.cell.len() == n);
        let (cell, space) = space.split_at_mut(n);
        let (shown, space) = space.split_at_mut(n);
        let (of_i, space) = space.split_at_mut(n);
        let (of_f, of_g) = space[..2 * n].split_at_mut(n);
        // The cell state, and what is shown of it.
        // SAFETY: the row has four places, the others hold `n` elements.
        unsafe { lstm_state(n, row.as_ptr(), before.cell.as_ptr(), cell.as_mut_ptr()) };
        bound(self.state_clip, cell);
        apply(self.activations[2], cell, shown);
        let (of_output, of_shown) = (&mut *of_i, &mut *of_f);
        // SAFETY: as above.
        unsafe {
            let to = [of_output.as_mut_ptr(), of_shown.as_mut_ptr()];
            lstm_shown(n, of.hidden.as_ptr(), row.as_ptr().add(n), shown.as_ptr(), to);
        }
        of.hidden.fill(0.0);
        through_results(self.activations[2], cell, shown, of_shown);
        of.cell.iter_mut().zip(&*of_shown).for_each(|(of, shown)| *of += shown);
        self.through(0, row, 1..2, 1, of_output);
        if let Some(peepholes) = self.peepholes {
            add_product(&row[n..2 * n], &peepholes[n..2 * n], of.cell);
        }
        if let Some(sums) = &mut of.peepholes {
            add_product(&row[n..2 * n], cell, &mut sums[n..2 * n]);
        }
        if let Some(clip) = self.state_clip {
            through_results(bounds(clip), cell, cell, of.cell);
        }
        // SAFETY: as above.
        unsafe {
            let to = [of_i.as_mut_ptr(), of_f.as_mut_ptr(), of_g.as_mut_ptr()];
            lstm_gates(n, row.as_ptr(), before.cell.as_ptr(), of.cell.as_mut_ptr(), to);
        }
        if input_forget {
            // f = 1 - i
            of_i.iter_mut().zip(&*of_f).for_each(|(i, f)| *i -= f);
            row[2 * n..3 * n].fill(0.0);
        } else {
            self.through(0, row, 2..3, 2, of_f);
        }
        self.through(0, row, 0..1, 0, of_i);
        self.through(1, row, 3..4, 3, of_g);
        // Those of the input and the forget gate saw the state before.
        for gate in [0, 2] {
            let (gradient, place) = (&row[gate * n..][..n], gate * n..(gate + 1) * n);
            if let Some(peepholes) = self.peepholes {
                add_product(gradient, &peepholes[place.clone()], of.cell);
            }
            if let Some(sums) = &mut of.peepholes {
                add_product(gradient, before.cell, &mut sums[place]);
            }
        }
    }

    /// From the gradient of some gates' values to that of their sums, which takes the values' place.
    fn through(
        &self,
        activation: usize,
        row: &mut [f32],
        gates: Range<usize>,
        place: usize,
        gradient: &[f32],
    ) {
        let n = self.hidden;
        let (values, sums) = row.split_at_mut(self.places * n);
        let values = &mut values[place * n..][..gates.len() * n];
        assert_eq!(gradient.len(), values.len());
        let to = values.as_mut_ptr();
        let x = if self.keeps_sums { sums[gates.start * n..gates.end * n].as_ptr() } else { to.cast_const() };
        let run = Through { gradient: gradient.as_ptr(), x, y: to, to, len: values.len() };
        // SAFETY: all have one length.
        unsafe {
            activation_gradient(self.activations[activation], run);
            if let Some(clip) = self.clip {
                activation_gradient(bounds(clip), Through { gradient: to, y: x, ..run });
            }
        }
    }

    /// Through the bound of a hidden state, which is given before it was bounded.
    fn through_state_clip(&self, state: &mut [f32], gradient: &mut [f32]) {
        let Some(clip) = self.state_clip else { return };
        bound(Some(clip), state);
        through_results(bounds(clip), state, state, gradient);
    }
}
