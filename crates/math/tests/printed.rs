//! Printed functions compute the bits of the functions: the C compiler that links Rust programs
//! compiles them, and both are given the same numbers.

use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};
use maquette_math::record::{self, LIBM_C, Program, Type};
use maquette_math::{double, single};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, SQRT_2};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// How many arguments each function gets.
const SAMPLES: usize = 1 << 17;

/// A printed function, and the function with numbers. Arguments and results are bits of floats.
struct Function {
    name: String,
    program: Program,
    expected: Box<dyn Fn(u64, u64) -> u64>,
}

impl Function {
    fn is_f32(&self) -> bool {
        self.program.arguments[0] == Type::F32
    }

    /// Which of the lists of arguments it gets: [f32, f64] of one argument, then of two.
    fn list(&self) -> usize {
        2 * (self.program.arguments.len() - 1) + usize::from(!self.is_f32())
    }
}

fn f32_bits(x: f32) -> u64 {
    u64::from(if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
}

fn f64_bits(x: f64) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }
}

/// Every elementary function of both classes.
fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    for &op in UnaryOp::ALL {
        if single::unary(op, 1f32).is_none() {
            continue;
        }
        all.push(Function {
            name: format!("{op}_f32"),
            program: record::function(|x: record::Value<'_, f32>| single::unary(op, x).unwrap()),
            expected: Box::new(move |x, _| {
                f32_bits(single::unary(op, f32::from_bits(x as u32)).unwrap())
            }),
        });
        all.push(Function {
            name: format!("{op}_f64"),
            program: record::function(|x: record::Value<'_, f64>| double::unary(op, x).unwrap()),
            expected: Box::new(move |x, _| f64_bits(double::unary(op, f64::from_bits(x)).unwrap())),
        });
    }
    for op in [BinaryOp::Pow, BinaryOp::Atan2, BinaryOp::Hypot] {
        all.push(Function {
            name: format!("{op}_f32"),
            program: record::function2(|x: record::Value<'_, f32>, y| {
                single::binary(op, x, y).unwrap()
            }),
            expected: Box::new(move |x, y| {
                let [x, y] = [x, y].map(|bits| f32::from_bits(bits as u32));
                f32_bits(single::binary(op, x, y).unwrap())
            }),
        });
        all.push(Function {
            name: format!("{op}_f64"),
            program: record::function2(|x: record::Value<'_, f64>, y| {
                double::binary(op, x, y).unwrap()
            }),
            expected: Box::new(move |x, y| {
                f64_bits(double::binary(op, f64::from_bits(x), f64::from_bits(y)).unwrap())
            }),
        });
    }
    for (name, sin, of) in [
        ("sin_fast_f32", true, single::sin_fast::<f32> as fn(f32) -> f32),
        ("cos_fast_f32", false, single::cos_fast::<f32>),
    ] {
        all.push(Function {
            name: name.to_owned(),
            program: record::function(
                |x: record::Value<'_, f32>| {
                    if sin { single::sin_fast(x) } else { single::cos_fast(x) }
                },
            ),
            expected: Box::new(move |x, _| f32_bits(of(f32::from_bits(x as u32)))),
        });
    }
    all
}

/// Special cases of functions, and numbers at the ends of formats and of their integers.
const SPECIAL: [f64; 29] = [
    0.0,
    1.0,
    0.5,
    2.0,
    3.0,
    4.0,
    1.5,
    2.5,
    f64::INFINITY,
    f64::NAN,
    f64::MIN_POSITIVE,
    f64::MAX,
    5e-324,
    1e-300,
    f32::MIN_POSITIVE as f64,
    f32::MAX as f64,
    1e-45,
    1e-40,
    1.000_000_1,
    0.999_999_9,
    1024.0,
    1075.0,
    16_777_215.0,
    2_147_483_648.0,
    4_503_599_627_370_495.5,
    9_007_199_254_740_991.0,
    9_007_199_254_740_992.0,
    18_446_744_073_709_551_616.0,
    1e300,
];

/// Where functions change from one approximation to another, by magnitude.
const EDGES: [f64; 52] = [
    // exponentials
    0.5 * LN_2,
    1.5 * LN_2,
    20.0 * LN_2,
    56.0 * LN_2,
    LN_2,
    709.782_712_893_384,
    710.475_860_073_944,
    745.133_219_101_941_1,
    88.722_839,
    103.972_08,
    126.0,
    150.0,
    1022.0,
    1024.0,
    1075.0,
    // logarithms
    SQRT_2,
    0.5 * SQRT_2,
    SQRT_2 - 1.0,
    1.0 - 0.5 * SQRT_2,
    1.0,
    2.0,
    // angles
    FRAC_PI_4,
    FRAC_PI_2,
    3.0 * FRAC_PI_4,
    2.0 * FRAC_PI_2,
    5.0 * FRAC_PI_4,
    3.0 * FRAC_PI_2,
    7.0 * FRAC_PI_4,
    4.0 * FRAC_PI_2,
    9.0 * FRAC_PI_4,
    1_048_576.0 * FRAC_PI_2,
    1e14,
    0.6744,
    // inverse functions
    0.5,
    0.975,
    0.4375,
    0.6875,
    1.1875,
    2.4375,
    // the error function and the hyperbolic tangent
    0.84375,
    0.25,
    1.25,
    1.0 / 0.35,
    6.0,
    28.0,
    4.0,
    0.625,
    10.0,
    22.0,
    // beyond these in magnitude, results are arguments or constants
    67_108_864.0,
    73_786_976_294_838_206_464.0,
    134_217_728.0,
];

