//! The recorded training in `tests/data/train`, eager and compiled.

use maquette_conform::{RecordedFile, check_training, operator_files};
use std::path::Path;

#[test]
fn training_agrees_with_pytorch_and_compiles_to_the_same_bits() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/train");
    let files = operator_files(&folder, None).unwrap();
    assert_eq!(files.len(), 8);
    for path in files {
        let RecordedFile::Training(recording) = RecordedFile::read(&path).unwrap() else {
            panic!("{} records calls", path.display());
        };
        let report = check_training(&recording);
        assert!(report.failures.is_empty(), "{}: {:#?}", recording.name, report.failures);
        assert!(report.differences.contains_key("gradients"), "{}", recording.name);
    }
}
