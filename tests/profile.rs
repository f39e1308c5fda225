//! Profiles of compiled functions and exported programs: the lines of model code.

use maquette::Loc;
use maquette::prelude::*;
use maquette::profile::ProfileOptions;

const LINE: u32 = line!();
fn model((x, w): (Tensor, Tensor)) -> Tensor {
    let y = x.matmul(&w);
    y.relu().softmax(-1)
}

fn at(lines: &[Loc]) -> Vec<u32> {
    assert!(lines.iter().all(|loc| loc.file.ends_with("tests/profile.rs")), "{lines:?}");
    lines.iter().map(|loc| loc.line - LINE).collect()
}

fn tensors() -> (Tensor, Tensor) {
    let ones = |sizes: [i64; 2]| Tensor::ones(sizes, DType::F32);
    (ones([4, 8]), ones([8, 3]))
}

#[test]
fn kernels_of_a_compiled_function_have_its_lines() {
    let f = compile(model);
    let options = ProfileOptions::new().warm_up(1).repeat(2);
    let profile = f.profile(tensors(), &options).unwrap();
    assert_eq!(f.compilations(), 1, "a profile compiles");
    let found: Vec<(String, Vec<u32>)> =
        profile.kernels.iter().map(|k| (k.label(), at(&k.lines()))).collect();
    assert_eq!(found, [("mm + relu".to_owned(), vec![2, 3]), ("_softmax".to_owned(), vec![3])]);
    let lines: Vec<String> = profile.by_line().groups.into_iter().map(|g| g.label).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().any(|line| line.ends_with(&format!(":{}, {}", LINE + 2, LINE + 3))));
    f.profile(tensors(), &options).unwrap();
    assert_eq!(f.compilations(), 1);
    f.set_stance(Stance::ForceEager);
    let error = f.profile(tensors(), &options).unwrap_err().to_string();
    assert!(
        error.contains("runs eagerly for this call, so there is nothing to profile"),
        "{error}"
    );
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Count {
    #[buffer]
    calls: Tensor,
}

impl Count {
    fn forward(&self, x: Tensor) -> Tensor {
        self.calls.add_(1.0);
        x.exp()
    }
}

#[test]
fn a_profile_of_a_program_is_calls_of_it() {
    let count = Count { calls: Tensor::zeros([1], DType::F32) };
    let x = Tensor::ones([3], DType::F32);
    let program = ExportOptions::new().export(&count, x.clone()).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let options = ProfileOptions::new().warm_up(2).repeat(5);
    let profile = compiled.profile(x, &options).unwrap();
    let mut labels: Vec<String> = profile.kernels.iter().map(|k| k.label()).collect();
    labels.sort();
    assert_eq!(labels, ["add", "exp"]);
    let (_, _, calls) = program.state().next().unwrap();
    assert_eq!(calls.to_vec::<f32>().unwrap(), [7.0]);
}
