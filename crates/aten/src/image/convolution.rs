//! Convolutions over one to three spatial dimensions, direct and transposed. Sizes follow PyTorch:
//! `(n + 2 padding - dilation (k - 1) - 1) / stride + 1`, rounded down, for a direct convolution.

use maquette_ir::loops::named::{self, ChannelGroups, WindowDim};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Scalar};
use maquette_kernels::Window;
use maquette_ops::operator::dims::{
    done, fresh, in_channels_last, is_channels_last, require, require_rank, require_same_dtype,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_equal;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Meta, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

/// One number for each spatial dimension. A single number applies to all.
fn per_space(name: &str, v: &Value, space: usize) -> Result<Dims> {
    let numbers = v.ints()?;
    match numbers.len() {
        n if n == space => Ok(numbers.into()),
        1 => Ok(smallvec![numbers[0]; space]),
        n => Err(Error::value(format!(
            "`{name}` must hold {space} numbers, one per spatial dimension, found {n}"
        ))),
    }
}

struct Convolution<'a> {
    input: &'a Tensor,
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
    stride: Dims,
    padding: Dims,
    dilation: Dims,
    output_padding: Dims,
    transposed: bool,
    groups: i64,
}

impl<'a> Convolution<'a> {
    /// Reads and checks the arguments of `convolution`.
    fn of(args: &'a [Value]) -> Result<Convolution<'a>> {
        let (input, weight) = (args[0].tensor()?, args[1].tensor()?);
        require_rank("input", input, 3..=5)?;
        require_rank("weight", weight, input.dim()..=input.dim())?;
        let space = input.dim() - 2;
        let c = Convolution {
            input,
            weight,
            bias: args[2].opt_tensor()?,
            stride: per_space("stride", &args[3], space)?,
            padding: per_space("padding", &args[4], space)?,
            dilation: per_space("dilation", &args[5], space)?,
            transposed: args[6].bool()?,
            output_padding: per_space("output_padding", &args[7], space)?,
            groups: args[8].int_i64()?,
        };
        for (name, list, least) in [
            ("stride", &c.stride, 1),
            ("dilation", &c.dilation, 1),
            ("padding", &c.padding, 0),
            ("output_padding", &c.output_padding, 0),
        ] {
            for &i in list {
                require(i.ge(least), || {
                    format!("`{name}` must be at least {least}, found {}", dims_text(list))
                })?;
                if i.as_i64().is_some_and(|i| i > Window::MOST) {
                    return Err(Error::value(format!(
                        "`{name}` must be at most {}, found {}",
                        Window::MOST,
                        dims_text(list)
                    )));
                }
            }
        }
        for ((&more, &stride), &dilation) in
            c.output_padding.iter().zip(&c.stride).zip(&c.dilation).filter(|_| c.transposed)
        {
            require(more.lt(stride.max(dilation)), || {
                format!(
                    "`output_padding` must be less than `stride` or `dilation`, found {}",
                    dims_text(&c.output_padding)
                )
            })?;
        }
        if c.groups < 1 {
            return Err(Error::value(format!("`groups` must be positive, found {}", c.groups)));
        }
        Ok(c)
    }

    /// The metadata of the output, after a check of channels, groups, bias and kernel sizes.
    #[track_caller]
    fn meta(&self) -> Result<Meta> {
        let (x, w, g) = (self.input.sizes(), self.weight.sizes(), self.groups);
        require_same_dtype(("input", self.input), ("weight", self.weight))?;
        if self.input.dtype() == DType::Bool {
            return Err(Error::value("argument `input` must have numbers, found dtype bool"));
        }
        let mismatch = || {
            let (x, w) = (dims_text(x), dims_text(w));
            Error::value(format!(
                "the channels of `input` {x} do not match those of `weight` {w} in {g} groups"
            ))
        };
        let (channels, out) = if self.transposed { (w[0], w[1] * g) } else { (w[1] * g, w[0]) };
        require_equal(x[1], channels, &mismatch)?;
        require(w[0].modulo(g).eq(0), || {
            format!("dimension 0 of `weight` {} must be divisible by `groups` {g}", dims_text(w))
        })?;
        if let Some(b) = self.bias {
            require_same_dtype(("input", self.input), ("bias", b))?;
            require_rank("bias", b, 1..=1)?;
            let wrong = || {
                Error::value(format!(
                    "argument `bias` must have sizes [{out}], one element per output channel, \
                        found {}",
                    dims_text(b.sizes())
                ))
            };
            require_equal(b.sizes()[0], out, &wrong)?;
        }
        let mut sizes: Dims = smallvec![x[0], out];
        for d in 0..self.stride.len() {
            let (n, k, s, p, dil) =
                (x[d + 2], w[d + 2], self.stride[d], self.padding[d], self.dilation[d]);
            let reach = dil * (k - 1) + 1;
            let size = if self.transposed {
                (n - 1) * s - p * 2 + reach + self.output_padding[d]
            } else {
                require((n + p * 2).ge(reach), || {
                    format!(
                        "a kernel that spans {reach} elements exceeds `input` {} with padding {p}",
                        dims_text(x)
                    )
                })?;
                (n + p * 2 - reach).floor_div(s) + 1
            };
            require(size.ge(0), || {
                format!("the output would have the negative size {size} in spatial dimension {d}")
            })?;
            sizes.push(size);
        }
        let m = fresh(self.input, sizes, self.input.dtype());
        // As in PyTorch's kernel, the result of a 3-d convolution in `f64` is always row-major.
        let keeps = self.stride.len() < 3 || m.dtype != DType::F64;
        let last = keeps
            && (is_channels_last(self.input.meta())? || is_channels_last(self.weight.meta())?);
        Ok(if last { in_channels_last(m) } else { m })
    }
}

fn has_groups(args: &[Value]) -> bool {
    args[8].int_i64().ok() != Some(1)
}

/// Whether each channel is a group, with one output channel.
fn is_depthwise(args: &[Value]) -> bool {
    let size = |arg: usize, dim: usize| args[arg].tensor().ok()?.sizes().get(dim)?.as_i64();
    let groups = args[8].int_i64().ok();
    let is_it = groups.is_some_and(|n| n > 1) && size(1, 0) == groups && size(1, 1) == Some(1);
    is_it && args[6].bool().is_ok_and(|transposed| !transposed)
}

/// The sizes of the kernel.
fn taps(args: &[Value]) -> &[SymInt] {
    args[1].tensor().ok().and_then(|weight| weight.sizes().get(2..)).unwrap_or_default()
}

fn has_no_taps(args: &[Value]) -> bool {
    taps(args).iter().any(|size| size.as_i64() == Some(0))
}

/// Whether the windows are the elements: one tap, stride 1, no padding.
fn is_of_elements(args: &[Value]) -> bool {
    let all = |arg: usize, n: i64| {
        args[arg].ints().is_ok_and(|list| list.iter().all(|i| i.as_i64() == Some(n)))
    };
    taps(args).iter().all(|size| size.as_i64() == Some(1)) && all(3, 1) && all(4, 0) && all(7, 0)
}

/// The nest of `convolution`.
fn nest(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let (x, weight) = (cx.input(0)?, cx.input(1)?);
    let bias = cx.optional_input(2)?;
    if cx.holds(has_no_taps) {
        let sizes = dims_text(cx.args()[1].tensor()?.sizes());
        return Err(Error::value(format!(
            "argument `weight` must have a kernel of at least one element, found sizes {sizes}"
        )));
    }
    let transposed = cx.flag(6)?;
    let groups = if cx.holds(is_depthwise) {
        ChannelGroups::EachChannel
    } else if cx.holds(has_groups) {
        ChannelGroups::Several(cx.size(8)?)
    } else {
        ChannelGroups::One
    };
    let positions = cx.result_axes_in(0, 2..x.axes.len());
    // A sum of one product is not added to +0.
    let has_window = !transposed || !cx.holds(is_of_elements);
    let mut window = SmallVec::<[WindowDim; 3]>::new();
    for dim in 0..if has_window { positions.len() } else { 0 } {
        let mut number = |arg: usize| {
            let element = if cx.len(arg)? == 1 { 0 } else { dim };
            cx.number_of(arg, element)
        };
        let (stride, padding, dilation) = (number(3)?, number(4)?, number(5)?);
        window.push(WindowDim { stride, padding, dilation });
    }
    let of = named::Convolution {
        x: &x,
        weight: &weight,
        bias: bias.as_ref(),
        positions: &positions,
        window: &window,
        groups,
        transposed,
        out: cx.result_dtype(0),
    };
    Ok(smallvec![named::convolution(&mut cx.nest, &of)?])
}

/// `conv1d` to `conv3d` and their transposes: adds a batch dimension if there is none, and resolves
/// named padding.
#[track_caller]
fn conv(args: &[Value], space: usize, transposed: bool) -> Result<Tensor> {
    let (input, weight) = (args[0].tensor()?, args[1].tensor()?);
    require_rank("weight", weight, space + 2..=space + 2)?;
    require_rank("input", input, space + 1..=space + 2)?;
    let batched = if input.dim() == space + 1 { input.unsqueeze(0) } else { input.clone() };
    let stride = per_space("stride", &args[3], space)?;
    let zeros: Dims = smallvec![SymInt::from(0); space];
    let bias = args[2].opt_tensor()?;
    let out = if transposed {
        let dilation = per_space("dilation", &args[7], space)?;
        batched.convolution(
            weight,
            bias,
            stride,
            per_space("padding", &args[4], space)?,
            dilation,
            true,
            per_space("output_padding", &args[5], space)?,
            args[6].int()?,
        )
    } else {
        let dilation = per_space("dilation", &args[5], space)?;
        let (batched, padding) = match &args[4] {
            Value::Str(name) => named_padding(&batched, weight, name, &stride, &dilation)?,
            list => (batched, per_space("padding", list, space)?),
        };
        batched.convolution(weight, bias, stride, padding, dilation, false, zeros, args[6].int()?)
    };
    Ok(if input.dim() == space + 1 { out.squeeze_dim(0) } else { out })
}

/// Padding by name: "valid" adds nothing, "same" keeps the spatial sizes. If the total is odd, the
/// extra element is added at the end.
fn named_padding(
    x: &Tensor,
    w: &Tensor,
    name: &str,
    stride: &[SymInt],
    dilation: &[SymInt],
) -> Result<(Tensor, Dims)> {
    let space = stride.len();
    match name {
        "valid" => Ok((x.clone(), smallvec![SymInt::from(0); space])),
        "same" => {
            let (mut left, mut extra, mut uneven) = (Dims::new(), Dims::new(), false);
            for d in 0..space {
                require(stride[d].eq(1), || {
                    format!("padding \"same\" needs a stride of 1, found {}", dims_text(stride))
                })?;
                let total = dilation[d] * (w.sizes()[d + 2] - 1);
                left.push(total.floor_div(2));
                extra.push(total.modulo(2));
                uneven = uneven || total.modulo(2).eq(0).statically_known() != Some(true);
            }
            let padded = if uneven {
                let pad: Dims = extra.iter().rev().flat_map(|&e| [SymInt::from(0), e]).collect();
                x.constant_pad_nd(pad, Scalar::Int(0))
            } else {
                x.clone()
            };
            Ok((padded, left))
        }
        other => Err(Error::value(format!(
            "`padding` must be \"valid\", \"same\" or numbers, found {other:?}"
        ))),
    }
}

table! {
    /// Convolutions.
    static TABLE = {
        "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, \
            SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, \
            SymInt groups) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Convolution,
                strides: Strides::FromOperands,
                metas: |_, a| -> Result<Metas> { Ok(smallvec![Convolution::of(a)?.meta()?]) },
                how: How::Loops(nest),
            }),
            vjp: crate::grad::CONVOLUTION,
        },
        "aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[1] stride=[1], SymInt[1] padding=[0], SymInt[1] dilation=[1], \
            SymInt groups=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 1, false)?)),
        },
        "aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[1] stride=1, str padding=\"valid\", SymInt[1] dilation=1, \
            SymInt groups=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 1, false)?)),
        },
        "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], SymInt[2] dilation=[1, 1], \
            SymInt groups=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 2, false)?)),
        },
        "aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[2] stride=1, str padding=\"valid\", SymInt[2] dilation=1, \
            SymInt groups=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 2, false)?)),
        },
        "aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[3] stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], SymInt[3] dilation=[1, 1, 1], \
            SymInt groups=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 3, false)?)),
        },
        "aten::conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[3] stride=[1, 1, 1], str padding=\"valid\", SymInt[3] dilation=[1, 1, 1], \
            SymInt groups=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 3, false)?)),
        },
        "aten::_convolution_mode(Tensor input, Tensor weight, Tensor? bias, \
            SymInt[] stride, str padding, SymInt[] dilation, SymInt groups) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let weight = a[1].tensor()?;
                require_rank("weight", weight, 3..=5)?;
                done(conv(a, weight.dim() - 2, false)?)
            }),
        },
        "aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[1] stride=[1], SymInt[1] padding=[0], SymInt[1] output_padding=[0], \
            SymInt groups=1, SymInt[1] dilation=[1]) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 1, true)?)),
        },
        "aten::conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[3] stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], \
            SymInt[3] output_padding=[0, 0, 0], SymInt groups=1, \
            SymInt[3] dilation=[1, 1, 1]) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 3, true)?)),
        },
        "aten::conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, \
            SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] output_padding=0, SymInt groups=1, \
            SymInt[2] dilation=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(conv(a, 2, true)?)),
        },
    }
}
