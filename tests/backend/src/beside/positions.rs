//! Positions that name rows, and those that name none: the CPU stops at these, and other devices read and write nothing.

use super::{integers, on, read, reals, whole};
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::CrossEntropyOptions;
use kiln_tensor::{DType, ScatterOp};

const ROWS: usize = 4;
const WIDTH: usize = 3;

fn numbers<B: Backend>(rows: usize, first: usize) -> B::Primitive {
    let numbers: Vec<f64> = (first..first + rows * WIDTH).map(|n| n as f64).collect();
    on::<B>(reals(&numbers, &[rows, WIDTH], DType::F32))
}

fn floats<B: Backend>(tensor: B::Primitive) -> Vec<f64> {
    read::<B>(tensor).iter::<f64>().collect()
}

/// In lanes of which each element looks at those that come later, in those of which a table is made, and in those that are brought into the order of their rows.
pub fn rows_that_are_not_there<B: Backend>() {
    for (index, lane) in integers::<B>().flat_map(|index| [7, 91, 700].map(|lane| (index, lane))) {
        let beyond = [1, -1, 4, 3, 9, (1 << 32) + 2, i64::MIN];
        let names = whole(&(0..lane).map(|n| beyond[n % 7]).collect::<Vec<_>>(), &[lane], index);
        let rows: Vec<Option<usize>> =
            names.iter::<f64>().map(|name| (0..ROWS).find(|&row| row as f64 == name)).collect();
        let names = || on::<B>(names.clone());

        let found = floats::<B>(B::select(numbers::<B>(ROWS, 1), 0, names()));
        for (found, &row) in found.chunks(WIDTH).zip(&rows) {
            match row {
                Some(row) => assert!(found.iter().zip(1 + row * WIDTH..).all(|(&x, n)| x == n as f64)),
                None => assert!(found.iter().all(|x| x.is_nan()), "{index}: {found:?}"),
            }
        }
        let whole_rows = B::cast(numbers::<B>(ROWS, 1), DType::I32);
        let found = floats::<B>(B::select(whole_rows, 0, names()));
        assert!(found.chunks(WIDTH).zip(&rows).all(|(found, row)| row.is_some() || found == [0.0; WIDTH]));

        for op in [ScatterOp::Assign, ScatterOp::Add] {
            let mut expected: Vec<f64> = (1..1 + ROWS * WIDTH).map(|n| n as f64).collect();
            for (n, row) in rows.iter().enumerate() {
                let Some(row) = row else { continue };
                for column in 0..WIDTH {
                    let (to, new) = (&mut expected[row * WIDTH + column], (100 + n * WIDTH + column) as f64);
                    *to = if op == ScatterOp::Add { *to + new } else { new };
                }
            }
            let values = numbers::<B>(lane, 100);
            let found = B::select_assign(numbers::<B>(ROWS, 1), 0, names(), values, op);
            assert_eq!(floats::<B>(found), expected, "{op:?} by {index}");
        }

        let mut expected = vec![0.0; ROWS * WIDTH];
        for (n, row) in rows.iter().enumerate() {
            for column in (0..WIDTH).filter(|_| row.is_some()) {
                expected[row.unwrap_or(0) * WIDTH + column] += (n * WIDTH + column) as f64;
            }
        }
        assert_eq!(floats::<B>(B::embedding_gradient(numbers::<B>(lane, 0), names(), ROWS)), expected);

        let options = CrossEntropyOptions { ignored: Vec::new(), smoothing: 0.0 };
        let logits = on::<B>(reals(&vec![0.0; lane * ROWS], &[lane, ROWS], DType::F32));
        let found = floats::<B>(B::cross_entropy_train(logits, names(), None, &options).losses);
        for (loss, row) in found.into_iter().zip(&rows) {
            let is_right = match row {
                Some(_) => (loss - 4_f64.ln()).abs() < 1e-6,
                None => loss.is_nan(),
            };
            assert!(is_right, "{row:?} by {index}: {loss}");
        }
    }
}
