//! A loss curve as an SVG.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 616.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 344.0;
/// The powers of ten of the vertical axis.
const DECADES: std::ops::RangeInclusive<i32> = -4..=1;

/// The losses of each step, eager and compiled, on a logarithmic axis.
pub fn svg(title: &str, eager: &[f32], compiled: &[f32]) -> String {
    let (low, high) = (f64::from(*DECADES.start()), f64::from(*DECADES.end()));
    let steps = eager.len().max(2) - 1;
    let x = |step: f64| LEFT + (RIGHT - LEFT) * step / steps as f64;
    let y = |decade: f64| BOTTOM - (BOTTOM - TOP) * (decade.clamp(low, high) - low) / (high - low);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
            font-family=\"sans-serif\" font-size=\"13\">\n\
        <title>{title}</title>\n\
        <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut text = |x: f64, y: f64, anchor: &str, more: &str, text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{text}</text>"
        );
    };
    let middle = (LEFT + RIGHT) / 2.0;
    text(middle, 28.0, "middle", " font-size=\"16\"", title);
    text(middle, 388.0, "middle", "", "training step");
    let turned = format!(" transform=\"rotate(-90 18 {0})\"", (TOP + BOTTOM) / 2.0);
    text(18.0, (TOP + BOTTOM) / 2.0, "middle", &turned, "loss (cross-entropy)");
    for decade in DECADES {
        let label = if decade < 0 {
            format!("{:.*}", -decade as usize, 10f64.powi(decade))
        } else {
            format!("{}", 10i64.pow(decade as u32))
        };
        text(LEFT - 8.0, y(f64::from(decade)) + 4.0, "end", "", &label);
    }
    let ticks: Vec<usize> = (0..=4).map(|i| i * steps / 4).collect();
    for tick in &ticks {
        text(x(*tick as f64), BOTTOM + 20.0, "middle", "", &(tick + 1).to_string());
    }
    text(RIGHT - 116.0, TOP + 20.0, "start", "", "eager");
    text(RIGHT - 116.0, TOP + 40.0, "start", "", "compiled");

    let mut line = |from: (f64, f64), to: (f64, f64), style: &str| {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
        );
    };
    for decade in DECADES {
        let at = y(f64::from(decade));
        line((LEFT, at), (RIGHT, at), "stroke=\"#dddddd\"");
    }
    line((LEFT, TOP), (LEFT, BOTTOM), "stroke=\"black\"");
    line((LEFT, BOTTOM), (RIGHT, BOTTOM), "stroke=\"black\"");
    for tick in &ticks {
        let at = x(*tick as f64);
        line((at, BOTTOM), (at, BOTTOM + 5.0), "stroke=\"black\"");
    }
    let styles = [EAGER, COMPILED];
    for (i, style) in styles.iter().enumerate() {
        let at = TOP + 16.0 + 20.0 * i as f64;
        line((RIGHT - 150.0, at), (RIGHT - 124.0, at), style);
    }
    for (losses, style) in [eager, compiled].iter().zip(styles) {
        let point = |(i, loss): (usize, &f32)| {
            format!("{:.1},{:.1}", x(i as f64), y(f64::from(*loss).max(1e-9).log10()))
        };
        let points: Vec<String> = losses.iter().enumerate().map(point).collect();
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" {style}/>", points.join(" "));
    }
    out + "</svg>\n"
}

/// The curves are the same, so the first is wider than the second.
const EAGER: &str = "stroke=\"#f5a623\" stroke-width=\"5\" stroke-linejoin=\"round\"";
const COMPILED: &str = "stroke=\"#1f4e9c\" stroke-width=\"1.5\" stroke-linejoin=\"round\"";
