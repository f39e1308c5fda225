//! Convolutions by the kernel of [`conv`](crate::conv()) and
//! [`conv_transpose`](crate::conv_transpose()).

use super::Special;
use crate::conv::Form;
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use crate::window::Window;
use maquette_ir::Scalar;
use maquette_ir::loops::recognise::Convolution;

impl Special for Convolution {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x, weight, bias @ ..], [out]) = (operands, results) else { return Ok(false) };
        let number = |of: usize, without_window: i64| -> Vec<i64> {
            let given = |d: usize| numbers.get(3 * d + of).map(|n| n.to_i64());
            (0..x.rank() - 2).map(|d| given(d).unwrap_or(without_window)).collect()
        };
        let w = Window {
            kernel: weight.sizes()[2..].to_vec(),
            stride: number(0, 1),
            padding: number(1, 0),
            dilation: number(2, 1),
            ceil_mode: false,
        };
        // The channels of one group are a dimension of the weight.
        let all = if self.transposed { out.sizes()[1] } else { x.sizes()[1] };
        let groups = if weight.sizes()[1] == 0 { 1 } else { all / weight.sizes()[1] };
        let form = Form { w: &w, groups, transposed: self.transposed };
        // The kernel adds no sum of one tap to +0, so its order is that of another nest.
        let is_other = self.transposed && self.has_window == form.is_plain(x, out);
        if is_other || form.check(x, weight, bias.first(), out).is_err() {
            return Ok(false);
        }
        form.run(isa, x, weight, bias.first(), out)?;
        Ok(true)
    }
}
