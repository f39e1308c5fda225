//! `im2col` and `col2im`: the patches of an image as columns, and the sum of columns into an image.

use super::{compute, is_empty, numbers, require_full, rounding};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{fresh, require, require_dtype, require_rank};
use maquette_ops::operator::lowering::{Class, How, Metas, Strides};
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

/// The position and size of the patches of an image.
struct Patches {
    kernel: [i64; 2],
    dilation: [i64; 2],
    padding: [i64; 2],
    stride: [i64; 2],
}

impl Patches {
    /// From the arguments `kernel_size, dilation, padding, stride`.
    #[track_caller]
    fn of(args: &[Value]) -> Result<Patches> {
        Ok(Patches {
            kernel: numbers("kernel_size", &args[0], 1)?,
            dilation: numbers("dilation", &args[1], 1)?,
            padding: numbers("padding", &args[2], 0)?,
            stride: numbers("stride", &args[3], 1)?,
        })
    }

    fn elements(&self) -> i64 {
        self.kernel[0].saturating_mul(self.kernel[1])
    }

    /// The number of patches along each dimension of an image. There must be at least one.
    #[track_caller]
    fn counts(&self, image: &[SymInt]) -> Result<[SymInt; 2]> {
        let mut counts = [SymInt::from(1); 2];
        for d in 0..2 {
            let reach = self.dilation[d].saturating_mul(self.kernel[d] - 1).saturating_add(1);
            counts[d] = (image[d] + SymInt::from(self.padding[d]) * 2 - reach)
                .floor_div(self.stride[d])
                + 1;
            require(counts[d].ge(1), || {
                format!(
                    "patches of {:?} with dilation {:?} exceed an image of sizes {}",
                    self.kernel,
                    self.dilation,
                    dims_text(image)
                )
            })?;
        }
        Ok(counts)
    }

    /// Calls `f(column element, image element)` for every element of the columns in row-major
    /// order. The image element is `None` if the patch extends beyond the border.
    fn pairs(
        &self,
        channels: usize,
        image: [i64; 2],
        counts: [i64; 2],
        mut f: impl FnMut(usize, usize),
    ) {
        let at =
            |d: usize, k: i64, i: i64| i * self.stride[d] - self.padding[d] + k * self.dilation[d];
        let mut column = 0;
        for c in 0..channels as i64 {
            for ki in 0..self.kernel[0] {
                for kj in 0..self.kernel[1] {
                    for i in 0..counts[0] {
                        for j in 0..counts[1] {
                            let (y, x) = (at(0, ki, i), at(1, kj, j));
                            if (0..image[0]).contains(&y) && (0..image[1]).contains(&x) {
                                f(column, ((c * image[0] + y) * image[1] + x) as usize);
                            }
                            column += 1;
                        }
                    }
                }
            }
        }
    }
}

fn require_kind(x: &Tensor) -> Result<()> {
    require_dtype("self", x, "a floating dtype or bool", |d| d.is_float() || d == DType::Bool)
}

#[track_caller]
fn columns_meta(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    require_kind(x)?;
    require_rank("self", x, 3..=4)?;
    require_full("self", x, x.dim() - 3)?;
    let patches = Patches::of(&args[1..5])?;
    let (lead, image) = x.sizes().split_at(x.dim() - 2);
    let counts = patches.counts(image)?;
    let mut sizes: Dims = lead.into();
    sizes[lead.len() - 1] *= patches.elements();
    sizes.push(counts[0] * counts[1]);
    Ok(smallvec![fresh(x, sizes, x.dtype())])
}

/// The number of channels, the sizes of an image, and the sizes of its grid of patches.
fn layout(patches: &Patches, image: &Tensor) -> Result<(usize, [i64; 2], [i64; 2])> {
    let (lead, space) = image.sizes().split_at(image.dim() - 2);
    let counts = patches.counts(space)?.map(|n| n.as_i64().unwrap_or(0));
    Ok((
        lead[lead.len() - 1].as_i64().unwrap_or(0) as usize,
        [space[0], space[1]].map(|n| n.as_i64().unwrap_or(0)),
        counts,
    ))
}

fn columns(args: &[Value], out: &Tensor) -> Result<()> {
    if is_empty(out) {
        return Ok(());
    }
    let x = args[0].tensor()?;
    let patches = Patches::of(&args[1..5])?;
    let (channels, image, counts) = layout(&patches, x)?;
    let data = host::reals(x)?;
    let mut result = host::filled(0.0, out.numel().as_i64().unwrap_or(0) as usize)?;
    let area = channels * (image[0] * image[1]) as usize;
    let width = result.len() / (data.len() / area.max(1)).max(1);
    for (from, to) in data.chunks_exact(area.max(1)).zip(result.chunks_exact_mut(width.max(1))) {
        patches.pairs(channels, image, counts, |column, pixel| to[column] = from[pixel]);
    }
    host::store_reals(out, &result)
}

/// The metadata of `col2im`, after a check that the columns fit the image.
#[track_caller]
fn image_meta(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    require_kind(x)?;
    require_rank("self", x, 2..=3)?;
    require_full("self", x, x.dim() - 2)?;
    let (space, patches) = (args[1].ints()?, Patches::of(&args[2..6])?);
    let &[height, width] = space else {
        return Err(Error::value(format!(
            "`output_size` must hold 2 numbers, found {}",
            dims_text(space)
        )));
    };
    let (rows, found) = (x.sizes()[x.dim() - 2], x.sizes()[x.dim() - 1]);
    let elements = patches.elements();
    require(rows.modulo(elements).eq(0), || {
        format!(
            "dimension {} of sizes {} must be a multiple of the {elements} elements of a patch",
            x.dim() - 2,
            dims_text(x.sizes())
        )
    })?;
    let counts = patches.counts(space)?;
    let expected = counts[0] * counts[1];
    require(expected.eq(found), || {
        format!(
            "`self` must have {expected} columns for `output_size` {}, found sizes {}",
            dims_text(space),
            dims_text(x.sizes())
        )
    })?;
    let mut sizes: Dims = x.sizes()[..x.dim() - 2].into();
    sizes.extend([rows.floor_div(elements), height, width]);
    Ok(smallvec![fresh(x, sizes, x.dtype())])
}

fn image(args: &[Value], out: &Tensor) -> Result<()> {
    if is_empty(out) {
        return Ok(());
    }
    let x = args[0].tensor()?;
    let patches = Patches::of(&args[2..6])?;
    let (channels, image, counts) = layout(&patches, out)?;
    let data = host::reals(x)?;
    let mut result = host::filled(0.0, out.numel().as_i64().unwrap_or(0) as usize)?;
    let area = channels * (image[0] * image[1]) as usize;
    let width = data.len() / (result.len() / area.max(1)).max(1);
    let round = rounding(x.dtype());
    for (from, to) in data.chunks_exact(width.max(1)).zip(result.chunks_exact_mut(area.max(1))) {
        patches.pairs(channels, image, counts, |column, pixel| {
            to[pixel] = round(to[pixel] + from[column])
        });
    }
    host::store_reals(out, &result)
}

table! {
    /// Patches.
    static TABLE = {
        "aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, \
            int[2] stride) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| columns_meta(a),
                How::Host(|a, out| columns(a, &out[0])),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, \
            int[2] dilation, int[2] padding, int[2] stride) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Window,
                Strides::FromOperands,
                |_, a| image_meta(a),
                How::Host(|a, out| image(a, &out[0])),
            ),
            vjp: crate::grad::COL2IM,
        },
    }
}
