//! `maquette conform`, as the README tells people to use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn conform(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maquette")).arg("conform").args(args).output().unwrap()
}

fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).unwrap()
}

/// A fresh folder under the build's own.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/aten");

#[test]
fn stored_outputs_can_be_checked_again() {
    let dir = folder("stored");
    let (names, kept) = (dir.join("names.txt"), dir.join("kept"));
    std::fs::write(
        &names,
        "aten.sort.default addmm index_put_.default\nmul_.Tensor unbind.int equal",
    )
    .unwrap();
    let (names, kept) = (names.to_str().unwrap(), kept.to_str().unwrap());
    let first = conform(&[RECORDED, "--ops", names, "--write", kept]);
    assert!(first.status.success(), "{}", stdout(&first));
    let last = stdout(&first).lines().last().unwrap().to_owned();
    assert!(last.ends_with(" passed, 0 failed"), "{last}");
    let second = conform(&[kept]);
    assert_eq!(stdout(&second).lines().last(), Some(last.as_str()));
}

#[test]
fn a_wrong_result_is_shown_with_inputs_and_both_outputs() {
    let dir = folder("wrong");
    for (name, doc) in [
        (
            "relu.default",
            r#"{"op": "aten.relu.default", "schema": "aten::relu(Tensor self) -> Tensor", "calls": [
            {"args": [{"t": "s0", "size": [2], "stride": [1], "offset": 0, "dtype": "float32"}], "kwargs": {},
             "out": {"t": "s0", "size": [2], "stride": [1], "offset": 0, "dtype": "float32"}},
            {"args": [{"t": "s9", "size": [2], "stride": [1], "offset": 0, "dtype": "float32"}], "kwargs": {}, "out": null},
            {"args": [{"t": "s0", "size": [3], "stride": [1], "offset": 0, "dtype": "float32"}], "kwargs": {}, "out": null},
            {"args": [], "kwargs": {"other": 1}, "out": null}]}"#,
        ),
        (
            "zzz.default",
            r#"{"op": "aten.zzz.default", "schema": "aten::zzz(Tensor self) -> Tensor", "calls": [{"args": [], "kwargs": {}, "out": null}]}"#,
        ),
        (
            "t_.default",
            r#"{"op": "aten.t_.default", "schema": "aten::t_(Tensor(a!) self) -> Tensor(a!)", "calls": [{"args": [], "kwargs": {}, "out": null}]}"#,
        ),
    ] {
        std::fs::write(dir.join(format!("{name}.json")), doc).unwrap();
    }
    let values: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let view =
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2], &values).unwrap();
    std::fs::write(
        dir.join("relu.default.safetensors"),
        safetensors::serialize([("s0", view)], None).unwrap(),
    )
    .unwrap();
    let out = conform(&[dir.to_str().unwrap(), "--failures"]);
    assert!(!out.status.success());
    insta::assert_snapshot!("conform_failures", stdout(&out));
}

#[test]
fn unreadable_files_are_named_in_errors() {
    let dir = folder("broken");
    let path = dir.to_str().unwrap();
    let told = |args: &[&str], expected: &str| {
        let out = conform(args);
        let told = String::from_utf8(out.stderr.clone()).unwrap();
        assert!(!out.status.success() && told.contains(expected), "{told}");
    };
    told(&["/no/such/folder"], "cannot read /no/such/folder");
    told(&[path], "there are no recorded calls in");
    std::fs::write(dir.join("add.Tensor.json"), "{").unwrap();
    told(&[path], "add.Tensor.json: is not JSON");
    std::fs::write(dir.join("add.Tensor.json"), "{}").unwrap();
    told(&[path], "add.Tensor.json: has no string `op`");
    std::fs::write(
        dir.join("add.Tensor.json"),
        r#"{"op": "aten.add.Tensor", "schema": "aten::add.Tensor()", "calls": []}"#,
    )
    .unwrap();
    std::fs::write(dir.join("add.Tensor.safetensors"), [255u8; 20]).unwrap();
    told(&[path], "add.Tensor.safetensors: is not a safetensors file");
    std::fs::write(dir.join("names"), "mul.Tensor").unwrap();
    told(
        &[path, "--ops", dir.join("names").to_str().unwrap()],
        "there are no recorded calls of these operators in",
    );
}
