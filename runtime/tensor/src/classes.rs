//! From scores of classes to probabilities.

use crate::Tensor;
use crate::backend::Backend;
use crate::check::ensure;
use alloc::vec::Vec;

/// Probabilities of classes `[samples, classes]` from those of pairs `[samples, classes, classes]`: how likely class `i` is where it
/// is `i` or `j`. By pairwise coupling (Wu, Lin and Weng 2004, "Probability Estimates for Multi-class Classification by Pairwise
/// Coupling", the second method), with the steps and the precision of LIBSVM, which stops early: so probabilities are the same. Each
/// sample rests once it is precise enough. At most 100 rounds over all classes.
///
/// # Panics
/// When there are not as many rows as columns.
pub fn pairwise_coupling<B: Backend>(pairs: Tensor<B, 3>) -> Tensor<B, 2> {
    let [samples, classes, columns] = pairs.dims();
    ensure!(classes == columns, "pairwise_coupling", "pairs are {}, not square", pairs.shape());
    let (device, dtype) = (pairs.device(), pairs.dtype());
    if samples * classes == 0 {
        return Tensor::zeros([samples, classes], (&device, dtype));
    }
    let precision = 0.005 / classes as f64;
    let turned = pairs.clone().swap_dims(1, 2);
    let own = Tensor::<B, 2>::eye(classes, &device).cast(dtype).reshape([1, classes, classes]);
    // What is minimized is `pᵀ Q p`: squares of the others' chances on the diagonal, products beside it.
    let others = own.clone().neg().add_scalar(1.0);
    let squares = turned.clone().mul(turned.clone()).mul(others.clone()).sum_dim(2);
    let q = own.mul(squares).sub(pairs.mul(turned).mul(others));
    let rows: Vec<Tensor<B, 2>> =
        (0..classes).map(|n| q.clone().narrow(1, n, 1).reshape([samples, classes])).collect();
    let mut p = Tensor::<B, 2>::full([samples, classes], 1.0 / classes as f64, (&device, dtype));
    for _ in 0..100 {
        let mut qp: Tensor<B, 2> =
            q.clone().mul(p.clone().reshape([samples, 1, classes])).sum_dim(2).reshape([samples, classes]);
        let mut pqp = p.clone().mul(qp.clone()).sum_dim(1);
        let is_precise = qp.clone().sub(pqp.clone()).abs().max_dim(1).lower_elem(precision);
        let mut next = p.clone();
        for (n, row) in rows.iter().enumerate() {
            let diagonal = row.clone().narrow(1, n, 1);
            let at = qp.clone().narrow(1, n, 1);
            let step = pqp.clone().sub(at.clone()).div(diagonal.clone());
            let whole = step.clone().add_scalar(1.0);
            let gain = step.clone().mul(step.clone().mul(diagonal).add(at.mul_scalar(2.0)));
            pqp = pqp.add(gain).div(whole.clone()).div(whole.clone());
            qp = qp.add(row.clone().mul(step.clone())).div(whole.clone());
            let changed = next.clone().narrow(1, n, 1).add(step);
            next = next.slice_assign([0..samples, n..n + 1], changed).div(whole);
        }
        p = next.mask_where(is_precise.expand([samples, classes]), p);
    }
    p
}
