use maquette_kernels::*;
use std::time::Instant;
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 4099) as f32 / 2048.0 - 1.0).collect()
}
fn view<'a>(x: &'a [f32], rows: usize, columns: usize) -> View<'a> {
    View::from_slice_sized(x, &[rows as i64, columns as i64]).expect("fits")
}
fn main() {
    let threads = num_threads();
    let shapes = [[512, 256, 768], [512, 256, 256], [512, 256, 1024], [512, 1024, 256]];
    let mut cases: Vec<(&str, [usize; 3])> = vec![];
    for s in shapes {
        cases.push(("fwd", s));
    }
    for [m, k, n] in shapes {
        cases.push(("dx", [m, n, k]));
        cases.push(("dw", [n, m, k]));
    }
    let only = std::env::args().nth(1);
    let rounds: usize = std::env::args().nth(2).map_or(120, |x| x.parse().unwrap());
    let mut total = [0.0f64; 3];
    for (kind, [m, k, n]) in cases {
        if only.as_ref().is_some_and(|o| o != "all" && *o != format!("{kind}{m}x{k}x{n}")) {
            continue;
        }
        let mut line = format!("{kind:4} {m}x{k}x{n}");
        for (col, copies) in [1usize, 10].into_iter().enumerate() {
            let mut sets: Vec<_> =
                (0..copies).map(|_| (numbers(m * k), numbers(k * n), vec![0f32; m * n])).collect();
            let mut best = f64::MAX;
            let mut all = vec![];
            for round in 0..rounds {
                let len = sets.len();
                let (a, b, c) = &mut sets[round % len];
                let (av, bv) = match kind {
                    "fwd" => (view(a, m, k), view(b, n, k).permute(&[1, 0]).unwrap()),
                    "dx" => (view(a, m, k), view(b, k, n)),
                    _ => (view(a, k, m).permute(&[1, 0]).unwrap(), view(b, k, n)),
                };
                let mut out = ViewMut::from_slice_sized(c, &[m as i64, n as i64]).unwrap();
                let t = Instant::now();
                product(&av, &bv, &Epilogue::default(), &mut out).unwrap();
                let t = t.elapsed().as_secs_f64();
                if round > 20 {
                    best = best.min(t);
                    all.push(t);
                }
            }
            all.sort_by(f64::total_cmp);
            let med = all[all.len() / 2];
            let f = 2.0 * (m * k * n) as f64;
            line += &format!(
                "  {:7.1} us {:4.0} GF (best {:4.0})",
                med * 1e6,
                f / med / 1e9,
                f / best / 1e9
            );
            total[col] += med;
        }
        println!("{line}");
    }
    println!("{threads} threads, total {:.0} {:.0} us", total[0] * 1e6, total[1] * 1e6);
}