/// Angles so close to multiples of pi/2 that their reduction needs more digits than others, and
/// angles at the end of one of its cases.
const ANGLES: [u64; 8] = [
    0x7506_ac5b_262c_a1ff,
    0x416b_951f_1572_eba5,
    0x4139_eb71_48f3_54d6,
    0x4060_65c8_29d6_8730,
    0x4260_65c8_29d6_8730,
    0x4294_7f3a_344c_28fc,
    0x413a_3fff_ffff_ffff,
    0x413c_0000_0000_0000,
];

/// Random arguments of a class of floats, as bits (SplitMix64).
struct Arguments {
    state: u64,
    is_f32: bool,
}

impl Arguments {
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random() % end
    }

    /// Between -1 and 1.
    fn signed(&mut self) -> f64 {
        (self.random() as i64 as f64) / (1u64 << 63) as f64
    }

    fn sign(&mut self) -> f64 {
        1f64.copysign(self.signed())
    }

    /// A number whose exponent is from `least` to `greatest`.
    fn of_exponent(&mut self, least: i32, greatest: i32) -> f64 {
        let exponent = least + self.below((greatest - least + 1) as u64) as i32;
        self.sign() * f64::from_bits(1.0f64.to_bits() | self.random() >> 12) * 2f64.powi(exponent)
    }

    /// An integer, or one with a half or a quarter, of any number of bits.
    fn whole(&mut self) -> f64 {
        let bits = 1 + self.below(if self.is_f32 { 26 } else { 60 });
        let unit = [1.0, 1.0, 0.5, 0.25][self.below(4) as usize];
        self.sign() * (self.random() >> (64 - bits)) as f64 * unit
    }

    fn bits(&self, number: f64) -> u64 {
        if self.is_f32 { u64::from((number as f32).to_bits()) } else { number.to_bits() }
    }

    fn number(&self, bits: u64) -> f64 {
        if self.is_f32 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) }
    }

    fn any(&mut self) -> u64 {
        if self.is_f32 { self.random() >> 32 } else { self.random() }
    }

    /// A number near another: few bits away, or few of the 21 bits that `libm` compares.
    fn near(&mut self, number: f64) -> u64 {
        let by = self.below(9) as i64 - 4;
        let by = if self.is_f32 || self.below(2) == 0 { by } else { by << 32 };
        let mask = if self.is_f32 { u64::from(u32::MAX) } else { u64::MAX };
        self.bits(number).wrapping_add_signed(by) & mask
    }

    /// An argument of a function of one argument.
    fn one(&mut self) -> u64 {
        let number = match self.below(16) {
            0..=4 => return self.any(),
            5..=7 => self.of_exponent(-9, 10),
            8 => self.sign() + self.of_exponent(-53, -1),
            9 => 1100.0 * self.signed(),
            10 => 8.0 * self.signed(),
            11 => self.of_exponent(20, if self.is_f32 { 127 } else { 1023 }),
            12 => {
                let bits = if self.is_f32 { 23 } else { 52 };
                let shift = 64 - bits + self.below(bits);
                let subnormal = self.random() >> shift;
                self.sign() * self.number(subnormal)
            }
            13 => {
                let edge = EDGES[self.below(EDGES.len() as u64) as usize];
                let edge = edge * self.sign();
                return self.near(edge);
            }
            _ => {
                let bits = self.below(40);
                let multiple = (self.random() >> (63 - bits)) as f64 * self.sign();
                return self.near(multiple * FRAC_PI_2);
            }
        };
        self.bits(number)
    }

    /// An exponent of two at which powers overflow, underflow or become subnormal, or one nearby.
    fn end(&mut self) -> f64 {
        let ends = if self.is_f32 { [128.0, -126.0, -150.0] } else { [1024.0, -1022.0, -1075.0] };
        ends[self.below(3) as usize] * (1.0 + self.of_exponent(-60, -20))
    }

    /// Arguments of a function of two.
    fn two(&mut self) -> [u64; 2] {
        let [x, other] = [self.one(), self.one()];
        let base = self.number(x);
        let close = 1.0 + self.of_exponent(-53, -15);
        let close = self.number(self.bits(close));
        let limit = if self.is_f32 { 160.0 } else { 1100.0 };
        let [x, y] = match self.below(8) {
            0 | 1 => return [x, other],
            2 => [base, self.whole()],
            3 => [self.of_exponent(-3, 6), self.whole()],
            // powers of every exponent, and those close to the ends
            4 => [base, limit * self.signed() / base.abs().log2()],
            5 => [base, self.end() / base.abs().log2()],
            6 => [close * self.sign(), limit * self.signed() / close.log2()],
            // like exponents
            _ => [base, base * self.of_exponent(-70, 70)],
        };
        [self.bits(x), self.bits(y)]
    }
}

