//! Tensors made by structure: diagonals, block matrices, indices of triangles, copies of split
//! parts, and masked indexing.

use super::split;
use super::views;
use crate::loss::promoted;
use maquette_ir::loops::{Affine, Index, IndexMap};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, CmpOp};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::{DType, Device, Scalar};
use maquette_ops::internals::TensorInternals;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{div_ceil, done, fresh, has_size_0, require_rank};
use maquette_ops::operator::fits_into;
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{cpu_exec, dims_text, host, table};
use maquette_ops::operator::{require_same, wrap_dim};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Outputs, Result, Tensor, Value};
use smallvec::smallvec;
use std::ops::Range;

pub(crate) const fn copying(metas: fn(&FakeCtx, &[Value]) -> Result<Metas>, how: How) -> Lowering {
    Lowering::Compute(Compute { class: Class::Copy, strides: Strides::FromOperands, metas, how })
}

pub(crate) fn tensors<'a>(name: &str, v: &'a Value) -> Result<Vec<&'a Tensor>> {
    let all: Vec<&Tensor> = v.list()?.iter().map(Value::tensor).collect::<Result<_>>()?;
    if all.is_empty() { Err(Error::value(format!("`{name}` must not be empty"))) } else { Ok(all) }
}

/// The outputs of a composite that returns one list.
pub(crate) fn list(tensors: Vec<Tensor>) -> Result<Outputs> {
    tensors.iter().try_for_each(|t| t.alive().map(drop))?;
    Ok(smallvec![Value::List(tensors.into_iter().map(Value::Tensor).collect())])
}

/// The in-place variant of a composite: writes the result of `op` into argument 0.
pub(crate) fn written(args: &[Value], op: &str) -> Result<Outputs> {
    let result = maquette_ops::call(op, args.iter().cloned().collect())?;
    let target = args[0].tensor()?;
    done(target.copy_(fits_into(target, result.first(), op)?))
}

// ---- diagonals

fn trace(x: &Tensor) -> Result<Tensor> {
    require_rank("self", x, 2..=2)?;
    if x.dtype() == DType::Bool {
        return Err(Error::value("`trace` does not support bool"));
    }
    Ok(x.diagonal(0, 0, 1).sum())
}

fn diag(x: &Tensor, offset: i64) -> Result<Tensor> {
    require_rank("self", x, 1..=2)?;
    Ok(if x.dim() == 1 {
        x.diag_embed(offset, -2, -1)
    } else {
        x.diagonal(offset, 0, 1).clone_as(maquette_ir::MemoryFormat::Contiguous)
    })
}

/// The two dimensions of the result that hold the diagonals.
fn diagonal_dims(args: &[Value]) -> Result<(usize, usize)> {
    let x = args[0].tensor()?;
    require_rank("self", x, 1..=63)?;
    let (d1, d2) =
        (wrap_dim(args[2].int_i64()?, x.dim() + 1)?, wrap_dim(args[3].int_i64()?, x.dim() + 1)?);
    if d1 == d2 {
        Err(Error::value(format!("`dim1` and `dim2` must differ, found both to be dimension {d1}")))
    } else {
        Ok((d1, d2))
    }
}

fn diag_embed_metas(args: &[Value]) -> Result<Metas> {
    let (d1, d2) = diagonal_dims(args)?;
    let x = args[0].tensor()?;
    let last = x.dim() - 1;
    let side = x.sizes()[last] + SymInt::from(args[1].int_i64()?.saturating_abs());
    let mut sizes: Dims = x.sizes()[..last].into();
    for d in [d1.min(d2), d1.max(d2)] {
        sizes.insert(d, side);
    }
    Ok(smallvec![fresh(x, sizes, x.dtype())])
}

/// Element `i` of the diagonal is in row `max(i, i - offset)`, so that `i` is the lesser of row and
/// column. The other elements are zero.
fn diag_embed(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let (d1, d2) = cx.by_integers_in(&[2, 3], diagonal_dims)?;
    let (x, offset) = (cx.input(0)?, cx.number(1, DType::I64)?);
    let over = cx.result_axes(0);
    let rest = over.iter().enumerate().filter(|(d, _)| *d != d1 && *d != d2);
    let at = rest.map(|(_, axis)| Index::from(*axis)).chain([Index::Computed]);
    let at: IndexMap = at.collect();
    let diagonals = cx.nest.map(&over, |s| {
        let (row, column) = (s.coord(over[d1]), s.coord(over[d2]));
        let distance = s.expr.binary(BinaryOp::Sub, column, row)?;
        let offset = s.launch(offset)?;
        let is_diagonal = s.expr.compare(CmpOp::Eq, distance, offset)?;
        let position = s.expr.binary(BinaryOp::Min, row, column)?;
        let zero = s.expr.constant(0, x.dtype);
        s.read(x.id, at, &[position], Bounds::Else(zero), Some(is_diagonal))
    })?;
    Ok(smallvec![diagonals.into()])
}

