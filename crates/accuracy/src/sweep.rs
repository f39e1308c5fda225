//! Evaluates a function at many arguments, on every instruction set and several threads.

use super::big::Big;
use super::functions::{Binary, Parity, Unary};
use super::ulp::{Errors, Format, error};
use super::{Error, Kernel, Op, instruction_sets};
use maquette_kernels::Isa;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of arguments in one kernel call.
const BLOCK: usize = 1 << 14;

/// A range of bit patterns of non-negative numbers and NaNs. Each pattern is evaluated with both
/// signs.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first pattern.
    pub first: u64,
    /// The distance between patterns.
    pub step: u64,
    /// The number of patterns.
    pub count: u64,
}

/// Every `step`-th pattern of a dtype.
pub fn patterns<T: Format>(step: u64) -> Vec<Span> {
    let all = 1u64 << (T::BITS - 1);
    vec![Span { first: 0, step, count: all.div_ceil(step) }]
}

/// The patterns around each of `points`, up to `reach` on each side.
pub fn about<T: Format>(points: &[T], reach: u64) -> Vec<Span> {
    let span = |x: &T| {
        let bits = x.pattern() & !(1 << (T::BITS - 1));
        let first = bits.saturating_sub(reach);
        Span { first, step: 1, count: (bits + reach + 1).min(1 << (T::BITS - 1)) - first }
    };
    points.iter().map(span).collect()
}

/// Special points: zero, the ends of the subnormal range, the boundaries of the functions' domains
/// and of their branches, infinity, NaN.
pub const EDGES: &[f32] = &[
    0.0,
    f32::MIN_POSITIVE,
    1e-3,
    0.25,
    0.5,
    0.625,
    std::f32::consts::FRAC_1_SQRT_2,
    std::f32::consts::FRAC_PI_4,
    1.0,
    std::f32::consts::SQRT_2,
    std::f32::consts::FRAC_PI_2,
    std::f32::consts::PI,
    4.0,
    9.0,
    10.0,
    20.0,
    38.5,
    44.0,
    87.33655,
    88.72284,
    103.97208,
    126.0,
    128.0,
    149.0,
    150.0,
    1.0e14,
    f32::MAX,
    f32::INFINITY,
    f32::NAN,
];

/// Pseudo-random arguments, by SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of random sign, whose exponent is uniform in `lo..hi`.
    fn exponents(&mut self, lo: f64, hi: f64) -> f64 {
        let x = (1.0 + self.unit()) * (lo + (hi - lo) * self.unit()).floor().exp2();
        if self.next() & 1 == 0 { x } else { -x }
    }

    /// An argument: with random bits, of a moderate size, or near 1.
    fn argument(&mut self) -> f64 {
        match self.next() % 8 {
            0 => f64::from_bits(self.next()),
            1 => 1.0 + self.exponents(-52.0, -1.0),
            2 | 3 => self.exponents(-60.0, 12.0),
            _ => self.exponents(-6.0, 10.0),
        }
    }

    /// A pair of arguments: with random bits, with finite powers, or of similar size.
    fn pair<T: Format>(&mut self) -> [T; 2] {
        match self.next() % 4 {
            0 => [T::from_pattern(self.next()), T::from_pattern(self.next())],
            1 => [1.0 + self.exponents(-20.0, -1.0), self.exponents(0.0, 20.0)].map(T::narrow),
            2 => [self.exponents(-10.0, 10.0).abs(), self.exponents(-5.0, 4.0)].map(T::narrow),
            _ => [self.exponents(-10.0, 10.0), self.exponents(-10.0, 10.0)].map(T::narrow),
        }
    }
}

/// Calls `work(state, k)` for each `k` in `0..n` on `threads` threads, each with a state of its
/// own. Returns the states.
fn spread<S: Send>(
    n: usize,
    threads: usize,
    work: impl Fn(&mut S, usize) -> Result<(), Error> + Sync,
    new: impl Fn() -> Result<S, Error> + Sync,
) -> Result<Vec<S>, Error> {
    let next = AtomicUsize::new(0);
    let one = || {
        let mut state = new()?;
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= n {
                return Ok(state);
            }
            work(&mut state, k)?;
        }
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(one)).collect();
        handles.into_iter().map(|h| h.join().unwrap_or(Err(Error::Thread))).collect()
    })
}

