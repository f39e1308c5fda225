//! Random fills.

use crate::{Philox, ViewMut, normal, philox4x32, randint, uniform};

#[test]
fn random_numbers() {
    // The published vectors of Philox4x32-10.
    assert_eq!(philox4x32(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(
        philox4x32(u64::MAX, [u32::MAX; 4]),
        [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
    );
    let at = Philox { seed: 7, offset: 3 };
    let (mut a, mut b, mut c) = (vec![0f32; 100_000], vec![0f32; 10], vec![0f32; 100_000]);
    uniform(&mut ViewMut::from_slice(&mut a), at, 0.0, 1.0).unwrap();
    uniform(&mut ViewMut::from_slice(&mut b), at, 0.0, 1.0).unwrap();
    assert_eq!(a[..10], b);
    uniform(&mut ViewMut::from_slice(&mut b), Philox { offset: 4, ..at }, 0.0, 1.0).unwrap();
    assert_eq!(a[4..10], b[..6]);
    let mean = |x: &[f32]| x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
    assert!((mean(&a) - 0.5).abs() < 5e-3 && a.iter().all(|x| (0.0..1.0).contains(x)));
    normal(&mut ViewMut::from_slice(&mut c), at, 1.0, 2.0).unwrap();
    let m = mean(&c);
    let var = c.iter().map(|x| (f64::from(*x) - m).powi(2)).sum::<f64>() / 1e5;
    assert!((m - 1.0).abs() < 0.03 && (var - 4.0).abs() < 0.1, "{m} {var}");
    let mut k = vec![0i64; 1000];
    randint(&mut ViewMut::from_slice(&mut k), at, -2, 3).unwrap();
    assert!((-2..3).all(|v| k.contains(&v)) && k.iter().all(|v| (-2..3).contains(v)));
    assert!(randint(&mut ViewMut::from_slice(&mut k), at, 3, 3).is_err());
}