/// The arguments of functions with this many: special numbers first, in all combinations.
fn arguments(count: usize, is_f32: bool) -> Vec<[u64; 2]> {
    let mut random = Arguments { state: 0, is_f32 };
    let special = SPECIAL.into_iter().chain(ANGLES.map(f64::from_bits));
    let special: Vec<u64> = special.flat_map(|x| [x, -x]).map(|x| random.bits(x)).collect();
    let mut all: Vec<[u64; 2]> = match count {
        1 => special.iter().map(|x| [*x, 0]).collect(),
        _ => special.iter().flat_map(|x| special.iter().map(|y| [*x, *y])).collect(),
    };
    while all.len() < SAMPLES {
        all.push(if count == 1 { [random.one(), 0] } else { random.two() });
    }
    all
}

/// A C program that reads the lists of arguments, and writes the results of each function for all
/// arguments of its list, as bits.
fn c_program(functions: &[Function]) -> String {
    let mut text = include_str!("prelude.c").to_owned();
    text.push_str(LIBM_C);
    for function in functions {
        text.push_str(&function.program.to_c("static inline", &function.name));
    }
    let _ = writeln!(text, "static uint64_t in[4][{SAMPLES}][2], out[{SAMPLES}];");
    text.push_str("int main(void) {\n    if (fread(in, sizeof in, 1, stdin) != 1) return 1;\n");
    for function in functions {
        let Function { name, program, .. } = function;
        let (list, class) = (function.list(), if function.is_f32() { "f32" } else { "f64" });
        let arguments = (0..program.arguments.len()).map(|k| format!("float_{class}(x[{k}])"));
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let _ = write!(
            text,
            "    for (int i = 0; i < {SAMPLES}; i++) {{
        const uint64_t *x = in[{list}][i];
        out[i] = bits_{class}({name}({arguments}));
    }}
    fwrite(out, sizeof out, 1, stdout);
"
        );
    }
    text.push_str("}\n");
    text
}

/// What a C program writes for an input.
fn run(program: &str, input: &[u8]) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("maquette-printed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("functions.c"), folder.join("functions"));
    std::fs::write(&source, program).unwrap();
    let status = Command::new("cc")
        .args(["-std=c11", "-O1", "-ffp-contract=off", "-o"])
        .args([&binary, &source])
        .arg("-lm")
        .status()
        .expect("`cc` compiles C, since it links Rust programs");
    assert!(status.success());
    let mut child = Command::new(&binary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the compiled functions run");
    // It writes only when it has read all.
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    std::fs::remove_dir_all(&folder).unwrap();
    output.stdout
}

#[test]
fn printed_functions_have_the_bits_of_the_functions() {
    let functions = functions();
    let names: Vec<&str> = functions.iter().map(|f| &*f.name).collect();
    insta::assert_snapshot!(names.join(" "));

    let lists = [(1, true), (1, false), (2, true), (2, false)];
    let lists = lists.map(|(count, is_f32)| arguments(count, is_f32));
    let mut input = Vec::new();
    for word in lists.iter().flatten().flatten() {
        input.extend_from_slice(&word.to_ne_bytes());
    }
    let output = run(&c_program(&functions), &input);
    assert_eq!(output.len(), functions.len() * SAMPLES * size_of::<u64>());
    for (function, results) in functions.iter().zip(output.chunks(SAMPLES * size_of::<u64>())) {
        let Function { name, expected, .. } = function;
        let results = results.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap()));
        for ([x, y], result) in lists[function.list()].iter().zip(results) {
            let result = match function.is_f32() {
                true => f32_bits(f32::from_bits(result as u32)),
                false => f64_bits(f64::from_bits(result)),
            };
            let expected = expected(*x, *y);
            assert_eq!(
                result, expected,
                "{name}({x:#x}, {y:#x}): printed {result:#x}, computed {expected:#x}"
            );
        }
    }
}

/// A function of `libm` is a call of a function in `libm.c`.
#[test]
fn functions_of_libm_are_calls() {
    let program = record::function(|x: record::Value<'_, f32>| single::cos(x));
    insta::assert_snapshot!(program.to_c("static inline", "cos_f32"));
    let program = record::function2(|y: record::Value<'_, f32>, x| single::atan2(y, x));
    insta::assert_snapshot!(program.to_c("static inline", "atan2_f32"));
}

/// Known numbers are computed while a function is recorded, and equal steps are one step.
#[test]
fn a_program_has_no_step_twice() {
    let program = record::function(|x: record::Value<'_, f32>| single::exp(x));
    insta::assert_snapshot!(program.to_c("static inline", "exp_f32"));
    for Function { name, program, .. } in functions() {
        for (i, step) in program.steps.iter().enumerate() {
            assert!(!program.steps[..i].contains(step), "{name}: {step:?} is there twice");
            let is_known = |o: &record::Operand| matches!(o, record::Operand::Constant(_));
            assert!(!step.operands.iter().all(is_known), "{name}: {step:?} is known");
        }
    }
}
