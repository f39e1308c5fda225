//! Default values.

use super::Type;
use crate::{DType, Device, Layout, MemoryFormat};
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

/// The default value of an argument. Floats are equal if their bits are equal.
#[derive(Clone, Debug)]
pub enum Default {
    /// `None`
    None,
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// `True` or `False`.
    Bool(bool),
    /// A quoted string.
    Str(String),
    /// A list; `int[2] x=1` is the list `[1, 1]`.
    List(Vec<Default>),
    /// A dtype, written by name or number and printed as PyTorch's number.
    DType(DType),
    /// A device, written as a string.
    Device(Device),
    /// A layout, written by name or number and printed as PyTorch's number.
    Layout(Layout),
    /// A memory format, written by name or number and printed as PyTorch's number.
    MemoryFormat(MemoryFormat),
}

impl PartialEq for Default {
    fn eq(&self, other: &Default) -> bool {
        match (self, other) {
            (Default::None, Default::None) => true,
            (Default::Int(a), Default::Int(b)) => a == b,
            (Default::Float(a), Default::Float(b)) => a.to_bits() == b.to_bits(),
            (Default::Bool(a), Default::Bool(b)) => a == b,
            (Default::Str(a), Default::Str(b)) => a == b,
            (Default::List(a), Default::List(b)) => a == b,
            (Default::DType(a), Default::DType(b)) => a == b,
            (Default::Device(a), Default::Device(b)) => a == b,
            (Default::Layout(a), Default::Layout(b)) => a == b,
            (Default::MemoryFormat(a), Default::MemoryFormat(b)) => a == b,
            _ => false,
        }
    }
}
impl Eq for Default {}

impl Hash for Default {
    fn hash<H: Hasher>(&self, state: &mut H) {
        discriminant(self).hash(state);
        match self {
            Default::None => {}
            Default::Int(x) => x.hash(state),
            Default::Float(x) => x.to_bits().hash(state),
            Default::Bool(x) => x.hash(state),
            Default::Str(x) => x.hash(state),
            Default::List(x) => x.hash(state),
            Default::DType(x) => x.hash(state),
            Default::Device(x) => x.hash(state),
            Default::Layout(x) => x.hash(state),
            Default::MemoryFormat(x) => x.hash(state),
        }
    }
}

impl Default {
    /// The dtype, layout or memory format with number `code` in PyTorch; `ty` selects the kind.
    pub(super) fn from_code(ty: &Type, code: i64) -> Option<Default> {
        const LAYOUTS: [Layout; 3] = [Layout::Strided, Layout::SparseCoo, Layout::SparseCsr];
        const FORMATS: [MemoryFormat; 4] = [
            MemoryFormat::Contiguous,
            MemoryFormat::Preserve,
            MemoryFormat::ChannelsLast,
            MemoryFormat::ChannelsLast3d,
        ];
        match ty {
            Type::ScalarType => {
                DType::ALL.into_iter().find(|d| dtype_code(*d) == code).map(Default::DType)
            }
            Type::Layout => {
                LAYOUTS.into_iter().find(|l| layout_code(*l) == code).map(Default::Layout)
            }
            Type::MemoryFormat => {
                FORMATS.into_iter().find(|m| format_code(*m) == code).map(Default::MemoryFormat)
            }
            _ => None,
        }
    }
}

// PyTorch's numbers of dtypes, layouts and memory formats, which schemas print instead of names.

pub(super) const fn dtype_code(dtype: DType) -> i64 {
    match dtype {
        DType::U8 => 0,
        DType::I8 => 1,
        DType::I16 => 2,
        DType::I32 => 3,
        DType::I64 => 4,
        DType::F16 => 5,
        DType::F32 => 6,
        DType::F64 => 7,
        DType::Bool => 11,
        DType::BF16 => 15,
    }
}

pub(super) const fn layout_code(layout: Layout) -> i64 {
    match layout {
        Layout::Strided => 0,
        Layout::SparseCoo => 1,
        Layout::SparseCsr => 2,
    }
}

pub(super) const fn format_code(format: MemoryFormat) -> i64 {
    match format {
        MemoryFormat::Contiguous => 0,
        MemoryFormat::Preserve => 1,
        MemoryFormat::ChannelsLast => 2,
        MemoryFormat::ChannelsLast3d => 3,
    }
}