// ---- blocks

/// The rows and columns of a block. A vector is a row, and a 0-d tensor is a 1×1 matrix.
fn block(i: usize, t: &Tensor) -> Result<[SymInt; 2]> {
    match *t.sizes() {
        [] => Ok([1.into(), 1.into()]),
        [n] => Ok([1.into(), n]),
        [n, m] => Ok([n, m]),
        _ => Err(Error::value(format!(
            "`tensors[{i}]` must have at most 2 dimensions, found sizes {}",
            dims_text(t.sizes())
        ))),
    }
}

fn block_diag_metas(args: &[Value]) -> Result<Metas> {
    let parts = tensors("tensors", &args[0])?;
    let mut sizes: Dims = smallvec![0.into(), 0.into()];
    for (i, t) in parts.iter().enumerate() {
        let [n, m] = block(i, t)?;
        sizes[0] += n;
        sizes[1] += m;
    }
    Ok(smallvec![fresh(parts[0], sizes, promoted(&parts))])
}

fn block_diag(args: &[Value], out: &Tensor) -> Result<()> {
    cpu_exec::fill(out, 0)?;
    let (mut row, mut column) = (SymInt::from(0), SymInt::from(0));
    for (i, t) in tensors("tensors", &args[0])?.into_iter().enumerate() {
        let [n, m] = block(i, t)?;
        let rows = views::narrow(out.meta(), 0, row, n)?;
        cpu_exec::copy(t, &out.view_of(views::narrow(&rows, 1, column, m)?)?)?;
        row += n;
        column += m;
    }
    Ok(())
}

/// `_chunk_cat`: splits dimension `dim` of each tensor into `num_chunks` chunks, padding the last
/// with zeros. The dimensions after `dim` are flattened into the chunk, and the tensors are
/// concatenated.
fn chunk_cat(args: &[Value]) -> Result<Tensor> {
    let parts = tensors("tensors", &args[0])?;
    let (dim, chunks) = (wrap_dim(args[1].int_i64()?, parts[0].dim())?, args[2].int_i64()?);
    if chunks < 1 {
        return Err(Error::value(format!("`num_chunks` must be positive, found {chunks}")));
    }
    let mut pieces = Vec::with_capacity(parts.len());
    for (i, t) in parts.iter().enumerate() {
        if t.dim() <= dim || t.dtype() != parts[0].dtype() {
            let (dtype, found, sizes) = (parts[0].dtype(), t.dtype(), dims_text(t.sizes()));
            return Err(Error::value(format!(
                "`tensors[{i}]` must have a dimension {dim} and dtype {dtype}, found {found}{sizes}"
            )));
        }
        require_same(&parts[0].sizes()[..dim], &t.sizes()[..dim], || {
            format!("`tensors[{i}]` must have, before dimension {dim},")
        })?;
        let length = t.sizes()[dim];
        let chunk = div_ceil(length, chunks.into());
        let mut pad: Dims = smallvec![0.into(); 2 * (t.dim() - dim)];
        if let Some(last) = pad.last_mut() {
            *last = chunk * chunks - length;
        }
        let width = t.sizes()[dim + 1..].iter().fold(chunk, |n, &s| n * s);
        let sizes: Dims = t.sizes()[..dim].iter().copied().chain([chunks.into(), width]).collect();
        pieces.push(t.constant_pad_nd(pad, 0).reshape(sizes));
    }
    Ok(Tensor::cat(&pieces, dim as i64 + 1))
}

// ---- copies of split parts

/// Copies the parts of argument 0 along the dimension in argument 2, one after another.
fn parts(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let x = cx.input(0)?;
    let dim = wrap_dim(cx.int(2)?, x.axes.len())?;
    let (mut start, mut results) = (Expr::Int(0), NestResults::new());
    for result in 0..cx.results() {
        let over = cx.result_axes(result);
        let at = over.iter().enumerate().map(|(d, axis)| match d == dim {
            true => Affine { start, ..Affine::from(*axis) },
            false => Affine::from(*axis),
        });
        let at: IndexMap = at.map(Index::from).collect();
        results.push(cx.nest.map(&over, |s| s.load(x.id, at))?.into());
        let size = cx.nest.nest().extent(over[dim]);
        start = cx.nest.symbols_mut().add(start, size).map_err(Error::from)?;
    }
    Ok(results)
}

