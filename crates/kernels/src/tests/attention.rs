//! Scaled dot-product attention.

use super::{values, view, view_mut};
use crate::{Attention, attention};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Compares with the definition, for transposed keys and several block sizes.
    #[test]
    fn attention_matches_its_definition(
        b in 1usize..3,
        n in 0usize..40,
        l in 0usize..40,
        e in 0usize..5,
        d in 0usize..5,
        causal in any::<bool>(),
        kind in 0u8..3,
    ) {
        let (q, k, v) = (values(b * n * e), values(b * l * e), values(b * l * d));
        let (seen, added) =
            (values(n * l).iter().map(|x| *x > 0.0).collect::<Vec<bool>>(), values(n * l));
        let [bi, ni, li, ei, di] = [b, n, l, e, d].map(|x| x as i64);
        let mask = match kind {
            0 => None,
            1 => Some(view(&seen, &[ni, li])),
            _ => Some(view(&added, &[1, ni, li])),
        };
        let (mut out, mut lse) = (vec![7.0f64; b * n * d], vec![7.0f64; b * n]);
        // The keys are stored transposed.
        let keys: Vec<f64> = (0..b * e * l)
            .map(|p| k[p / (e * l).max(1) * e * l + p % l.max(1) * e + p / l.max(1) % e.max(1)])
            .collect();
        let key = view(&keys, &[bi, ei, li]).permute(&[0, 2, 1]).expect("permutes");
        let options = Attention {
            scale: 0.5,
            causal,
            mask,
            round: false,
            plain_softmax: false,
            logsumexp: Some(view_mut(&mut lse, &[bi, ni])),
        };
        attention(
            &view(&q, &[bi, ni, ei]),
            &key,
            &view(&v, &[bi, li, di]),
            options,
            &mut view_mut(&mut out, &[bi, ni, di]),
        )
        .expect("attends");
        for (t, i) in (0..b).flat_map(|t| (0..n).map(move |i| (t, i))) {
            let score = |j: usize| -> f64 {
                let dot: f64 =
                    (0..e).map(|c| q[(t * n + i) * e + c] * k[(t * l + j) * e + c]).sum();
                let hidden = causal && j > i || kind == 1 && !seen[i * l + j];
                if hidden {
                    f64::NEG_INFINITY
                } else {
                    0.5 * dot + if kind == 2 { added[i * l + j] } else { 0.0 }
                }
            };
            let sum: f64 = (0..l).map(|j| score(j).exp()).sum();
            let expected = if sum == 0.0 { 0.0 } else { sum.ln() };
            prop_assert!((lse[t * n + i] - expected).abs() < 1e-9, "{} {expected}", lse[t * n + i]);
            for c in 0..d {
                let weighted: f64 = (0..l).map(|j| score(j).exp() * v[(t * l + j) * d + c]).sum();
                let (found, expected) =
                    (out[(t * n + i) * d + c], if sum == 0.0 { 0.0 } else { weighted / sum });
                prop_assert!((found - expected).abs() < 1e-9, "{found} {expected}");
            }
        }
    }
}
