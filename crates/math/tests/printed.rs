//! Printed functions compute the bits of the functions: the C compiler that links Rust programs
//! compiles them, and both are given the same numbers.

use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};
use maquette_math::record::{self, Op, Program};
use maquette_math::{double, single};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// How many arguments each function gets.
const SAMPLES: u64 = 1 << 15;

/// A printed function, and the function with numbers. Arguments and results are bits of floats.
struct Function {
    name: String,
    program: Program,
    expected: Box<dyn Fn(u64, u64) -> u64>,
}

fn calls_libm(program: &Program) -> bool {
    program.steps.iter().any(|step| matches!(step.op, Op::Libm(_) | Op::Libm2(_)))
}

fn f32_bits(x: f32) -> u64 {
    u64::from(if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
}

fn f64_bits(x: f64) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }
}

/// Every elementary function of both classes. Those of `libm` are not printed as steps.
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
    all.push(Function {
        name: "pow_f32".to_owned(),
        program: record::function2(|x: record::Value<'_, f32>, y| {
            single::binary(BinaryOp::Pow, x, y).unwrap()
        }),
        expected: Box::new(|x, y| {
            f32_bits(single::pow(f32::from_bits(x as u32), f32::from_bits(y as u32)))
        }),
    });
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

/// The bits of an argument: special numbers first, then numbers of every exponent, half of them
/// between 2^-8 and 2^8, where functions bend.
fn argument(i: u64, is_f32: bool) -> u64 {
    let special =
        [0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, f64::INFINITY, f64::NAN, 1e-40, 88.7, 104.0];
    let number = match special.get(i as usize / 2) {
        Some(x) if i.is_multiple_of(2) => *x,
        Some(x) => -*x,
        None => {
            let random = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            let random = random.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            match (random >> 32) & 1 {
                0 if is_f32 => return random & 0xffff_ffff,
                0 => return random,
                _ => {
                    let sign = if random & 2 == 0 { 1.0 } else { -1.0 };
                    let exponent = (random % 17) as f64 - 8.0;
                    sign * exponent.exp2() * (1.0 + (random >> 12) as f64 / (1u64 << 52) as f64)
                }
            }
        }
    };
    if is_f32 { u64::from((number as f32).to_bits()) } else { number.to_bits() }
}

/// A C program that reads pairs of arguments and writes the results of a function, as bits.
fn c_program(functions: &[Function]) -> String {
    let mut text = include_str!("prelude.c").to_owned();
    for function in functions {
        text.push_str(&function.program.to_c(&function.name));
    }
    text.push_str("int main(void) {\n    uint64_t in[3], out;\n");
    text.push_str("    while (fread(in, sizeof in, 1, stdin) == 1) {\n        switch (in[0]) {\n");
    for (i, Function { name, program, .. }) in functions.iter().enumerate() {
        let class = &name[name.len() - 3..];
        let arguments: Vec<String> =
            (0..program.arguments.len()).map(|i| format!("float_{class}(in[{}])", i + 1)).collect();
        let arguments = arguments.join(", ");
        writeln!(text, "        case {i}: out = bits_{class}({name}({arguments})); break;")
            .unwrap();
    }
    text.push_str("        }\n        fwrite(&out, sizeof out, 1, stdout);\n    }\n}\n");
    text
}

#[test]
fn printed_functions_have_the_bits_of_the_functions() {
    let functions: Vec<Function> =
        functions().into_iter().filter(|f| !calls_libm(&f.program)).collect();
    let names: Vec<&str> = functions.iter().map(|f| &*f.name).collect();
    insta::assert_snapshot!(names.join(" "));

    let folder = std::env::temp_dir().join(format!("maquette-printed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("functions.c"), folder.join("functions"));
    std::fs::write(&source, c_program(&functions)).unwrap();
    let status = Command::new("cc")
        .args(["-std=c11", "-O1", "-ffp-contract=off", "-o"])
        .args([&binary, &source])
        .arg("-lm")
        .status()
        .expect("`cc` compiles C, since it links Rust programs");
    assert!(status.success());

    let cases: Vec<[u64; 3]> = (0..functions.len() as u64)
        .flat_map(|f| {
            let is_f32 = functions[f as usize].name.ends_with("f32");
            (0..SAMPLES).map(move |i| [f, argument(i, is_f32), argument(i * 31 % 1_009, is_f32)])
        })
        .collect();
    let input: Vec<u8> = cases.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
    let mut child = Command::new(&binary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the compiled functions run");
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let results = output.stdout.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().unwrap()));
    let results: Vec<u64> = results.collect();
    assert_eq!(results.len(), cases.len());
    for ([f, x, y], result) in cases.into_iter().zip(results) {
        let function = &functions[f as usize];
        let result = match function.name.ends_with("f32") {
            true => f32_bits(f32::from_bits(result as u32)),
            false => f64_bits(f64::from_bits(result)),
        };
        let expected = (function.expected)(x, y);
        assert_eq!(
            result, expected,
            "{}({x:#x}, {y:#x}): printed {result:#x}, computed {expected:#x}",
            function.name
        );
    }
}

/// A function of `libm` is a call that the prelude of a device defines.
#[test]
fn functions_of_libm_are_calls() {
    let program = record::function(|x: record::Value<'_, f32>| single::cos(x));
    insta::assert_snapshot!(program.to_c("cos_f32"));
    let program = record::function2(|y: record::Value<'_, f32>, x| single::atan2(y, x));
    insta::assert_snapshot!(program.to_c("atan2_f32"));
}

/// Known numbers are computed while a function is recorded, and equal steps are one step.
#[test]
fn a_program_has_no_step_twice() {
    let program = record::function(|x: record::Value<'_, f32>| single::exp(x));
    insta::assert_snapshot!(program.to_c("exp_f32"));
    for Function { name, program, .. } in functions() {
        for (i, step) in program.steps.iter().enumerate() {
            assert!(!program.steps[..i].contains(step), "{name}: {step:?} is there twice");
            let is_known = |o: &record::Operand| matches!(o, record::Operand::Constant(_));
            assert!(!step.operands.iter().all(is_known), "{name}: {step:?} is known");
        }
    }
}
