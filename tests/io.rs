//! Checkpoints, read and mapped.

use maquette::io::Weights;
use maquette::prelude::*;
use std::path::PathBuf;

fn file(name: &str, contents: &[u8]) -> PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, contents).unwrap();
    path
}

/// A safetensors file of these tensors, `(name, dtype, sizes, bytes)`, whose header is padded to
/// `header` bytes.
fn safetensors(header: usize, tensors: &[(&str, &str, &[usize], &[u8])]) -> Vec<u8> {
    let mut at = 0;
    let entries = tensors.iter().map(|(name, dtype, sizes, bytes)| {
        let start = at;
        at += bytes.len();
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{sizes:?},"data_offsets":[{start},{at}]}}"#)
    });
    let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let mut out = (header as u64).to_le_bytes().to_vec();
    out.extend(format!("{json:header$}").as_bytes());
    tensors.iter().for_each(|t| out.extend(t.3));
    out
}

fn map(path: &PathBuf) -> Result<Weights> {
    // SAFETY: each test has a file of its own, and at most replaces it: the mapped one stays.
    unsafe { Weights::map(path) }
}

#[test]
fn a_mapped_file_has_the_tensors_of_a_read_one() {
    let floats: Vec<u8> = [1.5f32, -2.0, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
    let tensors: [(&str, &str, &[usize], &[u8]); 5] = [
        ("floats", "F32", &[3], &floats),
        ("none", "F64", &[0, 4], &[]),
        ("bools", "BOOL", &[2], &[1, 0]),
        ("bytes", "U8", &[1, 2], &[7, 255]),
        ("halves", "BF16", &[], &[0x80, 0x3f]),
    ];
    // of the second file nothing wider than a byte is aligned
    for header in [400, 401] {
        let path = file(&format!("dtypes{header}"), &safetensors(header, &tensors));
        let (mapped, read) = (map(&path).unwrap(), Weights::load(&path).unwrap());
        assert_eq!(mapped.iter().count(), tensors.len());
        for ((name, a), (_, b)) in mapped.iter().zip(read.iter()) {
            assert_eq!(format!("{a:?}"), format!("{b:?}"), "{name}");
        }
        assert_eq!(mapped.get("bools").unwrap().to_vec::<bool>().unwrap(), [true, false]);
        assert_eq!(mapped.get("floats").unwrap().to_vec::<f32>().unwrap()[..2], [1.5, -2.0]);
    }
}

#[test]
fn a_mapped_tensor_outlives_its_map_and_its_writes_are_private() {
    let contents = safetensors(128, &[("a", "F32", &[2], &[0; 8]), ("b", "F32", &[1], &[0; 4])]);
    let path = file("private", &contents);
    let weights = map(&path).unwrap();
    let (mut a, b) = (weights.get("a").unwrap(), weights.get("b").unwrap());
    drop(weights);
    a += 1.0;
    assert_eq!(
        (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap()),
        (vec![1.0, 1.0], vec![0.0])
    );
    assert!(!a.shares_storage(&b));
    assert_eq!(std::fs::read(&path).unwrap(), contents);
    assert_eq!(map(&path).unwrap().get("a").unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
}

#[test]
fn saved_tensors_are_read_again() {
    let all: Vec<(String, Tensor)> = DType::ALL
        .iter()
        .map(|d| {
            // Strides are not saved: the elements are in row-major order.
            let t = Tensor::arange(6).view([2, 3]).transpose(0, 1).to_dtype(*d);
            (d.to_string(), t)
        })
        .chain([("scalar".to_owned(), Tensor::scalar(0.5f64))])
        .collect();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("saved");
    all.iter().cloned().collect::<Weights>().save(&path).unwrap();
    let weights = Weights::load(&path).unwrap();
    assert_eq!(weights.iter().count(), all.len());
    for (name, t) in &all {
        let read = weights.get(name).unwrap();
        assert_eq!((read.dtype(), read.sizes_i64().unwrap()), (t.dtype(), t.sizes_i64().unwrap()));
        let floats = |t: &Tensor| t.to_dtype(DType::F64).to_vec::<f64>().unwrap();
        assert_eq!(floats(&read), floats(t), "{name}");
    }
    let fake: Weights = [("a".to_owned(), Tensor::fake([2], DType::F32))].into_iter().collect();
    assert!(fake.save(&path).unwrap_err().to_string().starts_with("cannot write "));
}

/// A folder of this test alone, so that it can be compared as a whole.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _absent = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

fn entries(folder: &PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The saved file has another header, so that in it the tensors begin elsewhere.
#[test]
fn a_mapped_file_is_saved_to_its_own_path() {
    let json = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":"#;
    let header = format!("{:160}", format!("{json}[0,8]}}}}"));
    let mut contents = (header.len() as u64).to_le_bytes().to_vec();
    contents.extend(header.as_bytes());
    contents.extend([1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()));
    let folder = folder("own_path");
    let path = folder.join("a.safetensors");
    std::fs::write(&path, &contents).unwrap();
    let values = |weights: &Weights| weights.get("a").unwrap().to_vec::<f32>().unwrap();
    let mapped = map(&path).unwrap();
    for _ in 0..2 {
        mapped.save(&path).unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), contents);
        assert_eq!(values(&mapped), [1.5, -2.0]);
        assert_eq!(values(&Weights::load(&path).unwrap()), [1.5, -2.0]);
    }
    assert_eq!(entries(&folder), ["a.safetensors"]);
}

#[test]
fn a_save_that_fails_leaves_everything_as_it_was() {
    let folder = folder("failed_saves");
    let weights =
        |name: &str, t: Tensor| -> Weights { [(name.to_owned(), t)].into_iter().collect() };
    let good = weights("a", Tensor::from([1.0f32]));
    let path = folder.join("a.safetensors");
    good.save(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    for (bad, why) in [
        (weights("a", Tensor::fake([2], DType::F32)), "cannot write "),
        (weights("__metadata__", Tensor::from([1.0f32])), "can have the name `__metadata__`"),
    ] {
        let e = bad.save(&path).unwrap_err();
        assert!(e.to_string().contains(why), "{e}");
        assert!(bad.to_safetensors().is_err());
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // a folder is not replaced by a file, and none is made
    for path in [folder.clone(), folder.join("absent").join("a.safetensors")] {
        let e = good.save(&path).unwrap_err();
        assert!(e.to_string().starts_with(&format!("cannot write {}: ", path.display())), "{e}");
    }
    assert_eq!(entries(&folder), ["a.safetensors"]);
}

#[cfg(unix)]
#[test]
fn a_saved_file_keeps_the_permissions_and_the_links_of_the_old_one() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = folder("permissions");
    let (path, link) = (folder.join("a.safetensors"), folder.join("link"));
    std::fs::write(&path, b"old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("a.safetensors", &link).unwrap();
    let weights: Weights = [("a".to_owned(), Tensor::from([1.0f32]))].into_iter().collect();
    weights.save(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(std::fs::read(&path).unwrap(), weights.to_safetensors().unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(entries(&folder), ["a.safetensors", "link"]);
    // a link to a file that is still to be made
    let ahead = folder.join("ahead");
    symlink("later.safetensors", &ahead).unwrap();
    weights.save(&ahead).unwrap();
    assert!(ahead.is_symlink());
    assert_eq!(entries(&folder), ["a.safetensors", "ahead", "later.safetensors", "link"]);
}

#[test]
fn invalid_checkpoints_are_refused() {
    let refused = |name: &str, contents: &[u8], expected: &str| {
        let path = file(name, contents);
        for e in [map(&path).unwrap_err(), Weights::load(&path).unwrap_err()] {
            assert!(e.to_string().contains(expected), "{name}: {e}");
            // the file, and the line that asked for it
            assert!(e.to_string().contains(&path.display().to_string()), "{name}: {e}");
            assert!(e.loc().is_some_and(|loc| loc.to_string().contains("io.rs")), "{name}: {e}");
        }
    };
    refused("empty", &[], "not a safetensors file");
    refused("text", b"weights, please", "not a safetensors file");
    refused("short", &safetensors(128, &[("a", "F32", &[2], &[0; 4])]), "not a safetensors file");
    refused(
        "complex",
        &safetensors(128, &[("a", "C64", &[1], &[0; 8])]),
        "the tensor `a`: the dtype C64 is not one of",
    );
    let e = map(&PathBuf::from("no such file")).unwrap_err();
    assert!(e.to_string().starts_with("cannot map no such file: "), "{e}");
}