/// The errors of all threads together.
fn merged<T>(parts: Vec<T>, errors: impl Fn(&T) -> &Errors) -> Errors {
    let mut all = Errors::default();
    for p in &parts {
        all.merge(errors(p));
    }
    all
}

/// A kernel, with buffers for a block of arguments and results.
struct Bench<T> {
    kernel: Kernel,
    isas: Vec<Isa>,
    x: Vec<T>,
    y: Vec<T>,
    out: Vec<T>,
    again: Vec<T>,
    exact: Vec<f64>,
    errors: Errors,
}

impl<T: Format> Bench<T> {
    fn new(op: Op) -> Result<Self, Error> {
        let (x, y, out, again, exact) = Default::default();
        Ok(Bench {
            kernel: Kernel::new(op, T::DTYPE)?,
            isas: instruction_sets(),
            x,
            y,
            out,
            again,
            exact,
            errors: Errors::default(),
        })
    }

    /// Evaluates `x` (and `y`) on every instruction set. The results of the best one are left in
    /// `out`; results that differ between instruction sets are counted.
    fn run(&mut self) -> Result<(), Error> {
        self.out.resize(self.x.len(), T::default());
        self.again.resize(self.x.len(), T::default());
        for (k, isa) in self.isas.iter().enumerate() {
            let out = if k == 0 { &mut self.out } else { &mut self.again };
            self.kernel.run(*isa, &self.x, &self.y, out)?;
            if k == 0 {
                continue;
            }
            for (i, (a, b)) in self.out.iter().zip(&self.again).enumerate() {
                if a.pattern() != b.pattern() {
                    self.errors.add_difference(arguments(&self.x, &self.y, i));
                }
            }
        }
        Ok(())
    }

    /// Compares the results with the references in `exact`.
    fn compare(&mut self) {
        for (i, (got, exact)) in self.out.iter().zip(&self.exact).enumerate() {
            self.errors.add(arguments(&self.x, &self.y, i), error(*got, *exact));
        }
    }
}

/// The bit patterns of the `i`-th arguments.
fn arguments<T: Format>(x: &[T], y: &[T], i: usize) -> [u64; 2] {
    [x, y].map(|v| v.get(i).map_or(0, |v| v.pattern()))
}

/// Measures a function on spans of a dtype narrower than `f64`, against its `f64` reference.
pub fn unary<T: Format>(f: &Unary, spans: &[Span], threads: usize) -> Result<Errors, Error> {
    let blocks: Vec<Span> = spans
        .iter()
        .flat_map(|s| {
            (0..s.count.div_ceil(BLOCK as u64)).map(|b| {
                let done = b * BLOCK as u64;
                Span {
                    first: s.first + done * s.step,
                    step: s.step,
                    count: (s.count - done).min(BLOCK as u64),
                }
            })
        })
        .collect();
    let sign = 1u64 << (T::BITS - 1);
    let work = |bench: &mut Bench<T>, k: usize| {
        let Some(span) = blocks.get(k) else { return Ok(()) };
        for negative in [false, true] {
            let bits = |i: u64| (span.first + i * span.step) | if negative { sign } else { 0 };
            bench.x.clear();
            bench.x.extend((0..span.count).map(|i| T::from_pattern(bits(i))));
            bench.run()?;
            if negative && f.parity != Parity::Neither {
                if f.parity == Parity::Odd {
                    bench.exact.iter_mut().for_each(|e| *e = -*e);
                }
            } else {
                bench.exact.clear();
                bench.exact.extend(bench.x.iter().map(|x| (f.exact)(x.wide())));
            }
            bench.compare();
        }
        Ok(())
    };
    Ok(merged(spread(blocks.len(), threads, work, || Bench::new(Op::Unary(f.op)))?, |b| &b.errors))
}