const PARTS: How = How::Loops(parts);

/// The metadata from whose parts the copies take theirs. As PyTorch recorded, a part lies in its
/// storage where it lies in the argument. Places count from the first element of the argument,
/// because a trace does not know where the argument begins.
fn whole(args: &[Value]) -> Result<Meta> {
    Ok(args[0].tensor()?.meta().clone().with_offset(0))
}

fn split_metas(_: &FakeCtx, args: &[Value]) -> Result<Metas> {
    split::split(&whole(args)?, args[1].int()?, args[2].int_i64()?)
}

fn split_with_sizes_metas(_: &FakeCtx, args: &[Value]) -> Result<Metas> {
    split::split_with_sizes(&whole(args)?, args[1].ints()?, args[2].int_i64()?)
}

fn chunk_metas(_: &FakeCtx, args: &[Value]) -> Result<Metas> {
    split::chunk(&whole(args)?, args[1].int_i64()?, args[2].int_i64()?)
}

// ---- triangles

/// The triangle of a matrix on one side of a diagonal.
struct Triangle {
    /// The rows that have elements of the triangle.
    rows: Range<i64>,
    cols: i64,
    offset: i64,
    lower: bool,
}

impl Triangle {
    /// From the arguments `row, col, offset`.
    fn of(args: &[Value], lower: bool) -> Result<Triangle> {
        let (rows, cols, offset) = (args[0].int_i64()?, args[1].int_i64()?, args[2].int_i64()?);
        if rows < 0 || cols < 0 {
            return Err(Error::value(format!(
                "`row` and `col` must not be negative, found {rows} and {cols}"
            )));
        }
        let rows = match (cols, lower) {
            (0, _) => 0..0,
            (_, true) => offset.saturating_neg().clamp(0, rows)..rows,
            (_, false) => 0..cols.saturating_sub(offset).clamp(0, rows),
        };
        Ok(Triangle { rows, cols, offset, lower })
    }

    /// The columns of a row in [`Triangle::rows`].
    fn columns(&self, row: i64) -> Range<i64> {
        let edge = row.saturating_add(self.offset);
        if self.lower { 0..edge.saturating_add(1).min(self.cols) } else { edge.max(0)..self.cols }
    }

    /// The number of elements. Row lengths grow by one per row until they reach the number of
    /// columns, so the sum is an arithmetic series and a rectangle. `i128` does not overflow.
    fn count(&self) -> i128 {
        let Range { start, end } = self.rows;
        if start >= end {
            return 0;
        }
        let shortest = self.columns(if self.lower { start } else { end - 1 });
        let (rows, least, cols) = (
            i128::from(end - start),
            i128::from(shortest.end - shortest.start),
            i128::from(self.cols),
        );
        let growing = (cols - least).clamp(0, rows);
        growing * least + growing * (growing - 1) / 2 + (rows - growing) * cols
    }
}

fn triangle_metas(args: &[Value], lower: bool) -> Result<Metas> {
    let triangle = Triangle::of(args, lower)?;
    let count = i64::try_from(triangle.count()).ok().filter(|n| n.checked_mul(16).is_some());
    let count = count.ok_or_else(|| {
        Error::value(format!("a triangle of {} elements is too large", triangle.count()))
    })?;
    let m = crate::create::creation::factory(
        &[2.into(), count.into()],
        args,
        3,
        DType::I64,
        Device::Cpu,
    )?;
    match m.dtype {
        DType::I64 | DType::I32 => Ok(smallvec![m]),
        found => Err(Error::value(format!("indices have dtype i64 or i32, found {found}"))),
    }
}

/// Writes the row indices, then the column indices.
fn triangle(args: &[Value], out: &Tensor, lower: bool) -> Result<()> {
    let triangle = Triangle::of(args, lower)?;
    let positions = || triangle.rows.clone().flat_map(|r| triangle.columns(r).map(move |c| (r, c)));
    let n = triangle.count() as i64;
    let all =
        host::collect(2 * n as usize, positions().map(|p| p.0).chain(positions().map(|p| p.1)))?;
    cpu_exec::copy(&Tensor::adopt::<i64>(all, [2, n])?, out)
}

// ---- masked indexing

