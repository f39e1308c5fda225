//! Matrix products.

use super::{values, view, view_mut};
use crate::{batched_gemm, gemm};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn products_match_loops(
        m in 0usize..20,
        n in 0usize..20,
        k in 0usize..20,
        batch in 1usize..3,
        transpose in any::<bool>(),
        beta in 0u8..2,
    ) {
        let (a, b) = (values(batch * m * k), values(batch * k * n));
        let beta = f64::from(beta);
        let mut c = vec![0.5f64; batch * m * n];
        let (bi, mi, ni, ki) = (batch as i64, m as i64, n as i64, k as i64);
        let va = if transpose {
            view(&a, &[bi, ki, mi]).permute(&[0, 2, 1]).expect("permutes")
        } else {
            view(&a, &[bi, mi, ki])
        };
        batched_gemm(
            &va,
            &view(&b, &[bi, ki, ni]),
            &mut view_mut(&mut c, &[bi, mi, ni]),
            2.0,
            beta,
        )
        .expect("multiplies");
        for (p, got) in c.iter().enumerate() {
            let (t, i, j) = (p / (m * n), p / n % m, p % n);
            let at = |q: usize| {
                if transpose { a[t * m * k + q * m + i] } else { a[t * m * k + i * k + q] }
            };
            let want: f64 =
                beta * 0.5 + 2.0 * (0..k).map(|q| at(q) * b[t * k * n + q * n + j]).sum::<f64>();
            prop_assert!((got - want).abs() < 1e-9, "{got} {want}");
        }
    }
}

#[test]
fn products_of_narrow_types_wrap() {
    let (a, b) = ([100i8, 100, 1, 2], [100i8, 1, 100, 1]);
    let mut c = [0i8; 4];
    gemm(&view(&a, &[2, 2]), &view(&b, &[2, 2]), &mut view_mut(&mut c, &[2, 2]), 1.0, 0.0).unwrap();
    assert_eq!(c, [(20000i64 as i8), -56, (300i64 as i8), 3]);
}

#[test]
fn panels_change_no_bit() {
    // A wide product is split into panels. The result must have the bits of one call without
    // panels.
    let (m, k, n) = (70usize, 90usize, 300usize);
    let (a, b): (Vec<f32>, Vec<f32>) = (
        values(m * k).iter().map(|x| *x as f32).collect(),
        values(k * n).iter().map(|x| *x as f32 * 0.37).collect(),
    );
    let mut c = vec![f32::NAN; m * n];
    gemm(&view(&a, &[70, 90]), &view(&b, &[90, 300]), &mut view_mut(&mut c, &[70, 300]), 1.0, 0.0)
        .unwrap();
    let mut whole = vec![0f32; m * n];
    // SAFETY: sizes and strides describe the three buffers.
    unsafe {
        ::gemm::gemm(
            m,
            n,
            k,
            whole.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            1,
            n as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            ::gemm::Parallelism::None,
        );
    }
    assert_eq!(c, whole);
}
