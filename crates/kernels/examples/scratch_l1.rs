use maquette_kernels::*;
use std::time::Instant;
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 4099) as f32 / 2048.0 - 1.0).collect()
}
fn view<'a>(x: &'a [f32], rows: usize, columns: usize) -> View<'a> {
    View::from_slice_sized(x, &[rows as i64, columns as i64]).expect("fits")
}
fn main() {
    for [m, k, n] in [
        [256, 128, 48],
        [256, 256, 48],
        [256, 384, 48],
        [256, 512, 48],
        [64, 512, 48],
        [256, 128, 64],
        [256, 512, 64],
        [64, 128, 48],
        [64, 128, 64],
        [512, 512, 192],
        [512, 512, 256],
    ] {
        let (a, b, mut c) = (numbers(m * k), numbers(k * n), vec![0f32; m * n]);
        let w = PackedMatrix::new(&view(&b, k, n)).unwrap();
        let mut best: Vec<f64> = vec![];
        for _ in 0..200 {
            let mut out = ViewMut::from_slice_sized(&mut c, &[m as i64, n as i64]).unwrap();
            let t = Instant::now();
            for _ in 0..10 {
                packed_product(&view(&a, m, k), &w, &Epilogue::default(), &mut out).unwrap();
            }
            best.push(t.elapsed().as_secs_f64() / 10.0);
        }
        best.sort_by(f64::total_cmp);
        let f = 2.0 * (m * k * n) as f64 / 1e9;
        println!("{m}x{k}x{n}: median {:.0} best {:.0}", f / best[100], f / best[0]);
    }
}