/// Clamps the indices to the dimensions. The mask excludes the elements whose indices change.
fn clamped(x: &Tensor, indices: &Value) -> Result<Vec<Option<Tensor>>> {
    let entries = indices.list()?;
    if entries.len() > x.dim() {
        return Err(Error::value(format!(
            "`indices` has {} entries for the {} dimensions of `self`",
            entries.len(),
            x.dim()
        )));
    }
    let mut out = Vec::with_capacity(entries.len());
    for (v, &n) in entries.iter().zip(x.sizes()) {
        out.push(match v.opt_tensor()? {
            None => None,
            Some(i) => {
                let n = n.as_i64().map_or_else(|| n.guard_int(), Ok)?;
                Some(i.clamp(-n, n - 1))
            }
        });
    }
    Ok(out)
}

fn by_ref(indices: &[Option<Tensor>]) -> Vec<Option<&Tensor>> {
    indices.iter().map(Option::as_ref).collect()
}

fn masked_index(x: &Tensor, mask: &Tensor, indices: &Value, fill: Scalar) -> Result<Tensor> {
    if has_size_0(x.sizes())? {
        return Ok(x.new_full(mask.sizes(), fill, x.dtype()));
    }
    Ok(x.index(&by_ref(&clamped(x, indices)?)).masked_fill(&mask.logical_not(), fill))
}

fn masked_index_put(x: &Tensor, mask: &Tensor, indices: &Value, values: &Tensor) -> Result<Tensor> {
    if has_size_0(x.sizes())? {
        return Ok(x.clone_tensor());
    }
    Ok(x.index_put(
        &by_ref(&clamped(x, indices)?),
        &values.masked_fill(&mask.logical_not(), 0),
        true,
    ))
}

table! {
    /// Diagonals, blocks, parts, triangles and masked indexing.
    static TABLE = {
        "aten::trace(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(trace(a[0].tensor()?)?)),
        },
        "aten::diag(Tensor self, int diagonal=0) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(diag(a[0].tensor()?, a[1].int_i64()?)?)),
        },
        "aten::diagflat(Tensor self, int offset=0) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(a[0].tensor()?.reshape([-1i64]).diag_embed(a[1].int_i64()?, -2, -1))
            }),
        },
        "aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor" => {
            role: General,
            lowering: copying(|_, a| diag_embed_metas(a), How::Loops(diag_embed)),
            vjp: crate::grad::REARRANGED,
        },
        "aten::block_diag(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: copying(
                |_,
                a| block_diag_metas(a),
                How::Host(|a, out| block_diag(a, &out[0])),
            ),
            vjp: crate::grad::BLOCK_DIAG,
        },
        "aten::_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(chunk_cat(a)?)),
        },
        "aten::unsafe_split.Tensor(Tensor self, SymInt split_size, \
            int dim=0) -> Tensor[]" => {
            role: General,
            lowering: copying(split_metas, PARTS),
            vjp: crate::grad::REARRANGED,
        },
        "aten::unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, \
            int dim=0) -> Tensor[]" => {
            role: General,
            lowering: copying(split_with_sizes_metas, PARTS),
            vjp: crate::grad::REARRANGED,
        },
        "aten::unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]" => {
            role: General,
            lowering: copying(chunk_metas, PARTS),
            vjp: crate::grad::REARRANGED,
        },
        "aten::tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, \
            Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Fill,
                strides: Strides::RowMajor,
                metas: |_, a| triangle_metas(a, true),
                how: How::Host(|a, out| triangle(a, &out[0], true)),
            }),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, \
            Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Fill,
                strides: Strides::RowMajor,
                metas: |_, a| triangle_metas(a, false),
                how: How::Host(|a, out| triangle(a, &out[0], false)),
            }),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, \
            Scalar fill) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(masked_index(a[0].tensor()?, a[1].tensor()?, &a[2], a[3].scalar()?)?)
            }),
        },
        "aten::_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, \
            Tensor?[] indices, Tensor values) -> Tensor" => {
            role: TakesHostIndices,
            lowering: Lowering::Composite(|a| {
                done(masked_index_put(a[0].tensor()?, a[1].tensor()?, &a[2], a[3].tensor()?)?)
            }),
        },
        "aten::addbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::Composite(|a| written(a, "aten::addbmm")),
        },
        "aten::addr_(Tensor(a!) self, Tensor vec1, Tensor vec2, *, Scalar beta=1, \
            Scalar alpha=1) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::Composite(|a| written(a, "aten::addr")),
        },
    }
}
