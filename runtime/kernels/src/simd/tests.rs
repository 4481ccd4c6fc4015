//! The parts of [`Simd`] that no kernel's test would show to be wrong by itself.

use super::forced::at_each_level;

dispatched! {
    /// Partial loads and stores, every second element, sums, rounding.
    unsafe fn exercise<S>(s, x: &[f32; 64], out: &mut [f32; 64]) {
        for n in 0..S::LANES {
            let part = s.load_first(x.as_ptr(), n);
            for (i, lane) in s.to_array(part).iter().enumerate().take(S::LANES) {
                assert_eq!(*lane, if i < n { x[i] } else { 0.0 });
            }
            out.fill(-7.0);
            s.store_first(out.as_mut_ptr(), n, s.load(x.as_ptr()));
            assert!(out.iter().enumerate().all(|(i, &y)| y == if i < n { x[i] } else { -7.0 }));
        }
        let even = s.to_array(s.load_even(x.as_ptr()));
        assert!((0..S::LANES).all(|i| even[i] == x[2 * i]));
        assert_eq!(s.sum(s.load(x.as_ptr())), x[..S::LANES].iter().sum::<f32>());
        let mut rows = [s.splat(0.0); 16];
        for i in 0..S::LANES {
            let row: [f32; 16] = core::array::from_fn(|j| (i * 16 + j) as f32);
            rows[i] = s.load(row.as_ptr());
        }
        for (j, column) in s.transpose(rows).into_iter().enumerate().take(S::LANES) {
            assert!((0..S::LANES).all(|i| s.to_array(column)[i] == (i * 16 + j) as f32));
        }
        let halves = s.to_array(s.round(s.splat(2.5)));
        assert_eq!(halves[0], 2.0);
        assert_eq!(s.to_array(s.scale(s.splat(1.5), s.splat(-148.0)))[0], f32::from_bits(3));
        let scaled = |x: f32, n: f32| s.to_array(s.scale_normal(s.splat(x), s.splat(n)))[0];
        assert_eq!(scaled(1.5, -126.0), 1.5 * f32::MIN_POSITIVE);
        assert_eq!(scaled(0.75, 127.0), 0.75 * 2.0_f32.powi(127));
        assert_eq!([scaled(1.5, -300.0), scaled(1.5, 128.0)], [0.0, f32::INFINITY]);
        for x in [2.75, -2.75, -3.0, 0.0] {
            let (whole, fraction) = s.split(s.splat(x));
            assert_eq!(s.to_array(fraction)[0], x - x.floor());
            assert_eq!(s.to_array(s.scale_down(s.splat(1.5), whole))[0], 1.5 * x.floor().exp2());
        }
        let scaled_down = |n: f32| s.to_array(s.scale_down(s.splat(1.5), s.splat(n)))[0];
        assert_eq!(scaled_down(-125.0), 3.0 * f32::MIN_POSITIVE);
        assert_eq!([scaled_down(-125.5), scaled_down(f32::NEG_INFINITY)], [0.0; 2]);
        assert!(s.to_array(s.scale_down(s.splat(f32::NAN), s.splat(f32::NAN)))[0].is_nan());
        assert!(scaled(f32::NAN, 0.0).is_nan() && scaled(f32::NAN, f32::NAN).is_nan());
        assert!(s.to_array(s.max(s.splat(0.0), s.splat(f32::NAN)))[0].is_nan());
        assert_eq!(s.to_array(s.max(s.splat(f32::NAN), s.splat(0.0)))[0], 0.0);
        assert_eq!(s.to_array(s.sub_product(s.splat(10.0), s.splat(2.0), s.splat(3.0)))[0], 4.0);
    }
}

#[test]
fn vectors_do_what_their_trait_says() {
    let x: [f32; 64] = core::array::from_fn(|i| i as f32 * 0.5 + 1.0);
    at_each_level(|_| {
        // SAFETY: the arrays are longer than two vectors.
        unsafe { exercise(&x, &mut [0.0; 64]) };
    });
}