/// Measures a function on `n` pseudo-random pairs and all pairs of edges.
pub fn binary<T: Format>(f: &Binary, n: u64, threads: usize) -> Result<Errors, Error> {
    let blocks = n.div_ceil(BLOCK as u64) as usize;
    let work = |bench: &mut Bench<T>, k: usize| {
        bench.x.clear();
        bench.y.clear();
        if k == blocks {
            for x in EDGES.iter().flat_map(|x| [*x, -*x]) {
                for y in EDGES.iter().flat_map(|y| [*y, -*y]) {
                    bench.x.push(T::narrow(f64::from(x)));
                    bench.y.push(T::narrow(f64::from(y)));
                }
            }
        } else {
            let mut random = Random(k as u64);
            for _ in 0..BLOCK {
                let [x, y] = random.pair::<T>();
                bench.x.push(x);
                bench.y.push(y);
            }
        }
        bench.run()?;
        bench.exact.clear();
        bench
            .exact
            .extend(bench.x.iter().zip(&bench.y).map(|(x, y)| (f.exact)(x.wide(), y.wide())));
        bench.compare();
        Ok(())
    };
    Ok(merged(spread(blocks + 1, threads, work, || Bench::new(f.op))?, |b| &b.errors))
}

/// Measures an `f64` function on `n` pseudo-random arguments and the edges, against arbitrary
/// precision.
pub fn unary_f64(f: &Unary, n: u64, threads: usize) -> Result<Errors, Error> {
    let exact = |big: &mut Big, got: f64, [x, _]: [f64; 2]| {
        big.error(got, (f.exact)(x), x != 0.0 && x.is_finite(), |b| b.unary(f.op, x))
    };
    wide(Op::Unary(f.op), n, threads, |r| [r.argument(), 0.0], exact)
}

/// Measures an `f64` function on `n` pseudo-random pairs and all pairs of edges, against arbitrary
/// precision.
pub fn binary_f64(f: &Binary, n: u64, threads: usize) -> Result<Errors, Error> {
    let exact = |big: &mut Big, got: f64, [x, y]: [f64; 2]| {
        let finite = x != 0.0 && y != 0.0 && x.is_finite() && y.is_finite();
        big.error(got, (f.exact)(x, y), finite, |b| b.binary(f.op, x, y))
    };
    wide(f.op, n, threads, Random::pair::<f64>, exact)
}

/// Measures an `f64` function on samples and edges.
fn wide(
    op: Op,
    n: u64,
    threads: usize,
    sample: impl Fn(&mut Random) -> [f64; 2] + Sync,
    error: impl Fn(&mut Big, f64, [f64; 2]) -> Option<f64> + Sync,
) -> Result<Errors, Error> {
    /// The arguments of one work item: fewer than a block, since arbitrary precision is slow.
    const PIECE: u64 = 256;
    let pieces = n.div_ceil(PIECE) as usize;
    let two = matches!(op, Op::Binary(_));
    let work = |(bench, big): &mut (Bench<f64>, Big), k: usize| {
        let arguments: Vec<[f64; 2]> = if k == pieces {
            let edges = || EDGES.iter().flat_map(|x| [*x, -*x]).map(f64::from);
            edges()
                .flat_map(|x| edges().take(if two { usize::MAX } else { 1 }).map(move |y| [x, y]))
                .collect()
        } else {
            let mut random = Random(k as u64);
            (0..PIECE).map(|_| sample(&mut random)).collect()
        };
        bench.x = arguments.iter().map(|a| a[0]).collect();
        if two {
            bench.y = arguments.iter().map(|a| a[1]).collect();
        }
        bench.run()?;
        for (a, got) in arguments.iter().zip(&bench.out) {
            let at = [a[0].to_bits(), if two { a[1].to_bits() } else { 0 }];
            bench.errors.add(at, error(big, *got, *a));
        }
        Ok(())
    };
    Ok(merged(spread(pieces + 1, threads, work, || Ok((Bench::new(op)?, Big::new()?)))?, |b| {
        &b.0.errors
    }))
}
